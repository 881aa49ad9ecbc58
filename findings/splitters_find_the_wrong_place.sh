#!/bin/sh
# One would expect: the position that a splitter of texts gives for a chunk is where the chunk is in the text.
# What happens: two splitters search the text for the chunk. langchain-text-splitters 1.1.3 begins behind the chunk
# before it, less the overlap, which is a number of characters to it also if a tokenizer measures chunks
# (`from_huggingface_tokenizer`, `TokenTextSplitter`). So it begins too late: `start_index` is -1, or the place of a
# later copy. llama-index-core 0.14.25 begins one character behind the beginning of the chunk before it: in a text that
# repeats a notice or a heading, each `start_char_idx` is that of a copy further ahead, and the end of the text is in no
# chunk.
# Source of the expectation: langchain's docstring, "includes chunk's start index in metadata", and `len` as the
# measure, with which it holds; llama-index's TextNode, "Start char index of the node"; issue 29884 of
# langchain-ai/langchain.
# transformers 5.24.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet langchain-text-splitters==1.1.3 llama-index-core==0.14.25 transformers==5.24.0
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

from langchain_text_splitters import RecursiveCharacterTextSplitter
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

for name in ("langchain-text-splitters", "llama-index-core"):
    print(name, version(name))

words = [f"word{number}" for number in range(100)]
text = " ".join(words)
vocab = {word: index for index, word in enumerate([*words, "?"])}
tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
by_tokens = RecursiveCharacterTextSplitter.from_huggingface_tokenizer(
    PreTrainedTokenizerFast(tokenizer_object=tokenizer), chunk_size=20, chunk_overlap=5, add_start_index=True
)
by_characters = RecursiveCharacterTextSplitter(chunk_size=120, chunk_overlap=30, add_start_index=True)
for measure, splitter in (("characters", by_characters), ("tokens", by_tokens)):
    documents = splitter.create_documents([text])
    # No two chunks of this text are alike.
    true = [text.index(document.page_content) for document in documents]
    found = [document.metadata["start_index"] for document in documents]
    print("langchain, chunks of", measure, "are at", true, "and have", found)
    assert (found == true) is (measure == "characters"), "the behaviour changed"
assert found[1] == -1, "the behaviour changed"
found = [document.metadata["start_index"] for document in by_tokens.create_documents([f"{text} and again {text}"])]
print("langchain, the text twice: the first two chunks are at", true[:2], "and have", found[:2])
assert found[1] == true[1] + len(text) + len(" and again "), "the behaviour changed"

notice = "The same notice stands here on every page of the file."
text = "\n\n".join([notice] * 8)
splitter = SentenceSplitter(chunk_size=25, chunk_overlap=0, tokenizer=str.split)
nodes = splitter.get_nodes_from_documents([Document(text=text)])
assert "\n\n".join(node.text for node in nodes) == text
true, end = [], 0
for node in nodes:
    true.append(end)
    end += len(node.text) + 2
found = [node.start_char_idx for node in nodes]
print("llama-index, chunks are at", true, "and have", found)
assert true == [0, 112, 224, 336] and found == [0, 56, 112, 168], "the behaviour changed"
PYTHON
