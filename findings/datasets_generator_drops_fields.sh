#!/bin/sh
# One would expect: a Dataset from a generator has every field of its rows, as one from the same rows in JSON lines has.
# What happens: Dataset.from_generator of datasets 5.2.0 takes the fields of the first row and leaves out all others in
# later rows, without an error or a warning: `tools`, if the first conversation has none. Fields inside a list or an
# object are kept. `load_dataset("json")` keeps `tools` too.
# Source of the expectation: `load_dataset("json")` of the same rows; the documentation of from_generator names no such
# limit (that of from_list does).
# datasets 5.2.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet datasets==5.2.0
cd "$work"
HF_HOME="$work/hf" HF_HUB_OFFLINE=1 "$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import datasets

datasets.disable_progress_bars()
print("datasets", version("datasets"))
answer = {"role": "assistant", "content": "4"}
rows = [{"messages": [answer]}] * 3 + [
    {"messages": [answer | {"reasoning_content": "two twos"}], "tools": [{"name": "add"}]}
]
with open("chats.jsonl", "w", encoding="utf-8") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)


def generate():
    yield from rows


sets = {
    "load_dataset": datasets.load_dataset("json", data_files="chats.jsonl", split="train"),
    "from_generator": datasets.Dataset.from_generator(generate),
}
kept = {}
for name, data in sets.items():
    kept[name] = ("two twos" in str(data[3]), "add" in str(data[3]))
    print(name, data.column_names, data[3])
assert kept == {"load_dataset": (True, True), "from_generator": (True, False)}, "the behaviour changed"
PYTHON
