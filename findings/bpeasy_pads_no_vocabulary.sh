#!/bin/sh
# One would expect: with fill_to_nearest_multiple_of_eight=True the tokenizer has 304 entries after learning 300 and
# one special token.
# What happens: the tokenizer has 301 entries, len() says 300, and the saved file has no filling either: the filling
# goes to a list that nothing reads afterwards. An embedding sized by it has 301 rows.
# Source of the expectation: bpeasy's README comments the argument with "pad vocab to multiple of 8".
# bpeasy 0.1.6, 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet bpeasy==0.1.6 tiktoken==0.14.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path

from bpeasy.tokenizer import BPEasyTokenizer

words = (f"{first}{second}{third} " for first in "abcdefgh" for second in "aeiou" for third in "klmnprst")
text = "".join(words) * 3
sizes = {}
for fill in (False, True):
    tokenizer = BPEasyTokenizer.train(
        iter([text]),
        vocab_size=300,
        special_tokens=["<|end|>"],
        fill_to_nearest_multiple_of_eight=fill,
    )
    tokenizer.save("saved.json")
    saved = json.loads(Path("saved.json").read_text())
    sizes[fill] = tokenizer._encoder.n_vocab, len(tokenizer), len(saved["vocab"])
    print("bpeasy", version("bpeasy"), "filled" if fill else "as it is", sizes[fill])
assert sizes[True] == sizes[False] == (301, 300, 300), "the behaviour changed"
PYTHON
