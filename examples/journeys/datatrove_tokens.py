"""datatrove's DocumentTokenizer, with this library's engine.

    python examples/journeys/datatrove_tokens.py stories.jsonl tokenizer.json tokens [END]

Reads documents of a JSONL file (`text`) and writes datatrove's token files. The tokenizer is any
file or folder that `Tokenizer.load` reads. END is the special token after each document; by default
the one that `find_document_end` knows.
"""

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer

from tokenizer_core import Tokenizer
from tokenizer_core.spec.document_end import find_document_end


class Encoded(NamedTuple):
    """What datatrove reads of an encoding."""

    ids: list[int]


class Backend:
    """The methods of Hugging Face's `tokenizers` that datatrove calls."""

    def __init__(self, tokenizer: Tokenizer, end: int | None) -> None:
        self._tokenizer, self._ends = tokenizer, [] if end is None else [end]

    def get_vocab_size(self) -> int:
        """The largest id + 1: it decides whether an id takes two bytes or four."""
        return self._tokenizer.n_vocab

    def encode_batch(self, texts: Sequence[str]) -> list[Encoded]:
        """The ids of each text and the end of the document."""
        return [Encoded([*ids, *self._ends]) for ids in self._tokenizer.encode_batch(texts)]


class ExactDocumentTokenizer(DocumentTokenizer):
    """`DocumentTokenizer` that encodes with `tokenizer_core`."""

    @cached_property
    def tokenizer(self) -> Backend:
        """The tokenizer, loaded in the process that uses it."""
        tokenizer = Tokenizer.load(self.tokenizer_name_or_path)
        end = None
        if self.eos_token:
            end = tokenizer.special_tokens[self.eos_token]
        return Backend(tokenizer, end)


def main() -> None:
    """Tokenize one file."""
    documents, tokenizer, output, *named = sys.argv[1:]
    end = named[0] if named else find_document_end(Tokenizer.load(tokenizer).spec)[0]
    step = ExactDocumentTokenizer(output, tokenizer, eos_token=end, shuffle_documents=False)
    LocalPipelineExecutor([JsonlReader(documents), step], logging_dir=f"{output}-logs").run()


if __name__ == "__main__":
    main()
