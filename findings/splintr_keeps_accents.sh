#!/bin/sh
# One would expect: a `tokenizer.json` that splintr loads has in splintr the ids of `tokenizers`.
# What happens: the normalizer `StripAccents` of `tokenizers` removes all combining marks, splintr only nonspacing ones
# (Mn). In the scripts of India it keeps vowel signs (Mc): a Hindi word has five characters, with `tokenizers` three.
# Source of the expectation: splintr's `from_json`: "Load any HuggingFace `tokenizer.json`", which refuses what it does
# not know; `tokenizers` removes what Unicode calls a mark (`is_combining_mark`: Mn, Mc and Me).
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
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
bpe = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
bpe.normalizer = normalizers.StripAccents()
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
bpe.save("tokenizer.json")
tokenizer = splintr.from_json("tokenizer.json")
texts = []
for text in ("e\u0301", "\u0939\u093f\u0928\u094d\u0926\u0940"):
    pair = bpe.decode(bpe.encode(text).ids), tokenizer.decode(tokenizer.encode(text))
    print("splintr", version("splintr-rs"), text, "tokenizers:", pair[0], " splintr:", pair[1])
    texts.append(pair)
hindi = "\u0939\u0928\u0926", "\u0939\u093f\u0928\u0926\u0940"
assert texts == [("e", "e"), hindi], "the behaviour changed"
PYTHON
