#!/bin/sh
# One would expect: a text of JSON lines that `datasets` reads and writes again is the same text.
# What happens: if all texts of a field look like dates (2024-01-15, or with a time), load_dataset("json") of datasets
# 5.2.0 makes timestamps of them, also of the `content` of messages; `to_json` writes those as numbers, the milliseconds
# since 1970. A set of questions whose answers are dates is written with 1705276800000 for the answer, without an error
# or a warning. One answer of another form keeps all as texts, and so does `Dataset.from_list`. polars reads texts.
# Source of the expectation: the JSON, which has texts; the rows of the same file with one answer more. That pyarrow's
# reader of JSON takes such texts for timestamps is in its documentation, and not in that of load_dataset.
# datasets 5.2.0, pyarrow 26.0.1, polars 2.1.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet datasets==5.2.0 pyarrow==26.0.1 polars==2.1.0
cd "$work"
export HF_HOME="$work/home" HF_DATASETS_DISABLE_PROGRESS_BARS=1
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path

import polars
from datasets import Dataset, load_dataset

for name in ("datasets", "pyarrow", "polars"):
    print(name, version(name))


def written(answers):
    rows = [{"answer": text, "messages": [{"role": "assistant", "content": text}]} for text in answers]
    file = Path(f"{len(answers)}.jsonl")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    load_dataset("json", data_files=str(file), split="train").to_json("again.jsonl")
    assert polars.read_ndjson(file).rows(named=True) == rows
    assert Dataset.from_list(rows).to_list() == rows
    again = [json.loads(line) for line in Path("again.jsonl").read_text().splitlines()]
    return [(row["answer"], row["messages"][0]["content"]) for row in again]


dates = ["2024-01-15", "1969-07-20T20:17:00"]
others = [*dates, "in July"]
print(dates, "become", written(dates))
print(others, "become", written(others))
assert written(dates) == [(1705276800000, 1705276800000), (-14182980000, -14182980000)], "the behaviour changed"
assert written(others) == [(text, text) for text in others], "the behaviour changed"
PYTHON
