#!/bin/sh
# One would expect: a tokenizer trained by train_new_from_iterator begins a text with its own begin token, which is
# what happens if the post-processor of the tokenizer is a TemplateProcessing.
# What happens: in a Sequence, as Llama 3's file has it, the TemplateProcessing keeps the id that the begin token had
# before. Each text begins with the id of another token, or of none. No warning.
# Source of the expectation: the docstring ("the same defaults (in terms of special tokens or tokenization pipeline)"),
# and https://github.com/huggingface/transformers/issues/30752, of 2024, closed while its mend (#34246) is open.
# transformers 5.24.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors


def make(post_processor):
    vocab = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = post_processor
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


template = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 256)])
sequence = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
print("transformers", transformers.__version__)
first_tokens = []
for name, post_processor in (("TemplateProcessing", template), ("Sequence", sequence)):
    old = make(post_processor)
    assert old("low").input_ids[0] == old.bos_token_id == 256
    new = old.train_new_from_iterator(["low lower lowest newer newest"] * 9, 270, show_progress=False)
    ids = new("low").input_ids
    first_tokens.append(new.convert_ids_to_tokens(ids[0]))
    print(f"{name}: bos_token_id {new.bos_token_id}, 'low' is {ids}, which begins with {first_tokens[-1]!r}")
assert first_tokens[0] == "<s>" != first_tokens[1], "the behaviour changed"
PYTHON
