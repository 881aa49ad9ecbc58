#!/bin/sh
# One would expect: chunks without overlap, joined, are the text, and start_index and end_index of each are where it is
# in the text.
# What happens: if a token ends inside a character, chonkie 1.7.0 decodes each chunk alone: the character is replaced by
# U+FFFD in both. The indices are sums of the lengths of these texts, so from there on they are those of another text.
# It is so in TokenChunker and in RecursiveChunker, which cuts at tokens where a text has no rule to cut it by.
# Source of the expectation: chonkie's own Chunk, "start_index: The starting index of the chunk in the original text",
# and the same calls with an English text.
# chonkie 1.7.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet chonkie==1.7.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import logging
from importlib.metadata import version

from chonkie import RecursiveChunker, TokenChunker
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

logging.disable(logging.CRITICAL)
TEXTS = {
    "English": "A text of one hundred words and more. " * 20,
    "Japanese": "東京は日本の首都です。人口はおよそ千四百万人です。" * 8,
}
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
tokenizer.train_from_iterator(TEXTS.values(), trainer)
for name in ("chonkie", "tokenizers"):
    print(name, version(name))
wrong = {}
for chunker in (TokenChunker, RecursiveChunker):
    options = {"chunk_overlap": 0} if chunker is TokenChunker else {}
    for name, text in TEXTS.items():
        chunks = chunker(tokenizer=tokenizer, chunk_size=16, **options).chunk(text)
        n_wrong = sum(text[chunk.start_index : chunk.end_index] != chunk.text for chunk in chunks)
        joins = "".join(chunk.text for chunk in chunks) == text
        wrong[chunker.__name__, name] = n_wrong
        print(chunker.__name__, name, len(chunks), "chunks, at a wrong place:", n_wrong, "joined:", joins)
        assert joins == (n_wrong == 0)
assert all((count > 0) == (name == "Japanese") for (_, name), count in wrong.items()), "the behaviour changed"
PYTHON
