#!/bin/sh
# One would expect: pytorch-tokenizers, the tokenizer of ExecuTorch, reads a `tokenizer.json` with several `Split` steps
# of the behaviour `isolated`, as DeepSeek V3's, and gives the ids of Hugging Face tokenizers. `isolated` keeps the text
# between matches as pieces.
# What happens: pytorch-tokenizers 1.5.0 drops that text, without an error. A second step sees only what the first one
# matched: with the steps of DeepSeek V3, which begin with digits, "Hello 12 world" has no ids at all.
# Source of the expectation: the documentation of `Split` in tokenizers; DeepSeek-V3's tokenizer.json has these steps.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pytorch-tokenizers==1.5.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from pytorch_tokenizers.pytorch_tokenizers_cpp import HFTokenizer
from tokenizers import Regex, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

alphabet = sorted(ByteLevel.alphabet())
for name in ("pytorch-tokenizers", "tokenizers"):
    print(name, version(name))
found = []
for patterns in ([r"\p{N}{1,3}"], [r"\p{N}{1,3}", r" ?\p{L}+|\s+"]):
    tokenizer = Tokenizer(models.BPE({character: id_ for id_, character in enumerate(alphabet)}, []))
    steps = [Split(Regex(pattern), "isolated") for pattern in patterns]
    tokenizer.pre_tokenizer = Sequence([*steps, ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save("tokenizer.json")
    other = HFTokenizer()
    other.load("tokenizer.json")
    for text in ("Hello 12 world", "Hello"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
        found.append(tokenizer.decode(other.encode(text, 0, 0)))
        print(patterns, repr(text), "pytorch-tokenizers:", repr(found[-1]))
assert found == ["12", "", "", ""], "the behaviour changed"
PYTHON
