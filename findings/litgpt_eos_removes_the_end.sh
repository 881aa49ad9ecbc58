#!/bin/sh
# One would expect: `Tokenizer.encode(text, eos=True)` of litgpt gives ids that end with the eos, once.
# What happens: litgpt 0.5.13 removes the eos if the tokenizer's post-processor has added it, or the text ends with it,
# and adds none. With such a tokenizer SFTDataset gives responses without an end, and a model that is tuned on them does
# not learn to stop. No error, no warning.
# Source of the expectation: litgpt/tokenizer.py, whose comment says that an eos is removed which the processor adds "no
# matter what", and which asks for `eos` before; litgpt/data/base.py encodes responses with eos=True.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet litgpt==0.5.13 tokenizers==0.22.2
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path

from litgpt.data.base import SFTDataset
from litgpt.prompts import Default
from litgpt.tokenizer import Tokenizer
from tokenizers import Tokenizer as File
from tokenizers import decoders, models, pre_tokenizers, processors

print("litgpt", version("litgpt"), "tokenizers", version("tokenizers"))
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
file = File(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
file.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
file.decoder = decoders.ByteLevel()
file.add_special_tokens(["</s>"])
adds_eos = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 256)])
config = {"eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
found = {}
for name, post_processor in (("adds nothing", None), ("adds </s>", adds_eos)):
    folder = Path(str(len(found)))
    folder.mkdir()
    if post_processor is not None:
        file.post_processor = post_processor
    file.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(folder)
    row = SFTDataset([{"instruction": "q", "output": "ab"}], tokenizer, Default())[0]
    found[name] = [
        [file.id_to_token(id_) for id_ in ids]
        for ids in (tokenizer.encode("ab", eos=True), tokenizer.encode("ab</s>", eos=True), row["input_ids"])
    ]
    print(f"a post-processor that {name}:", *found[name])
assert found == {
    "adds nothing": [["a", "b", "</s>"], ["a", "b"], ["q", "a", "b", "</s>"]],
    "adds </s>": [["a", "b"], ["a", "b", "</s>"], ["q", "a", "b"]],
}, "the behaviour changed"
PYTHON
