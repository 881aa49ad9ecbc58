#!/bin/sh
# One would expect: of two special tokens that begin alike, a tokenizer finds the longer one, or the one given first.
# What happens: tiktoken 0.14.0 looks for its special tokens with one expression whose alternatives stand in the order
# of a hash table. `<|end|>\n` is found before `<|end|>`, and `<|x|>` before `<|x|>\n`, in whichever order they are
# given; for `<|pad|>` the order does decide. So a name decides whether a longer token is ever found, without an error.
# Source of the expectation: Hugging Face tokenizers 0.23.1, which finds the longer one each time.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet tiktoken==0.14.0 tokenizers==0.23.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from tiktoken import Encoding
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

for name in ("tiktoken", "tokenizers"):
    print(name, version(name))
ranks = {bytes([byte]): byte for byte in range(256)}
found = {}
for name in ("end", "x", "pad"):
    short, long = f"<|{name}|>", f"<|{name}|>\n"
    for order in ((short, long), (long, short)):
        special = {token: 256 + index for index, token in enumerate(order)}
        encoding = Encoding("two", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens=special)
        ids = encoding.encode(long, allowed_special="all")
        tokenizer = Tokenizer(BPE())
        tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in order])
        theirs = tokenizer.encode(long).tokens
        assert theirs == [long], theirs
        found[name, order[0]] = ids == [special[long]]
        print(f"{order!r:32} tiktoken {[encoding.decode([id_]) for id_ in ids]} tokenizers {theirs}")
expected = [True, True, False, False, False, True]
assert [*found.values()] == expected, "the behaviour changed"
PYTHON
