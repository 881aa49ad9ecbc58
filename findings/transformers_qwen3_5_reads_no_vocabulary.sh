#!/bin/sh
# One would expect: AutoTokenizer reads a folder of Qwen 3.5 that has vocab.json and merges.txt and no tokenizer.json, as
# it does for Qwen 2 and 3, or refuses it. Qwen publishes these two files with its models.
# What happens: the class Qwen3_5Tokenizer of transformers 5.24.0 does not name these files. It builds a vocabulary of
# one token, and each text gives no ids, without a word.
# Source of the expectation: Qwen2Tokenizer of the same release on the same files, and the arguments `vocab` and `merges`
# of Qwen3_5Tokenizer.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cd "$work"
cat > ids.py <<'PYTHON'
import json
from pathlib import Path

import transformers
from tokenizers import pre_tokenizers

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
vocab = {letter: id_ for id_, letter in enumerate([*letters, "lo"])}
for kind in ("Qwen2Tokenizer", "Qwen3_5Tokenizer"):
    folder = Path(kind)
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\nl o\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
found = {}
for kind in ("Qwen2Tokenizer", "Qwen3_5Tokenizer"):
    tokenizer = transformers.AutoTokenizer.from_pretrained(kind)
    found[kind] = tokenizer("low").input_ids
    print("transformers", transformers.__version__, kind, len(tokenizer), found[kind])
expected = {"Qwen2Tokenizer": [vocab["lo"], vocab["w"]], "Qwen3_5Tokenizer": []}
assert found == expected, "the behaviour changed"
PYTHON
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" ids.py
