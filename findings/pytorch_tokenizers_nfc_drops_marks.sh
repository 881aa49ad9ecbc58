#!/bin/sh
# One would expect: pytorch-tokenizers, the tokenizer of ExecuTorch, reads a `tokenizer.json` with the normalizer NFC,
# as Qwen's, and gives the ids of Hugging Face tokenizers. NFC leaves composed characters as they are.
# What happens: pytorch-tokenizers 1.5.0 decomposes a composed character and drops all but the first part, without an
# error: "café" gets the ids of "cafe", "が" those of "か", each Korean syllable those of its first letter. Decomposed
# text is composed as it should be.
# Source of the expectation: Unicode Standard Annex #15; the header of the class cites tokenizers' `unicode.rs`.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pytorch-tokenizers==1.5.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from pytorch_tokenizers.pytorch_tokenizers_cpp import HFTokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({character: id_ for id_, character in enumerate(alphabet)}, []))
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.save("tokenizer.json")
other = HFTokenizer()
other.load("tokenizer.json")
for name in ("pytorch-tokenizers", "tokenizers"):
    print(name, version(name))
found = []
for text in ("cafe\u0301", "café", "München", "Київ", "がぎ", "한국어", "東京"):
    read = tokenizer.decode(other.encode(text, 0, 0))
    expected = tokenizer.decode(tokenizer.encode(text).ids)
    print(repr(text), "tokenizers:", repr(expected), "pytorch-tokenizers:", repr(read))
    found.append(read)
expected = ["café", "cafe", "Munchen", "Киів", "かき", "\u1112\u1100\u110b", "東京"]
assert found == expected, "the behaviour changed"
PYTHON
