#!/bin/sh
# One would expect: a tokenizer decodes alike before and after it is saved and loaded.
# What happens: a special token that is added again with special=False, as transformers does for a folder whose
# added_tokens_decoder says so, is reported as no longer special, and decode(skip_special_tokens=True) still leaves it
# out. Saved and loaded, the same ids give a text with it.
# Source of the expectation: get_added_tokens_decoder of the same tokenizer, and `to_str` and `from_str`, which keep
# everything else.
# tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from tokenizers import AddedToken, Tokenizer, models

tokenizer = Tokenizer(models.WordLevel({"a": 0}, "a"))
tokenizer.add_special_tokens(["<s>"])
tokenizer.add_tokens([AddedToken("<s>", special=False, normalized=False)])
loaded = Tokenizer.from_str(tokenizer.to_str())
print("tokenizers", version("tokenizers"))
texts = []
for name, one in (("before", tokenizer), ("loaded", loaded)):
    special = one.get_added_tokens_decoder()[1].special
    texts.append(one.decode([1, 0], skip_special_tokens=True))
    print(name, "<s> is special:", special, "- decoded without special tokens:", repr(texts[-1]))
    assert special is False
assert tokenizer.to_str() == loaded.to_str()
assert texts == ["a", "<s> a"], "the behaviour changed"
PYTHON
