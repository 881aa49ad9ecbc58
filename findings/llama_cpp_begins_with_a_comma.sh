#!/bin/sh
# One would expect: if a GGUF file names no begin token, llama.cpp gives its chat template none, as transformers does:
# `{{ bos_token }}` writes nothing.
# What happens: llama.cpp takes id 11 as the begin token of every byte-level vocabulary without one, without an error.
# That is "," in GPT-2's order of bytes, and U+000B where the ids 0 to 255 are the bytes. Each prompt of a template that
# writes `bos_token` begins with it. gguf's SpecialVocab names no begin token if the model folder has none.
# Source of the expectation: transformers gives a template no token that is not set.
# xllamacpp 2026.10.11549 (llama.cpp of October 2026), gguf 0.19.0, jinja2 3.1.6, 2026-11-30
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
from jinja2 import Template
from tokenizers.pre_tokenizers import ByteLevel

WIDTH = 32
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}"
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
messages = [{"role": "user", "content": "Hello"}]
body = json.dumps({"messages": messages}).encode()
request = urllib.request.Request(f"{server.listening_address}/apply-template", body)
prompt = json.load(urllib.request.urlopen(request))["prompt"]
expected = Template(TEMPLATE).render(messages=messages)
print("Jinja without a begin token:", repr(expected), "llama.cpp:", repr(prompt))
assert (expected, prompt) == ("user: Hello", ",user: Hello"), "the behaviour changed"
PYTHON
