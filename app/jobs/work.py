"""What the kinds of jobs do, in words and numbers: for progress, and for what is said of failures.

It stands alone because the server's side of a child process says the same of every kind, in its
words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class JobWork:
    """What one kind of job does.

    `process` and `agent` name its child in sentences and in codes; `less_text` and `less_memory`
    are what to do where it takes too much, `when_lost` where its server was killed.
    `progress_of_phase`: from where to where each phase brings the progress. `resumes`: what is
    there when its process dies is gone on from.
    """

    process: str
    agent: str
    less_text: str
    less_memory: str
    when_lost: str
    progress_of_phase: Mapping[str, tuple[float, float]]
    resumes: bool


TRAINING: Final = JobWork(
    process="training",
    agent="trainer",
    less_text="train on less text",
    less_memory="train on a part of the corpus",
    when_lost="post the request again. A version it had published stands in /tokenizers and can be "
    "promoted",
    progress_of_phase={
        "download": (0.0, 0.2),
        "count": (0.0, 0.5),
        "merge": (0.4, 0.5),
        "learn": (0.5, 0.95),
    },
    resumes=False,
)
ENCODING: Final = JobWork(
    process="encoding",
    agent="encoder",
    less_text="encode fewer corpora in one job",
    less_memory="ask for fewer workers",
    when_lost="it was begun again as often as a job is. Ask for fewer workers, or give the "
    "machine more memory, and post the request again",
    progress_of_phase={"encode": (0.0, 0.9), "shuffle": (0.9, 0.95)},
    resumes=True,
)
WORK_OF_KIND: Final[Mapping[str, JobWork]] = {"train": TRAINING, "encode": ENCODING}
