#!/bin/sh
# One would expect: torchtitan reads vocab.json and merges.txt of a byte-level BPE with the ids of tokenizers.
# What happens: torchtitan 0.3.0 takes each line of merges.txt that begins with "#" for a comment. The merges of "##",
# "####" and others are lost without an error: 8 of GPT-2's own file, so "## Heading" begins with two tokens in place of
# one.
# Source of the expectation: the file that `BPE.save` of tokenizers writes, and OpenAI's GPT-2 (src/encoder.py), which
# skips the first line only.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torchtitan==0.3.0 tokenizers==0.23.3 torch==2.15.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torchtitan.components.tokenizer import HuggingFaceTokenizer

print("torchtitan", version("torchtitan"), "tokenizers", version("tokenizers"))
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
bpe.train_from_iterator(["## Heading\n"], trainers.BpeTrainer(initial_alphabet=alphabet, min_frequency=1))
Path("model").mkdir()
bpe.model.save("model")
read = HuggingFaceTokenizer(tokenizer_path="model")
for text, same in (("Heading", True), ("## Heading", False)):
    expected, ids = bpe.encode(text).tokens, read.encode(text)
    found = [bpe.id_to_token(id_) for id_ in ids]
    print(repr(text), "tokenizers:", expected, "torchtitan:", found)
    assert (found == expected) is same, "the behaviour changed"
assert found[:2] == ["#", "#"] and expected[0] == "##", "the behaviour changed"
PYTHON
