#!/bin/sh
# One would expect: the samples that webdataset writes are those that it reads.
# What happens: webdataset 1.0.2 writes a sample as files KEY.FIELD, and takes for the key what is in front of the first
# dot of a name. Keys with a dot are written as they are: documents with the numbers of arXiv, 2401.00001 and
# 2401.00002, come back as one sample of the key 2401 with the fields `00001.txt` and `00002.txt`. A shard of them is
# one sample; a reader that asks for `txt` finds none. Neither the writer nor the reader says a word.
# Source of the expectation: the same samples with keys without a dot. That all behind the first dot is an extension is
# the rule of the reader (`base_plus_ext`); TarWriter gets a key and not a name, and its docstring says nothing of dots.
# webdataset 1.0.2, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet webdataset==1.0.2
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import webdataset

print("webdataset", version("webdataset"))
counts = []
for dot in ("-", "."):
    with webdataset.TarWriter("shard.tar") as writer:
        for number in range(1, 4):
            writer.write({"__key__": f"2401{dot}0000{number}", "txt": f"text {number}"})
    samples = list(webdataset.WebDataset("shard.tar", shardshuffle=False).decode())
    counts.append(len(samples))
    for sample in samples:
        print({name: value for name, value in sample.items() if name not in ("__url__", "__local_path__")})
assert counts == [3, 1], "the behaviour changed"
assert samples[0]["__key__"] == "2401" and samples[0]["00002.txt"] == "text 2", "the behaviour changed"
PYTHON
