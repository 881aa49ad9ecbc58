#!/bin/sh
# One would expect: the ids of a document in levanter's cache are those of its text, between bos and eos.
# What happens: levanter 1.2.dev1644 encodes bos, a space, the text, a space and eos as one text. Each document ends
# with a token for a space that is not in it, and its first word is the token with a space before it. (marin-levanter
# 0.2.227.dev40316220070, its successor, still does so at the end.)
# Source of the expectation: the docstring of levanter.data.text.BatchTokenizer, which says that it appends eos.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet levanter==1.2.dev1644 transformers==4.57.6 tokenizers==0.22.2 gitpython chex
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from levanter.data.text import BatchTokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

print("levanter", version("levanter"), "transformers", version("transformers"))
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
bpe = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
found = []
for text in ("ab", "ab\n"):
    [row] = BatchTokenizer(tokenizer)([{"text": text}])
    found.append(tokenizer.convert_ids_to_tokens(row["input_ids"]))
    print(repr(text), "has the tokens", bpe.encode(text).tokens, "and in the cache", found[-1])
assert found == [["<s>", "Ġ", "a", "b", "Ġ", "</s>"], ["<s>", "Ġ", "a", "b", "Ċ", "Ġ", "</s>"]], (
    "the behaviour changed"
)
PYTHON
