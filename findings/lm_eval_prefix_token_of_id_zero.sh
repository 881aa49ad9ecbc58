#!/bin/sh
# One would expect: lm-eval puts the same prefix token in front of a text without a context, whether it reads the
# tokenizer itself or asks the server that has it (`tokenizer_backend=remote`): the token that begins a text.
# What happens: with `remote`, lm-eval 0.4.13 takes the token that ends a text if the one that begins it has the id 0,
# as in DeepSeek V3 (0 and 1). Rolling perplexity then begins with another token, without a word.
# Source of the expectation: the `huggingface` backend of the same class with the same tokenizer.
# 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3 aiohttp==3.14.5 requests==2.34.2 \
    tenacity==9.2.1 jinja2==3.1.6
"$work/venv/bin/pip" install --quiet --no-deps lm_eval==0.4.13
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

from lm_eval.models.openai_completions import LocalCompletionsAPI
from tokenizers import Tokenizer, models

BOS, EOS = "<begin>", "<end>"


class Server(BaseHTTPRequestHandler):
    """The two routes of vLLM's server that lm-eval calls."""

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"tokenizer_class": "T", "bos_token": BOS, "eos_token": EOS})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"tokens": reference.encode(body["prompt"]).ids})

    def log_message(self, *_):
        pass


for name in ("lm_eval", "transformers", "tokenizers"):
    print(name, version(name))
found = []
for ids in ((0, 1), (1, 2)):
    vocab = dict(zip((BOS, EOS, "a"), (*ids, 9)))
    reference = Tokenizer(models.WordLevel(vocab, unk_token="a"))
    reference.add_special_tokens([BOS, EOS])
    folder = Path(f"folder{ids[0]}")
    folder.mkdir()
    reference.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1/completions"
    prefixes = {
        backend: LocalCompletionsAPI(
            base_url=url, model="m", tokenizer=tokenizer, tokenizer_backend=backend
        ).prefix_token_id
        for backend, tokenizer in (("huggingface", str(folder)), ("remote", None))
    }
    server.shutdown()
    print(f"{BOS} is {ids[0]}, {EOS} is {ids[1]}: prefix", prefixes)
    found.append(prefixes["huggingface"] == ids[0] and prefixes["remote"] == ids[0])
assert found == [False, True], "the behaviour changed"
PYTHON
