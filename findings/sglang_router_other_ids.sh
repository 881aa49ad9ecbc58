#!/bin/sh
# One would expect: SGLang and its own router, which answers the same `POST /v1/tokenize`, give the same ids.
# What happens: sglang-router 0.3.2 never adds the tokens of the post-processor, and ignores `add_special_tokens` in
# the request, which SGLang 0.5.23 has, and by default true. So behind the router a count is short, and ids lack the
# token that begins a text in Llama 3 and Gemma, without an error.
# Source of the expectation: the field in SGLang's wheel; the router's source says that its types "mirror the SGLang
# Python implementation for compatibility" (crates/protocols/src/tokenize.rs of its later home, lightseekorg/smg).
# 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps sglang-router==0.3.2
"$work/venv/bin/pip" install --quiet --no-deps --target "$work/sglang" sglang==0.5.23
"$work/venv/bin/pip" install --quiet setproctitle==1.3.7 orjson==3.11.4 aiohttp==3.14.5 fastapi==0.138.0 \
    uvicorn==0.54.0 requests==2.34.2 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import ast
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import requests
from tokenizers import Tokenizer, models, pre_tokenizers, processors

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.add_special_tokens(["<s>"])
tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 256)])
tokenizer.save("tokenizer.json")

protocol = Path("sglang/sglang/srt/entrypoints/openai/protocol.py").read_text()
[request] = [
    node for node in ast.parse(protocol).body
    if isinstance(node, ast.ClassDef) and node.name == "TokenizeRequest"
]
[field] = [
    node for node in request.body
    if isinstance(node, ast.AnnAssign) and node.target.id == "add_special_tokens"
]
[default] = [ast.literal_eval(k.value) for k in field.value.keywords if k.arg == "default"]

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
router = subprocess.Popen(
    [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
     "--worker-urls", "http://127.0.0.1:9"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
url = f"http://127.0.0.1:{port}/v1"
try:
    deadline = time.monotonic() + 60
    added = False
    while True:
        try:
            if not added:
                body = {"name": "m", "source": str(Path("tokenizer.json").resolve())}
                added = requests.post(f"{url}/tokenizers", json=body, timeout=5).ok
            if requests.get(f"{url}/tokenizers", timeout=5).json()["tokenizers"]:
                break
        except requests.ConnectionError:
            pass
        assert time.monotonic() < deadline, "the router did not start"
        time.sleep(0.2)
    body = {"model": "m", "prompt": "Hi"}
    found = [
        requests.post(f"{url}/tokenize", json={**body, **more}, timeout=5).json()["tokens"]
        for more in ({}, {"add_special_tokens": True})
    ]
finally:
    router.terminate()
    router.wait()
expected = tokenizer.encode("Hi", add_special_tokens=default).ids
print("sglang-router", version("sglang-router"), "tokenizers", version("tokenizers"))
print("SGLang 0.5.23: add_special_tokens is by default", default, "so its ids are", expected)
print("the router:", found[0], "and with add_special_tokens", found[1])
assert expected == [256, 39, 72] and found == [[39, 72]] * 2, "the behaviour changed"
PYTHON
