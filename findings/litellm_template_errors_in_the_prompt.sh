#!/bin/sh
# One would expect: a chat template that litellm renders itself gives the prompt that transformers gives, and
# `raise_exception` in it is an error: Mistral's raises one for a system message, and if roles do not alternate.
# What happens: litellm 1.110.2 makes `raise_exception` a function that returns an exception and raises none. Jinja
# writes it, so the text of the error is a part of the prompt that is sent, in front of the message, without an error.
# And it renders without trim_blocks and lstrip_blocks: a template of several lines leaves its indentation and its line
# breaks in the prompt.
# Source of the expectation: transformers 5.24.0 with the same templates and messages; litellm's code behind the call
# expects an exception, to treat a system message as one of the user and to put an empty message between two of a role.
# litellm 1.110.2 (here for a server of Triton; also for Replicate, Predibase, Petals, SageMaker, watsonx), 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet litellm==1.110.2 transformers==5.24.0 tokenizers==0.23.3
cd "$work"
export LITELLM_LOCAL_MODEL_COST_MAP=True
"$work/venv/bin/python" -W ignore - 2> messages <<'PYTHON' || { cat messages; exit 1; }
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version

import litellm
from litellm.litellm_core_utils.prompt_templates.factory import hf_chat_template
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

prompts = []


class Triton(BaseHTTPRequestHandler):
    def do_POST(self):
        prompts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text_input"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"model_name": "m", "text_output": "yes"}).encode())


def transformers_renders(template, messages, **tokens):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=template, **tokens)
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


server = HTTPServer(("127.0.0.1", 0), Triton)
threading.Thread(target=server.serve_forever, daemon=True).start()
for name in ("litellm", "transformers"):
    print(name, version(name))
model = "mistralai/Mistral-7B-Instruct-v0.1"
known = litellm.known_tokenizer_config[model]["tokenizer"]
user = {"role": "user", "content": "Hello"}
for messages in ([user], [{"role": "system", "content": "Be brief."}, user], [user, user]):
    litellm.completion(
        model=f"triton/{model}",
        messages=messages,
        api_base=f"http://127.0.0.1:{server.server_port}/v2/models/m/generate",
    )
    expected = transformers_renders(known["chat_template"], messages, bos_token="<s>", eos_token="</s>")
    print([message["role"] for message in messages])
    print("  litellm sends      ", repr(prompts[-1]))
    print("  transformers gives ", repr(expected))
    if len(messages) == 1:
        assert prompts[-1] == expected
    else:
        assert expected.startswith("TemplateError"), expected
        assert "Error message - Conversation roles must alternate" in prompts[-1], "the behaviour changed"
        assert prompts[-1].endswith("[INST] Hello [/INST]"), "the behaviour changed"

template = "{% for m in messages %}\n    {% if true %}\n<|user|>{{ m['content'] }}\n    {% endif %}\n{% endfor %}"
rendered, expected = hf_chat_template("m", [user], chat_template=template), transformers_renders(template, [user])
print("several lines")
print("  litellm gives      ", repr(rendered))
print("  transformers gives ", repr(expected))
assert expected == "<|user|>Hello\n"
assert rendered == "\n    \n<|user|>Hello\n    \n", "the behaviour changed"
PYTHON
