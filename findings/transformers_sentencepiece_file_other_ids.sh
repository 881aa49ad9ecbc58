#!/bin/sh
# One would expect: transformers reads the SentencePiece file of Mistral 7B v0.1 and gives the ids of SentencePiece.
# What happens: LlamaTokenizer of transformers 5.24.0 makes merges from the file. A text with two spaces before a
# letter ("a  b") gets other ids, without an error, also from the `tokenizer.json` that it saves.
# Source of the expectation: SentencePiece 0.2.3 on the same file, which is in the wheel of mistral-common.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2
"$work/venv/bin/pip" install --quiet --no-deps --target "$work/mistral" mistral-common==1.13.1
mkdir "$work/model"
cp "$work/mistral/mistral_common/data/tokenizer.model.v1" "$work/model/tokenizer.model"
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer
from transformers import LlamaTokenizer

sentencepiece = SentencePieceProcessor(model_file="model/tokenizer.model")
llama = LlamaTokenizer.from_pretrained("model")
llama.save_pretrained("saved")
saved = Tokenizer.from_file("saved/tokenizer.json")
for name in ("transformers", "sentencepiece"):
    print(name, version(name))
equal = []
for text in ("a b", "hello   world", "a  b", "  x"):
    expected = sentencepiece.encode(text)
    ids = llama(text, add_special_tokens=False).input_ids
    assert saved.encode(text, add_special_tokens=False).ids == ids
    equal.append(ids == expected)
    print(repr(text), "SentencePiece", expected, "transformers", ids)
assert equal == [True, True, False, False], "the behaviour changed"
PYTHON
