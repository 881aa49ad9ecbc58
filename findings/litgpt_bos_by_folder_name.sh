#!/bin/sh
# One would expect: a copy of a tokenizer gives the same ids.
# What happens: litgpt 0.5.13 puts the bos before a text if the name of the folder begins with "Llama-3" or
# "Meta-Llama-3". In a folder of another name it takes away the bos that the post-processor of Llama 3 adds, because
# its tokenizer_config.json has no add_bos_token. `litgpt finetune` saves the tokenizer to OUT/final: the model is tuned
# with the bos, and gets its prompts without it.
# Source of the expectation: litgpt/finetune/full.py, which copies the files for this use (`copy_config_files`).
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

from litgpt.tokenizer import Tokenizer
from litgpt.utils import copy_config_files
from tokenizers import Tokenizer as File
from tokenizers import models, pre_tokenizers, processors

print("litgpt", version("litgpt"), "tokenizers", version("tokenizers"))
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
file = File(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
file.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
file.add_special_tokens(["<s>"])
file.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
downloaded, tuned = Path("checkpoints/meta-llama/Llama-3.1-8B"), Path("out/final")
for folder in (downloaded, tuned):
    folder.mkdir(parents=True)
file.save(str(downloaded / "tokenizer.json"))
config = {"bos_token": "<s>", "tokenizer_class": "PreTrainedTokenizerFast"}
(downloaded / "tokenizer_config.json").write_text(json.dumps(config))
copy_config_files(downloaded, tuned)
found = []
for folder in (downloaded, tuned):
    found.append([file.id_to_token(id_) for id_ in Tokenizer(folder).encode("ab")])
    print(f"{folder}: 'ab' has the tokens {found[-1]}")
assert found == [["<s>", "a", "b"], ["a", "b"]], "the behaviour changed"
PYTHON
