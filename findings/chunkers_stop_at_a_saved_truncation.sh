#!/bin/sh
# One would expect: a chunker of 40 tokens cuts a text of 390 tokens into chunks of at most 40, which hold all of it.
# What happens: if the `tokenizer.json` was saved with a truncation, as those of sentence-transformers and SmolLM are,
# tokenizers counts no further. chonkie 1.7.0's TokenChunker gives the first 16 tokens and drops the rest of the text;
# its RecursiveChunker, semantic-text-splitter 0.33.1 and semchunk 3.2.5 give one chunk of the whole text, as 16 tokens.
# No error, no warning. langchain-text-splitters 1.1.3, through transformers, which ignores the saved truncation, gives
# ten chunks.
# Source of the expectation: their descriptions of the size ("Maximum number of tokens per chunk" in chonkie, "The
# maximum number of tokens a chunk may contain" in semchunk), and the same calls after `no_truncation()`.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet chonkie==1.7.0 semantic-text-splitter==0.33.1 semchunk==3.2.5 \
    langchain-text-splitters==1.1.3 tokenizers==0.23.3 transformers==5.24.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import semchunk
from chonkie import RecursiveChunker, TokenChunker
from langchain_text_splitters import RecursiveCharacterTextSplitter
from semantic_text_splitter import TextSplitter
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

SIZE = 40
CHUNKERS = {
    "chonkie.TokenChunker": lambda t: [chunk.text for chunk in TokenChunker(tokenizer=t, chunk_size=SIZE)(text)],
    "chonkie.RecursiveChunker": lambda t: [chunk.text for chunk in RecursiveChunker(tokenizer=t, chunk_size=SIZE)(text)],
    "semantic-text-splitter": lambda t: TextSplitter.from_huggingface_tokenizer(t, SIZE).chunks(text),
    "semchunk": lambda t: semchunk.chunkerify(t, SIZE)(text),
    "langchain-text-splitters": lambda t: RecursiveCharacterTextSplitter.from_huggingface_tokenizer(
        PreTrainedTokenizerFast(tokenizer_object=t), chunk_size=SIZE, chunk_overlap=0
    ).split_text(text),
}
for name in ("chonkie", "semantic-text-splitter", "semchunk", "langchain-text-splitters", "tokenizers"):
    print(name, version(name))

alphabet = sorted(ByteLevel.alphabet())
tokenizer = Tokenizer(BPE({character: index for index, character in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
tokenizer.decoder = ByteLevelDecoder()
tokenizer.enable_truncation(16)
tokenizer.save("tokenizer.json")
text = "".join(f"Sentence number {number}. " for number in range(20))  # one token a character

found = {}
for name, chunk in CHUNKERS.items():
    sizes = []
    for is_truncated in (True, False):
        loaded = Tokenizer.from_file("tokenizer.json")
        if not is_truncated:
            loaded.no_truncation()
        sizes.append([len(part) for part in chunk(loaded)])
    found[name] = sizes[0]
    print(name, "truncation", sizes[0], "none", sizes[1])
    assert max(sizes[1]) <= SIZE
    assert sum(sizes[1]) >= len(text) - 20  # some strip white space
assert found.pop("chonkie.TokenChunker") == [16], "the behaviour changed"
assert max(found.pop("langchain-text-splitters")) <= SIZE, "the behaviour changed"
assert [len(sizes) for sizes in found.values()] == [1, 1, 1], "the behaviour changed"
PYTHON
