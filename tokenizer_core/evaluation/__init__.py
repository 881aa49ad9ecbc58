"""Judging tokenizers: what they make of text, what is in their vocabulary, how two of them differ.

    from tokenizer_core.evaluation import TextFile, build_report

`measures`, `words`, `vocabulary` and `unreachable` define the figures; `corpus_samples` and
`parallel_lines` say what text they are taken on; `report` puts them together, and `report_table`
and `report_page` show it. `spec_diff` and `text_diff` compare two tokenizers.
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
