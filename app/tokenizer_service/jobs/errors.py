"""Errors of jobs: impossible requests, a full queue, corpora and token files."""

from __future__ import annotations

from collections.abc import Sequence


class JobsError(Exception):
    """A job, a corpus or token files cannot be used as requested. `code` is a stable word."""

    code: str


class LimitError(JobsError):
    """`actual` is more than `limit`."""

    def __init__(self, limit: int, actual: int) -> None:
        self.limit, self.actual = limit, actual
        super().__init__(f"{actual} is more than {limit}")


# Imports


class ImportRunningError(JobsError):
    """This process imports another vocabulary."""

    code = "import_running"


class VocabularyImportError(JobsError):
    """Uploaded files cannot be imported, for the reason `code`."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


# The queue


class QueueFullError(JobsError):
    """The queue holds `limit` jobs and accepts no other; `unfinished` jobs run or wait."""

    code = "training_queue_full"

    def __init__(self, unfinished: int, limit: int) -> None:
        self.unfinished, self.limit = unfinished, limit
        self.actual = max(0, unfinished - 1)
        super().__init__(f"{unfinished} jobs are running or queued")


class JobRunningError(JobsError):
    """A job is running, and the queue accepts no waiting jobs."""

    code = "training_busy"


class IdempotencyConflictError(JobsError):
    """The Idempotency-Key was used before with another request; `job_id` is that job."""

    code = "idempotency_key_reused"

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"the Idempotency-Key belongs to job {job_id}, whose request differs")


class TooManyListenersError(JobsError):
    """`limit` streams of job events are open in this process."""

    code = "too_many_listeners"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} streams of job events are open")


# What a request names


class InvalidInputsError(JobsError):
    """A request names inputs that a job cannot use.

    `wrong` holds a JSON pointer into the request and the reason for each.
    """

    def __init__(self, code: str, text: str, wrong: Sequence[tuple[str, str]] = ()) -> None:
        self.code, self.wrong = code, list(wrong)
        super().__init__(text)


class VersionInUseError(JobsError):
    """The version cannot be removed; the message says why."""

    code = "tokenizer_in_use"


# Corpora


class CorpusNotFoundError(JobsError):
    """No corpus has this id."""

    code = "corpus_not_found"


class CorpusExistsError(JobsError):
    """A corpus has this id, and the caller does not allow replacing it."""

    code = "corpus_exists"


class CorpusReplacedError(JobsError):
    """The corpus was replaced while the request was being checked."""

    code = "corpus_changed"


class CorpusFormatError(JobsError):
    """The content of an upload is not of the format that its id or the request says; the text says
    what it is, and what the request says."""

    code = "corpus_format"


class CorporaQuotaError(LimitError):
    """All corpora together would exceed their quota."""

    code = "corpora_quota"


# Token files


class TokenFilesNotFoundError(JobsError):
    """No token files have this id."""

    code = "token_files_not_found"


class TokenFileNotFoundError(JobsError):
    """The token files have no file of this name."""

    code = "file_not_found"


class TokenFilesExistError(JobsError):
    """Token files have this id, or an unfinished job will make them."""

    code = "token_files_exist"


class TokenFilesDamagedError(JobsError):
    """Token files fail their verification; the text says why, for the log."""

    code = "token_files_corrupt"


class TokenFilesQuotaError(LimitError):
    """All token files together would exceed their quota."""

    code = "token_files_quota"


class DiskTooSmallError(LimitError):
    """The token files need more bytes than the disk has free."""

    code = "disk_full"
