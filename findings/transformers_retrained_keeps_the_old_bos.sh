#!/bin/sh
# One would expect: `train_new_from_iterator` of Llama 3's tokenizer puts the begin token's new id in front of a text.
# What happens: with transformers 5.24.0 the new tokenizer has the begin token as id 0, and puts the old id, 128000 with
# Llama 3's file, in front of each text: an id that its vocabulary does not have, or that of another token. It adjusts
# the ids of a TemplateProcessing alone, and not of one inside a `Sequence`, as Llama 3's post-processor is. No error.
# Source of the expectation: the comment in that method, "we just have to adjust the token IDs in the post processor";
# the same tokenizer without the `Sequence`; issue 30752 of huggingface/transformers, closed while its mend is open.
# transformers 5.24.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON' 2>"$work/log" || { cat "$work/log"; exit 1; }
from importlib.metadata import version

from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import ByteLevel as ByteLevelProcessor
from tokenizers.processors import Sequence, TemplateProcessing
from transformers import PreTrainedTokenizerFast

for name in ("transformers", "tokenizers"):
    print(name, version(name))
alphabet = sorted(ByteLevel.alphabet())
vocab = {character: index for index, character in enumerate(alphabet)}
vocab |= {f"filler{index}": index for index in range(256, 1000)}
tokenizer = Tokenizer(BPE(vocab, []))
tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<bos>"])
begin = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1000)])
found = []
for processor in (begin, Sequence([ByteLevelProcessor(trim_offsets=False), begin])):  # the second as in Llama 3's file
    tokenizer.post_processor = processor
    old = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>")
    assert old("a")["input_ids"][0] == old.bos_token_id == 1000
    new = old.train_new_from_iterator(["some text, and some more text"], 300)
    first = new("a")["input_ids"][0]
    found.append((new.bos_token_id, first, new.convert_ids_to_tokens(first)))
    print("entries", len(new), "bos", new.bos_token_id, "ids of 'a'", new("a")["input_ids"], "first token", found[-1][2])
assert found == [(0, 0, "<bos>"), (0, 1000, None)], "the behaviour changed"
PYTHON
