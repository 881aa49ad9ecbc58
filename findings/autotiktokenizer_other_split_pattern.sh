#!/bin/sh
# One would expect: AutoTikTokenizer 0.2.2 reads a `tokenizer.json` into a tiktoken encoding with the same ids, as its
# README says, so it splits as the file says, or at least as GPT-2 does.
# What happens: every vocabulary of BPE gets one split pattern of the package. It is GPT-2's without the apostrophe, so
# a text that begins with s, d, m, t, ll, ve or re is cut after these letters, and numbers are not cut into threes
# where the file says so. The ids are others, without an error; decoding them gives the text.
# Source of the expectation: the `pre_tokenizer` of the file; the ids of Hugging Face's tokenizers 0.23.1.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet autotiktokenizer==0.2.2 tokenizers==0.23.1 tiktoken==0.14.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path

from autotiktokenizer import AutoTikTokenizer
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
SPLITS = {
    "GPT-2's": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "cl100k's": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CL100K), "isolated"), BYTES]),
}
for name in ("autotiktokenizer", "tokenizers", "tiktoken"):
    print(name, version(name))
agree = []
for name, split in SPLITS.items():
    reference = Tokenizer(models.BPE())
    reference.pre_tokenizer = split
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    reference.train_from_iterator(["some of them read 1234 34 34"] * 9, trainer)
    folder = Path("folder")
    folder.mkdir(exist_ok=True)
    reference.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    other = AutoTikTokenizer.from_pretrained(str(folder))
    for text in (" them", "them", "some", "read", "1234"):
        expected, got = reference.encode(text).ids, other.encode(text)
        assert other.decode(got) == text
        agree.append(expected == got)
        print(f"{name} pattern, {text!r}: tokenizers {expected}, autotiktokenizer {got}")
assert agree == [True, False, False, False, True, True, False, False, False, False], agree
PYTHON
