"""Evaluates tokenizers: figures on text and of the vocabulary, and differences of two tokenizers.

    from tokenizer_core.evaluation import TextFiles, build_report

`measures` and `unreachable` define the figures, `samples` selects the text, and `report` combines
them. `diff` compares two tokenizers. `tables` and `pages` display the results.
"""

from tokenizer_core.evaluation.measures import save_token_bytes, token_byte_lengths
from tokenizer_core.evaluation.report import Report, build_report
from tokenizer_core.evaluation.samples import ParallelFile, TextFiles, parallel_files

__all__ = [
    "ParallelFile",
    "Report",
    "TextFiles",
    "build_report",
    "parallel_files",
    "save_token_bytes",
    "token_byte_lengths",
]
