#!/bin/sh
# One would expect: a BPE model that tokenizers saves as vocab.json and merges.txt and reads again gives the same ids.
# What happens: the reader of tokenizers 0.23.1 takes every line that starts with "#version" for the header, not only
# the first. A merge whose left token starts with "#version" is lost without an error, and the merges after it
# move up a rank. Shaders start with "#version 330", so a tokenizer that is trained on GLSL learns such merges.
# Source of the expectation: its own `save`, which writes one header line and then one merge a line.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet tokenizers==0.23.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

# "Ġ" is the space of byte-level BPE.
lines = ["#version"] * 9 + ["330", "450"] * 9 + ["#versionĠ330", "#versionĠ450"] * 3
tokenizer = Tokenizer(BPE())
tokenizer.train_from_iterator(lines, BpeTrainer(vocab_size=60, show_progress=False))
text = "#versionĠ330"
before = tokenizer.encode(text).tokens

tokenizer.model.save(".")
tokenizer.model = BPE.from_file("vocab.json", "merges.txt")
after = tokenizer.encode(text).tokens
print("tokenizers", version("tokenizers"))
print("trained ", before)
print("read    ", after)
with open("merges.txt", encoding="utf-8") as file:
    print("lines   ", [line.strip() for line in file if line.startswith("#version")])
assert before == [text], before
assert after != before, "the behaviour changed"
PYTHON
