#!/bin/sh
# One would expect: what a model writes under a regular expression of outlines matches that expression.
# What happens: outlines 1.3.3 takes each token that begins with U+2581 for its text with one more space. That suits
# Llama's decoder, which takes a space away, and not Gemma's: `▁a` is ` a`, and outlines counts two spaces. `is a`
# cannot be compiled for such a vocabulary, and under `is  a`, with two spaces, the model writes `is a`.
# Source of the expectation: `decode` of the same tokenizer, and the ids that it gives for `is a`.
# outlines 1.3.3, outlines_core 0.2.14, transformers 5.24.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet outlines==1.3.3 outlines-core==0.2.14 transformers==5.24.0 tokenizers==0.23.3
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
import logging
import re
from importlib.metadata import version

from outlines.backends.outlines_core import OutlinesCoreBackend
from outlines.models.transformers import TransformerTokenizer
from outlines_core import Guide, Index
from transformers import GemmaTokenizer

logging.disable(logging.CRITICAL)
entries = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
entries += ["▁", "a", "i", "s", "is", "▁a"]
vocab = {entry: id_ for id_, entry in enumerate(entries)}
gemma = GemmaTokenizer(vocab=vocab, merges=[("i", "s"), ("▁", "a")])
ids = gemma.encode("is a", add_special_tokens=False)
written = gemma.decode(ids)
assert written == "is a", written
convert = TransformerTokenizer(gemma).convert_token_to_string
vocabulary = OutlinesCoreBackend.create_outlines_core_vocabulary(
    vocab, gemma.eos_token_id, gemma.eos_token, convert
)
for name in ("outlines", "outlines_core", "transformers"):
    print(name, version(name))
print("the model writes", repr(written), "with", gemma.convert_ids_to_tokens(ids))
print("outlines reads", [convert(token) for token in gemma.convert_ids_to_tokens(ids)])
accepted = {}
for expression in ("is a", "is  a"):
    try:
        guide = Guide(Index(expression, vocabulary))
        accepted[expression] = all(id_ in guide.get_tokens() and guide.advance(id_) for id_ in ids)
    except ValueError as error:
        accepted[expression] = None
        print(repr(expression), "is refused:", str(error)[:90])
    matches = re.fullmatch(expression, written) is not None
    print(repr(expression), "outlines allows these ids:", accepted[expression], "- the text matches:", matches)
assert accepted == {"is a": None, "is  a": True}, "the behaviour changed"
PYTHON
