"""Fuzz targets: everything that reads bytes from a stranger. A target takes any bytes.

A target ends normally, or with one of the errors that its reader promises. Any other exception is a
finding, and so is a broken promise about accepted input. Targets do not import the fuzzer, so that
the ordinary suite also runs their seeds and the earlier findings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from tests.fuzz import file_targets, service_targets
from tokenizer_client.schemas.tokens import BatchTooLargeError
from tokenizer_core.errors import CorpusError, FormatError, InvalidSpecError, TokenizerCoreError
from tokenizer_service.egress import CorpusUrlError
from tokenizer_service.http.problem import Problem, problem_response
from tokenizer_service.jobs.errors import JobsError
from tokenizer_service.rendering.problems import problem_of

_FILE: Final = (FormatError, InvalidSpecError)

TARGETS: Final[dict[Callable[[bytes], None], tuple[type[Exception], ...]]] = {
    file_targets.plain_pickle: (FormatError,),
    file_targets.tiktoken: _FILE,
    file_targets.tokenizer_json: _FILE,
    file_targets.manifest: _FILE,
    file_targets.corpus_address: (CorpusError,),
    service_targets.request_json: (),
    service_targets.request_body: (Problem, JobsError),
    service_targets.ids_body: (Problem, BatchTooLargeError),
    service_targets.request_headers: (),
    service_targets.corpus_url: (CorpusUrlError,),
}
"""Each target, and the errors that it may end with."""

NAMES: Final = {target.__name__: target for target in TARGETS}


def try_target(name: str, data: bytes) -> bool:
    """Give `data` to the target; return whether it was accepted. Raises what is a finding."""
    target = NAMES[name]
    try:
        target(data)
    except TARGETS[target] as error:
        _check_told(error)
        return False
    return True


def _check_told(error: Exception) -> None:
    """A refusal can be reported: in a response that blames the client, or in a line of a log."""
    str(error).encode()
    if isinstance(error, Problem | JobsError):
        problem = problem_of(error)
        assert problem is not None
        answer = problem_response(problem, {"type": "http", "headers": []})
        assert 400 <= answer.status_code < 500
        json.loads(bytes(answer.body))
    elif isinstance(error, TokenizerCoreError):
        assert str(error).isprintable()
