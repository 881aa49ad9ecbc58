"""Evaluates tokenizers: figures on text and of the vocabulary, and differences of two tokenizers.

    from tokenizer_core.evaluation import TextFile, build_report

`measures` and `unreachable` define the figures, `samples` selects the text, and `report` combines
them. `diff` compares two tokenizers. `judge` trains small models (`language_model`) on their ids.
`tables` and the pages display the results. Only `language_model` imports torch.
"""

from tokenizer_core.evaluation.measures import save_token_bytes, token_byte_lengths
from tokenizer_core.evaluation.report import build_report
from tokenizer_core.evaluation.report_data import Report
from tokenizer_core.evaluation.samples import ParallelFile, SamplePiece, TextFile, parallel_files

__all__ = [
    "ParallelFile",
    "Report",
    "SamplePiece",
    "TextFile",
    "build_report",
    "parallel_files",
    "save_token_bytes",
    "token_byte_lengths",
]
