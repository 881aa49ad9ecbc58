#!/bin/sh
# One would expect: with a chat template, llama.cpp writes the numbers of tools and of earlier calls as they are.
# What happens: the Jinja of llama.cpp writes six significant digits in `tojson`: in the prompt, the latitude 52.5200066
# of an earlier call is 52.52, and 12345678.9 is 1.23457e+07. 1.0 is 1. Where a template writes a value as text, 1e-07
# is 0.0, a list is its items without brackets and commas, and an object is nothing. No error. So the model reads other
# arguments than it wrote, and the cached part of its prompt no longer fits.
# Source of the expectation: the request; json.dumps and Jinja 3.1.6, with which transformers renders these templates.
# xllamacpp 2026.10.11549 (llama.cpp of October 2026), gguf 0.19.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet xllamacpp==2026.10.11549 gguf==0.19.0 jinja2==3.1.6 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
import socket
import urllib.request
from importlib.metadata import version

import numpy as np
import xllamacpp
from gguf import GGUFWriter, TokenType
from jinja2 import Environment
from tokenizers.pre_tokenizers import ByteLevel

WIDTH = 32
# The beginning of a template in the manner of Qwen 3 (`tojson`) and Qwen3-Coder or GLM 4.5 (each argument as text).
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}"
    "{% if message.tool_calls %}{% set call = message.tool_calls[0].function.arguments %}"
    "{{ call | tojson }}{% if call is mapping %}{% for name, value in call | items %}; {{ name }}={{ value }}"
    "{% endfor %}{% endif %}{% endif %}{% endfor %}"
)
tokens = [*sorted(ByteLevel.alphabet()), "ab", "<|endoftext|>"]
writer = GGUFWriter("model.gguf", "llama")
for add, value in (
    (writer.add_context_length, 64),
    (writer.add_embedding_length, WIDTH),
    (writer.add_block_count, 1),
    (writer.add_feed_forward_length, WIDTH),
    (writer.add_head_count, 1),
    (writer.add_layer_norm_rms_eps, 1e-5),
    (writer.add_tokenizer_model, "gpt2"),
    (writer.add_tokenizer_pre, "gpt-2"),
    (writer.add_token_list, tokens),
    (writer.add_token_types, [TokenType.NORMAL] * 257 + [TokenType.CONTROL]),
    (writer.add_token_merges, ["a b"]),
    (writer.add_eos_token_id, 257),
    (writer.add_chat_template, TEMPLATE),
):
    add(value)
shapes = {"token_embd": (258, WIDTH), "output": (258, WIDTH), "output_norm": (WIDTH,)}
for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    shapes[f"blk.0.{part}"] = (WIDTH, WIDTH)
for part in ("attn_norm", "ffn_norm"):
    shapes[f"blk.0.{part}"] = (WIDTH,)
for name, shape in shapes.items():
    writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
settings = xllamacpp.CommonParams()
settings.model.path, settings.port, settings.n_ctx, settings.warmup = "model.gguf", port, 64, False
settings.verbosity = 0
server = xllamacpp.Server(settings)
for name in ("xllamacpp", "gguf", "jinja2"):
    print(name, version(name))


def conversation(arguments: object) -> list[dict[str, object]]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "Where? "},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": ""},
    ]


arguments = {"latitude": 52.5200066, "amount": 12345678.9, "one": 1.0, "small": 1e-07}
arguments |= {"list": [1, "a"], "object": {"a": 1}}
body = json.dumps({"messages": conversation(json.dumps(arguments))}).encode()
request = urllib.request.Request(f"{server.listening_address}/apply-template", body)
prompt = json.load(urllib.request.urlopen(request))["prompt"]
environment = Environment()
environment.filters["tojson"] = json.dumps
expected = environment.from_string(TEMPLATE).render(messages=conversation(arguments))
print("Jinja:", expected)
print("llama.cpp:", prompt)
assert expected.startswith("Where? " + json.dumps(arguments))
assert prompt == (
    'Where? {"latitude": 52.52, "amount": 1.23457e+07, "one": 1, "small": 1e-07, "list": [1, "a"], "object": {"a": 1}}'
    "; latitude=52.520007; amount=12345678.9; one=1.0; small=0.0; list=1a; object="
), "the behaviour changed"
PYTHON
