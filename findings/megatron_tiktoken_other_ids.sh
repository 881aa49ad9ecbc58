#!/bin/sh
# One would expect: with a tokenizer of Megatron, the ids of the tokens of a text are the ids of the text, and their
# text is the text.
# What happens: megatron-core 0.16.1 adds the number of special tokens to the ids of its TikTokenTokenizer when it reads
# the file, and once more in `token_to_id` and `tokens_to_ids`, which are the ids of other tokens, or of none. And
# `ids_to_text` decodes each token by itself, so a character of several tokens becomes U+FFFD.
# Source of the expectation: `text_to_ids` and the methods of the same names of Megatron's other tokenizers.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet megatron-core==0.16.1 tiktoken==0.14.0
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PYTHON'
import base64
import json
from importlib.metadata import version
from pathlib import Path

from megatron.core.tokenizers.text.libraries.tiktoken_tokenizer import TikTokenTokenizer

print("megatron-core", version("megatron-core"))
tokens = [
    {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
    for byte in range(256)
]
Path("bytes.json").write_text(json.dumps(tokens))
tokenizer = TikTokenTokenizer("bytes.json", num_special_tokens=10, vocab_size=266)
ids, split = tokenizer.text_to_ids("ab"), tokenizer.text_to_tokens("ab")
again = tokenizer.tokens_to_ids(split)
text = tokenizer.ids_to_text(tokenizer.text_to_ids("é"))
print("'ab' has the ids", ids, "and its tokens", split, "have the ids", again)
print("their text is", tokenizer.ids_to_text(again))
print("the text of the ids of 'é' is", ascii(text))
assert (ids, again, text) == ([107, 108], [117, 118], "\ufffd\ufffd"), "the behaviour changed"
PYTHON
