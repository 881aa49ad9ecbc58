#!/bin/sh
# One would expect: the text that mlx-lm streams for generated ids is the text its tokenizer decodes them to.
# What happens: for vocabularies of bytes (GPT-2, Llama 3, Qwen) the first blank is dropped, so a prompt "Hello" goes on
# as "world" without a blank between; and the byte 0 becomes the letter that stands for it in the file, "Ā".
# Source of the expectation: the docstring of StreamingDetokenizer in mlx_lm/tokenizer_utils.py ends: after finalize(),
# text "should match tokenizer.decode(detokenizer.tokens)". `load` chooses the class that differs by the decoder.
# mlx-lm 0.32.2, 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet mlx-lm==0.32.2 'mlx[cpu]==0.32.4' transformers==5.24.0 tokenizers==0.23.3
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

from mlx_lm.tokenizer_utils import load
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
bpe = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained("folder")
tokenizer = load(Path("folder"))
print("mlx-lm", version("mlx-lm"), type(tokenizer.detokenizer).__name__)
streamed = []
for text in (" world", "  two", "a  b", "a\0b"):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    detokenizer = tokenizer.detokenizer
    for id_ in ids:
        detokenizer.add_token(id_)
    detokenizer.finalize()
    streamed.append(detokenizer.text)
    print("decoded:", repr(text), " streamed:", repr(streamed[-1]))
assert streamed == ["world", " two", "a  b", "a\u0100b"], "the behaviour changed"
PYTHON
