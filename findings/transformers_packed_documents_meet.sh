#!/bin/sh
# One would expect: in a row of several documents whose `position_ids` begin again at 0, no document attends to another.
# What happens: models of transformers 5.24.0 separate the documents only without a cache. The default of a model is
# use_cache=True, also in training mode, so in a loop of one's own each document attends to those before it, without a
# warning. Trainer sets use_cache=False.
# Source of the expectation: `find_packed_sequence_indices` in transformers/masking_utils.py finds the documents in
# `position_ids`, and DataCollatorWithFlattening makes such rows.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 torch==2.15.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import torch
from transformers import LlamaConfig, LlamaForCausalLM

print("transformers", version("transformers"), "torch", version("torch"))
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes)).train()
first, second = torch.arange(1, 9), torch.arange(20, 26)
row = {
    "input_ids": torch.cat([first, second])[None],
    "position_ids": torch.cat([torch.arange(len(first)), torch.arange(len(second))])[None],
}
alone = model(second[None]).logits
found = {}
for name, options in (("default", {}), ("use_cache=False", {"use_cache": False})):
    logits = model(**row, **options).logits[:, len(first) :]
    found[name] = torch.allclose(logits, alone, atol=1e-4)
    print(f"{name}: the second document has its own logits: {found[name]}, difference {(logits - alone).abs().max():.1e}")
assert found == {"default": False, "use_cache=False": True}, "the behaviour changed"
PYTHON
