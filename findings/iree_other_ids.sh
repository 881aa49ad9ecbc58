#!/bin/sh
# One would expect: iree-tokenizer reads a `tokenizer.json` and gives the ids of Hugging Face tokenizers.
# What happens: with Llama 3's split pattern, which Qwen 3 and DeepSeek V3 share in this part, iree-tokenizer 0.3.0 cuts
# "\n \n" after the first line break, where `\s*[\r\n]+` takes all of it: a blank line with a space or a tab, as in much
# source code, has other ids. And an added token that is not special, as Qwen 3's `<think>` and `<tool_call>`, is not
# found in a text at all: it becomes the ids of its characters. No error in either case.
# Source of the expectation: its README ("with full HuggingFace `tokenizer.json` and OpenAI tiktoken compatibility");
# tokenizers 0.23.3.
# iree-tokenizer 0.3.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet iree-tokenizer==0.3.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from iree.tokenizer import Tokenizer as Iree
from tokenizers import AddedToken, Regex, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

for name in ("iree-tokenizer", "tokenizers"):
    print(name, version(name))

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
alphabet = sorted(ByteLevel.alphabet())
vocab = {token: index for index, token in enumerate([*alphabet, "ĊĠ", "ĊĠĊ"])}
tokenizer = Tokenizer(BPE(vocab, [("Ċ", "Ġ"), ("ĊĠ", "Ċ")]))
split = Split(Regex(PATTERN), behavior="isolated")
tokenizer.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
tokenizer.add_special_tokens([AddedToken("<eos>", normalized=False)])
tokenizer.save("tokenizer.json")
iree = Iree.from_file("tokenizer.json")

same = []
for text in ("a\nb", "a\n \nb", "a<eos>b", "a<think>b"):
    expected, got = tokenizer.encode(text).ids, list(iree.encode(text))
    same.append(expected == got)
    print(repr(text), "tokenizers", expected, "iree", got)
assert same == [True, False, True, False], "the behaviour changed"
PYTHON
