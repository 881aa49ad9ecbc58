#!/bin/sh
# One would expect: a chunk of docling's HybridChunker fits the embedding model that it was made for, whole.
# What happens: docling-core 2.104.0 compares a count without special tokens with the model's `max_seq_length`, which
# includes them. A full chunk has [CLS] and [SEP] more than fit, so each embedding leaves out the last two tokens of its
# text, and no chunk has them: with 32 tokens, as here, two words of every 32. No error; the embedder truncates in silence.
# Source of the expectation: docling-core takes max_tokens from `max_seq_length` of sentence_bert_config.json by default
# (HuggingFaceTokenizer), and calls the chunker "tokenization-aware"; sentence-transformers truncates to that length
# with special tokens. semchunk, another chunker, subtracts them from its default size.
# docling-core 2.104.0, transformers 5.24.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'docling-core[chunking]==2.104.0' transformers==5.24.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON' 2>"$work/log" || { cat "$work/log"; exit 1; }
from importlib.metadata import version

from docling_core.transforms.chunker.hybrid_chunker import HybridChunker
from docling_core.transforms.chunker.tokenizer.huggingface import HuggingFaceTokenizer
from docling_core.types.doc import DocItemLabel, DoclingDocument
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

MAX_SEQ_LENGTH = 32
print("docling-core", version("docling-core"))
words = [f"w{number}" for number in range(200)]
vocab = {word: index for index, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *words])}
backend = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
backend.pre_tokenizer = Whitespace()
backend.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
model = PreTrainedTokenizerFast(
    tokenizer_object=backend, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", model_max_length=MAX_SEQ_LENGTH
)
document = DoclingDocument(name="words")
document.add_text(label=DocItemLabel.TEXT, text=" ".join(words))
chunker = HybridChunker(tokenizer=HuggingFaceTokenizer(tokenizer=model, max_tokens=MAX_SEQ_LENGTH))
lost = []
for chunk in chunker.chunk(document):
    text = chunker.contextualize(chunk)
    whole, seen = model(text)["input_ids"], model(text, truncation=True)["input_ids"]
    missing = text.split()[len(seen) - 2 :]
    lost += missing
    print("tokens", len(whole), "of", MAX_SEQ_LENGTH, "not embedded", missing)
assert lost == [f"w{number}" for number in range(192) if number % 32 > 29], "the behaviour changed"
PYTHON
