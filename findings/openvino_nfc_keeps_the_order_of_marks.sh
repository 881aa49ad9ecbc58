#!/bin/sh
# One would expect: openvino-tokenizers converts a tokenizer with the normalizer NFC, as Qwen's, and the result gives
# the ids of Hugging Face tokenizers. NFC sorts the marks of a letter, then composes: "ê" and U+0323, as text of the
# encoding Windows-1258 has it, become "ệ"; the dagesh of a Hebrew letter comes after its vowel.
# What happens: openvino-tokenizers 2026.4.1.0 composes without sorting. Such text keeps its order and gets other ids,
# without an error.
# Source of the expectation: Unicode Standard Annex #15; Python's `unicodedata` and tokenizers agree with it.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet openvino-tokenizers==2026.4.1.0 openvino==2026.4.1 transformers==5.24.0 \
    tokenizers==0.23.3
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
import unicodedata
from importlib.metadata import version

import openvino
from openvino_tokenizers import convert_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
vocab = {token: id_ for id_, token in enumerate([*alphabet, "ab"])}
tokenizer = Tokenizer(models.BPE(vocab, [("a", "b")]))
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<|end|>"])
wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
converted = openvino.compile_model(convert_tokenizer(wrapped), "CPU")
for name in ("openvino-tokenizers", "transformers", "tokenizers"):
    print(name, version(name))
sorted_alike = []
for text in ("Vie\u0323\u0302t", "Vi\u00ea\u0323t", "\u05d1\u05b7\u05bc", "\u05d1\u05bc\u05b7"):
    expected = wrapped(text)["input_ids"]
    assert tokenizer.decode(expected) == unicodedata.normalize("NFC", text)
    ids = [int(id_) for id_ in converted([text])["input_ids"][0]]
    sorted_alike.append(ids == expected)
    print(ascii(text), "tokenizers", expected, "OpenVINO", ids, ascii(tokenizer.decode(ids)))
assert sorted_alike == [True, False, True, False], "the behaviour changed"
PYTHON
