#!/bin/sh
# One would expect: with Llama 3's split pattern, "\t.c" is the pre-tokens "\t" and ".c", because the alternative
# `[^\r\n\p{L}\p{N}]?\p{L}+` takes one sign before letters. So a merge of "." and "c" applies, as it does in
# Hugging Face tokenizers 1.0.0rc3.
# What happens: tokie 0.1.4 does not merge them after a tab; it does at the start of a text.
# Source code with indented ".code" or "(void)" gets other ids, without an error.
# Source of the expectation: the pattern itself, in the `tokenizer.json` of Llama 3; the ids of tokenizers.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet tokie==0.1.4 tokenizers==1.0.0rc3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import tokie
from tokenizers import Tokenizer

pattern = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [byte for byte in range(256) if byte not in kept]
alphabet = [chr(byte) for byte in kept] + [chr(256 + index) for index in range(len(others))]
vocab = {character: index for index, character in enumerate(alphabet)} | {".c": 256}
split = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ],
}
model = {
    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
    "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
    "vocab": vocab, "merges": [[".", "c"]],
}
byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
with open("tokenizer.json", "w", encoding="utf-8") as file:
    json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
               "normalizer": None, "pre_tokenizer": split, "post_processor": None,
               "decoder": byte_level, "model": model}, file)

reference = Tokenizer.from_file("tokenizer.json")
fast = tokie.Tokenizer.from_json("tokenizer.json")
for name in ("tokie", "tokenizers"):
    print(name, version(name))
found = []
for text in (".c", "\t.c"):
    expected = reference.encode_batch([text], add_special_tokens=False)[0].ids
    got = fast.encode(text, add_special_tokens=False)
    got = [int(id_) for id_ in getattr(got, "ids", got)]
    found.append(got == expected)
    print(repr(text), "tokenizers", expected, "tokie", got)
assert found == [True, False], "the behaviour changed"
PYTHON
