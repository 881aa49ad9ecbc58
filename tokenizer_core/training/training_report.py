"""TrainingReport: what a training run did and what it cost, ready for a manifest.

Apart from the trainer so that what reads a report needs no trainer. May import nothing of
tokenizer_core.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Figures of one training run. Sizes in bytes, times in seconds of wall clock.

    - `engine` learned; `counting_engine` counted, None when the counts came from elsewhere.
    - `stopped_early`: why there are fewer merges than asked for, or None.
    - `peak_memory_bytes`: resident memory of this process and its workers together, at its
      highest; sampled five times a second. `peak_own_memory_bytes`: the most this process has
      ever held, before training too (`ru_maxrss`).
    - `longest_token_text`: the longest learned token, U+FFFD for what is not UTF-8 in it; cut off
      at 200 characters.
    - `bytes_per_token`: on the text that was trained on, special tokens left out.
    - `seconds_counting`: 0 when the counts came from a file.
    """

    engine: str
    counting_engine: str | None
    tie_break: str
    num_workers: int
    vocab_size: int
    n_merges: int
    stopped_early: str | None
    seconds_counting: float
    seconds_learning: float
    peak_memory_bytes: int
    peak_own_memory_bytes: int
    n_bytes: int
    n_documents: int
    n_pre_tokens: int
    n_distinct_pre_tokens: int
    n_tokens: int
    bytes_per_token: float
    longest_token_bytes: int
    longest_token_text: str

    def to_dict(self) -> dict[str, Any]:
        """The figures as a dict that `json.dumps` takes."""
        return asdict(self)
