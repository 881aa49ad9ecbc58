#!/bin/sh
# One would expect: model2vec with `max_length=512` embeds the first 512 tokens of a text.
# What happens: model2vec 0.10.0 first cuts the text to 512 times as many characters as the median token of the
# vocabulary has, and only then makes tokens. Spaces between words count as characters and make no token, and so do long
# words: a table that is aligned by spaces, or indented code, loses its end long before 512 tokens, without an error or
# a warning. The two vectors of tables that differ there only are equal.
# Source of the expectation: the docstring of `encode`, "max_length: The maximum length of the sentences. Any tokens
# beyond this length will be truncated", and `max_length=None`, which embeds the whole text.
# model2vec 0.10.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet model2vec==0.10.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

for name in ("model2vec", "tokenizers"):
    print(name, version(name))
words = [f"value{number}" for number in range(100)]
vocab = {word: index for index, word in enumerate(["[UNK]", "[PAD]", *words])}
tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
model = StaticModel(np.eye(len(vocab), dtype=np.float32), tokenizer)

same = {}
for width in (8, 16):
    first, second = ("".join(word.ljust(width) for word in words[:99] * 4) + end for end in ("value0", "value99"))
    for max_length in (512, None):
        one, other = model.encode([first, second], max_length=max_length)
        same[width, max_length] = bool(np.array_equal(one, other))
        print(
            f"columns of {width} characters, {len(tokenizer.encode(first).ids)} tokens, max_length={max_length}:",
            "equal vectors" if same[width, max_length] else "different vectors",
        )
print("characters of the median token:", model.median_token_length)
assert same == {(8, 512): False, (8, None): False, (16, 512): True, (16, None): False}, "the behaviour changed"
PYTHON
