#!/bin/sh
# One would expect: kitoken reads the `tokenizer.json` of RoBERTa or Phi-3 and gives the ids of Hugging Face tokenizers.
# RoBERTa's <mask> takes the space in front of it (lstrip), and Phi-3's <|user|> the line break after it (rstrip).
# What happens: kitoken 0.11.1 ignores both flags. "a <mask>" and "<|user|>\n" get one token more, without an error, so
# the model sees a space or a line break that it never saw in training.
# Source of the expectation: the documentation of AddedToken in tokenizers; kitoken says that it reads these files.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet kitoken==0.11.1 tokenizers==0.23.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from kitoken import Kitoken
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

alphabet = sorted(ByteLevel.alphabet())
tokenizer = Tokenizer(BPE({character: index for index, character in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
tokenizer.decoder = ByteLevelDecoder()
tokenizer.add_special_tokens([
    AddedToken("<mask>", lstrip=True, normalized=False),
    AddedToken("<|user|>", rstrip=True, normalized=False),
])
tokenizer.save("tokenizer.json")
fast = Kitoken.from_tokenizers_file("tokenizer.json")
for name in ("kitoken", "tokenizers"):
    print(name, version(name))
n_more = []
for text in ("a<mask>", "a <mask>", "<|user|>a", "<|user|>\na"):
    expected = tokenizer.encode(text).ids
    got = fast.encode(text, True)
    n_more.append(len(got) - len(expected))
    print(repr(text), "tokenizers", expected, "kitoken", got)
assert n_more == [0, 1, 0, 1], "the behaviour changed"
PYTHON
