#!/bin/sh
# One would expect: under a regular expression of outlines a model can write each text that matches, as its tokenizer
# encodes it, and no other.
# What happens: outlines 1.3.3 takes each token for its decoded text. In a byte-level vocabulary (GPT-2's, Qwen's, Llama
# 3's) many tokens are a part of a character, whose text is U+FFFD. So the ids of `café` are not allowed under
# `caf.`, of which the first byte of the last character is already the whole, and `café` itself cannot be compiled.
# Source of the expectation: outlines_core, whose Vocabulary takes bytes: with the bytes of the same tokens both
# expressions allow these ids.
# outlines 1.3.3, outlines_core 0.2.14, transformers 5.24.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet outlines==1.3.3 outlines-core==0.2.14 transformers==5.24.0 tokenizers==0.23.3
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
import logging
from importlib.metadata import version

from outlines.backends.outlines_core import OutlinesCoreBackend
from outlines.models.transformers import TransformerTokenizer
from outlines_core import Guide, Index, Vocabulary
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

logging.disable(logging.CRITICAL)
kept = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that are their own letters
others = [byte for byte in range(256) if byte not in kept]
letters = {chr(byte): byte for byte in kept} | {chr(256 + n): byte for n, byte in enumerate(others)}
bpe = Tokenizer(models.BPE(letters, []))
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
bpe.add_special_tokens(["<eos>"])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>")
ids = tokenizer.encode("café", add_special_tokens=False)
assert bytes(ids) == "café".encode()
convert = TransformerTokenizer(tokenizer).convert_token_to_string
vocabularies = {
    "outlines": OutlinesCoreBackend.create_outlines_core_vocabulary(
        tokenizer.get_vocab(), tokenizer.eos_token_id, "<eos>", convert
    ),
    "outlines_core with bytes": Vocabulary(
        tokenizer.eos_token_id, {bytes([byte]): [byte] for byte in range(256)}
    ),
}
for name in ("outlines", "outlines_core", "transformers"):
    print(name, version(name))
found = {}
for name, vocabulary in vocabularies.items():
    for expression in ("cafe", "caf.", "café"):
        try:
            guide = Guide(Index(expression, vocabulary))
            given = tokenizer.encode("cafe" if expression == "cafe" else "café")
            allowed = True
            for id_ in given:
                allowed = allowed and id_ in guide.get_tokens()
                if allowed:
                    guide.advance(id_)
        except ValueError:
            allowed = None
        found[name, expression] = allowed
        print(f"{name}: {expression!r} allows its ids:", "no, it is refused" if allowed is None else allowed)
assert list(found.values()) == [True, False, None, True, True, True], "the behaviour changed"
PYTHON
