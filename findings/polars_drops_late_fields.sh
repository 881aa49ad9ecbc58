#!/bin/sh
# One would expect: reading JSON lines gives every field of every row, or an error.
# What happens: polars 2.1.0 takes the fields of the first 100 rows (`infer_schema_length`), and leaves out all others in
# the rows after them, at any depth, without an error or a warning: `tools` and `reasoning_content` that first occur in
# row 101 are gone. `read_ndjson`, `scan_ndjson`, `from_dicts` and `DataFrame(rows)` do so. A value of another type after
# row 100 is an error, so only new fields are lost in silence. DuckDB 2.0.1 reads the same file with all fields.
# Source of the expectation: the rows; polars' own error for a late type; DuckDB on the same file.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet polars==2.1.0 duckdb==2.0.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import duckdb
import polars as pl

for name in ("polars", "duckdb"):
    print(name, version(name))


def conversation(answer):
    return {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"} | answer]}


late = conversation({"reasoning_content": "two twos"}) | {"tools": [{"name": "add"}]}
rows = [conversation({})] * 100 + [late]
with open("chats.jsonl", "w", encoding="utf-8") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)
readers = {
    "polars.read_ndjson": lambda: pl.read_ndjson("chats.jsonl").row(100, named=True),
    "polars.scan_ndjson": lambda: pl.scan_ndjson("chats.jsonl").collect().row(100, named=True),
    "polars.from_dicts": lambda: pl.from_dicts(rows).row(100, named=True),
    "polars.DataFrame": lambda: pl.DataFrame(rows).row(100, named=True),
    "duckdb": lambda: duckdb.sql("FROM 'chats.jsonl'").fetchall()[100],
}
kept = {}
for name, read in readers.items():
    row = str(read())
    kept[name] = ("two twos" in row, "add" in row)
    print(name, row)
assert kept.pop("duckdb") == (True, True)
assert set(kept.values()) == {(False, False)}, "the behaviour changed"
try:
    pl.DataFrame([{"text": "a"}] * 100 + [{"text": {"parts": ["a"]}}])
except Exception as error:
    print("a late type:", type(error).__name__)
else:
    raise AssertionError("the behaviour changed")
PYTHON
