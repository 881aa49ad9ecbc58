"""Checks on accepted input: a refusal inside them is a finding, like any other error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokenizer_core.errors import TokenizerCoreError
from tokenizer_service.http.problem import Problem
from tokenizer_service.jobs.errors import JobsError


@contextmanager
def taken() -> Iterator[None]:
    """The reader has accepted its input; nothing inside this block may refuse it."""
    try:
        yield
    except (TokenizerCoreError, Problem, JobsError) as error:
        raise AssertionError("what was taken is refused afterwards") from error
