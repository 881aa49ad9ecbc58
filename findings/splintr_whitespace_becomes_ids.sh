#!/bin/sh
# One would expect: a `tokenizer.json` that splintr loads has in splintr the ids of `tokenizers`.
# What happens: the pre-tokenizer `Whitespace` removes white space. Before a `ByteLevel` splintr keeps it: "a b" has one
# more id, that of the space. `WhitespaceSplit` at the same place removes it.
# Source of the expectation: splintr's `from_json`: "Load any HuggingFace `tokenizer.json`", which refuses what it does
# not know ("unsupported model field"); and the documentation of `tokenizers.pre_tokenizers.Whitespace`: it splits
# by `\w+|[^\w\s]+`.
# splintr-rs 0.22.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet splintr-rs==0.22.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import splintr
from tokenizers import Tokenizer, models, pre_tokenizers

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
bpe = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
space = letters.index("\u0120")
for first, extra in ((pre_tokenizers.WhitespaceSplit(), []), (pre_tokenizers.Whitespace(), [space])):
    steps = [first, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    bpe.pre_tokenizer = pre_tokenizers.Sequence(steps)
    bpe.save("tokenizer.json")
    ids = bpe.encode("a b").ids
    found = splintr.from_json("tokenizer.json").encode("a b")
    print("splintr", version("splintr-rs"), type(first).__name__, "tokenizers:", ids, " splintr:", found)
    assert found == [ids[0], *extra, ids[1]], "the behaviour changed"
PYTHON
