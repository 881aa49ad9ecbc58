#!/bin/sh
# One would expect: a dataset of paths that end in `.npy` reads what `np.save` wrote, or refuses it.
# What happens: OLMo-core 3.0.0 reads a `.npy` file from its first byte, so the 128 bytes of its header become 64 ids of
# uint16, in front of the first document and without an error. Its own files of this name have no header.
# Source of the expectation: numpy's format of `.npy` (NEP 1), and the name of OLMo-core's `NumpyFSLDataset`.
# 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet ai2-olmo-core==3.0.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import numpy as np
from olmo_core.data import NumpyFSLDataset

ids = np.arange(1000, 2000, dtype=np.uint16)
np.save("ids.npy", ids)
np.load("ids.npy").tofile("ids.bin")
for path in ("ids.npy", "ids.bin"):
    dataset = NumpyFSLDataset(
        path, sequence_length=100, pad_token_id=0, eos_token_id=1, vocab_size=2000, dtype=np.uint16
    )
    found = dataset[0]["input_ids"].numpy()
    print(path, "begins with", found[:4].tolist(), "and has", len(dataset), "samples of 100 of the 1,000 ids")
    shift = 64 if path == "ids.npy" else 0
    assert found[shift:].tolist() == ids[: 100 - shift].tolist() and found[0] == (20115 if shift else 1000)
PYTHON
