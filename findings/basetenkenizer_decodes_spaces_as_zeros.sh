#!/bin/sh
# One would expect: ids decode to the text that they were made from.
# What happens: GPT-NeoX (Pythia), Phi-2 and ModernBERT have runs of spaces and tabs as added tokens. basetenkenizer 0.2.8
# gives their ids, and decodes each space or tab of such a token to U+0000, without an error: the indentation of
# generated code is zeros. An added token of letters is decoded as it should be.
# Source of the expectation: the text; tokenizers 0.23.3 decodes the same ids to it.
# basetenkenizer 0.2.8, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet basetenkenizer==0.2.8 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import basetenkenizer
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

for name in ("basetenkenizer", "tokenizers"):
    print(name, version(name))
alphabet = sorted(ByteLevel.alphabet())
tokenizer = Tokenizer(BPE({character: index for index, character in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
tokenizer.decoder = ByteLevelDecoder()
tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ("    ", "\t\t", "<x>")])
tokenizer.save("tokenizer.json")
fast = basetenkenizer.Tokenizer.from_file("tokenizer.json")
found = []
for text in ("if x:\n    y", "\t\tz", "a<x>b"):
    ids = tokenizer.encode(text).ids
    assert list(fast.encode(text).ids) == ids
    assert tokenizer.decode(ids) == text
    found.append(fast.decode(ids))
    print("text", repr(text), "decoded", repr(found[-1]))
assert found == ["if x:\n\0\0\0\0y", "\0\0z", "a<x>b"], "the behaviour changed"
PYTHON
