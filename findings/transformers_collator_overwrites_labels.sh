#!/bin/sh
# One would expect: a collator for language models keeps the labels of the rows, or refuses rows that have them.
# What happens: DataCollatorForLanguageModeling (mlm=False) of transformers 5.24.0 replaces `labels` by the ids if all
# rows of the batch are of one length, as in batches of one row. The -100 of a prompt are gone and the loss counts there.
# With rows of several lengths it raises an error. If the pad token is the eos, the eos is no label either.
# DataCollatorForSeq2Seq and DataCollatorWithFlattening keep the labels.
# Source of the expectation: the models of transformers, which take `labels` with -100 where the loss does not count,
# and those two collators.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3 numpy==2.4.6
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from tokenizers import Tokenizer, models
from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq, PreTrainedTokenizerFast

print("transformers", version("transformers"))
bpe = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate("abc")}, []))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="</s>")
end = tokenizer.eos_token_id
row = {"input_ids": [0, 1, 2, end], "attention_mask": [1] * 4, "labels": [-100, -100, 2, end]}
found = []
for collator in (
    DataCollatorForSeq2Seq(tokenizer, return_tensors="np"),
    DataCollatorForLanguageModeling(tokenizer, mlm=False, return_tensors="np"),
):
    found.append(collator([dict(row)])["labels"].tolist())
    print(type(collator).__name__, "makes of the labels", row["labels"], "the labels", found[-1][0])
tokenizer.pad_token = "</s>"
found.append(collator([dict(row)])["labels"].tolist())
print(type(collator).__name__, "with the eos as pad token:", found[-1][0])
assert found == [[[-100, -100, 2, end]], [[0, 1, 2, end]], [[0, 1, 2, -100]]], "the behaviour changed"
PYTHON
