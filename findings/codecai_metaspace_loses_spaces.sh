#!/bin/sh
# One would expect: codecai's BPETokenizer gives the ids of Hugging Face tokenizers for a vocabulary of SentencePiece's
# form, and its Detokenizer gives the text back.
# What happens: codecai 0.4.1 makes one space of every run of spaces and tabs before it encodes, and puts a space in front
# of every line break. Indentation is lost, and "a  b" has the ids of "a b", without an error.
# Source of the expectation: its docstrings ("match HuggingFace reference", "metaspace"); Hugging Face tokenizers 0.23.3
# with the same vocabulary and merges, whose ids decode to the text.
# 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet codecai==0.4.1 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from codecai import BPETokenizer, Detokenizer, TokenizerMap
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPACE = "\u2581"
bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
vocab = {token: id_ for id_, token in enumerate([*bytes_, SPACE, "a", "b", f"{SPACE}a", f"{SPACE}b"])}
merges = [(SPACE, "a"), (SPACE, "b")]
reference = Tokenizer(models.BPE(vocab, merges, byte_fallback=True))
reference.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=False)
reference.decoder = decoders.Sequence([
    decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
])
described = TokenizerMap.from_json({
    "id": "test/metaspace", "version": "2", "vocab_size": len(vocab), "vocab": vocab,
    "merges": [" ".join(pair) for pair in merges], "encoder": "metaspace",
    "byte_fallback_start": 0, "byte_fallback_end": 255,
})
codec = BPETokenizer(described)
for name in ("codecai", "tokenizers"):
    print(name, version(name))
found = []
for text in ("a b", "a  b", "a\n   b", "a\nb"):
    expected, ids = reference.encode(text).ids, codec.encode(text)
    back = Detokenizer(described).render(ids)
    assert reference.decode(expected) == text
    print(repr(text), "tokenizers", expected, "codecai", ids, "as text", repr(back))
    found.append((ids == expected, back.removeprefix(" ") == text))
assert found == [(True, True)] + [(False, False)] * 3, found
PYTHON
