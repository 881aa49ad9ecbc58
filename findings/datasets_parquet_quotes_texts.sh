#!/bin/sh
# One would expect: a text that is saved with `datasets` as Parquet is the same text when pandas or pyarrow reads it.
# What happens: if a field has a text in one row and a list in another, datasets 5.2.0 gives it the Parquet type JSON.
# pandas 3.1.1 and pyarrow 26.0.1 return the encoding: the text `two` is `"two"` with its quotes, and a quote inside
# has a backslash. A model that is trained on these rows learns the quotes.
# Reading the same rows back with datasets, or from its JSON lines, gives the text.
# Source of the expectation: the round trip of datasets itself, and `str` columns, which come back as they were.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet datasets==5.2.0 pandas==3.1.1 pyarrow==26.0.1
cd "$work"
HF_HOME="$work/home" HF_DATASETS_DISABLE_PROGRESS_BARS=1 "$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import pandas
import pyarrow.parquet
from datasets import load_dataset

with open("rows.jsonl", "w", encoding="utf-8") as file:
    for value in ('He said "hi".', ["a list"]):
        print(json.dumps({"content": value}), file=file)
rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows.to_parquet("rows.parquet")
again = load_dataset("parquet", data_files="rows.parquet", split="train")
by_pandas = pandas.read_parquet("rows.parquet")["content"][0]
by_pyarrow = pyarrow.parquet.read_table("rows.parquet").to_pylist()[0]["content"]
for name in ("datasets", "pandas", "pyarrow"):
    print(name, version(name))
print("datasets reads", again[0]["content"])
print("pandas reads  ", by_pandas)
print("pyarrow reads ", by_pyarrow)
assert again[0]["content"] == 'He said "hi".', again[0]
assert by_pandas == by_pyarrow == r'"He said \"hi\"."', "the behaviour changed"
PYTHON
