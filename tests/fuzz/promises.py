"""What was taken must hold: a refusal from here on is a finding, like any other error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.http.problem import Problem
from app.jobs.errors import JobsError
from tokenizer_core.errors import TokenizerCoreError


@contextmanager
def taken() -> Iterator[None]:
    """The reader has taken its input; whatever is refused in here should not be."""
    try:
        yield
    except (TokenizerCoreError, Problem, JobsError) as error:
        raise AssertionError("what was taken is refused afterwards") from error
