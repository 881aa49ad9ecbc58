"""The table of errors: each domain error class has one row, and each row gives one document."""

import errno
import inspect

from tokenizer_client.schemas.tokens import BatchTooLargeError
from tokenizer_core import errors as core
from tokenizer_service.access import errors as access
from tokenizer_service.jobs import errors as jobs
from tokenizer_service.jobs.database import JobDatabaseError, JobDatabaseUnusableError
from tokenizer_service.responses import errors as responses
from tokenizer_service.responses.problem_table import TABLE, problem_of
from tokenizer_service.serving import errors as serving

ROOTS = {
    access.AccessError, access.LimitError, jobs.JobsError, jobs.LimitError,
    responses.ResponseError, serving.ServingError,
}  # fmt: skip

PLACED = responses.PlacedError(core.SpecialTokenForbiddenError("secret"), "/text")
CASES = [
    (access.KeyRequiredError("an admin key"), 401, "key_required", None, "an admin key"),
    (access.AdminKeyRequiredError(), 403, "admin_key_required", None, "This is a read key"),
    (access.OverloadedError("wait for a thread"), 503, "overloaded", "1", "wait for a thread; try"),
    (access.TooManyConnectionsError(7), 503, "too_many_connections", "1", "of 7 connections"),
    (access.ShuttingDownError(), 503, "shutting_down", "1", "is shutting down"),
    (access.BodyTooLargeError(10, 11), 413, "body_too_large", None, "than 10 bytes. Send less"),
    (access.TooManyContainersError(7), 413, "batch_too_large", None, "7 arrays and objects"),
    (access.TooManyValuesError(7), 413, "batch_too_large", None, "7 strings, arrays and"),
    (access.LineTooLongError(40, 3), 413, "line_too_long", None, "Line 3 is longer than 40"),
    (BatchTooLargeError(70_000), 413, "batch_too_large", None, "at most 65536 items"),
    (access.TooManyTokensError(2, 3), 413, "too_many_tokens", None, "3 tokens and max_tokens is 2"),
    (access.TooManyDetailedTokensError(2, 3), 413, "too_many_detailed_tokens", None, "at most 2"),
    (access.DecodedTextTooLargeError(2, 3), 413, "decoded_text_too_large", None, "than 2 bytes"),
    (access.TooManyChunksError(2, 3), 413, "too_many_chunks", None, "at most 2 chunks"),
    (access.ChunksTooLargeError(2, 3, 1), 413, "chunks_too_large", None, "repeat 3 bytes"),
    (access.RequestsTooLargeError(2), 413, "requests_too_large", None, "more than 2 bytes"),
    (responses.InvalidFieldError("/a", "b"), 422, "invalid_request", None, "/a: b"),
    (responses.UnknownTokenError("No id 7."), 404, "unknown_token_id", None, "No id 7."),
    (responses.NotUtf8Error("/tokens"), 422, "not_utf8", None, "/tokens: the bytes of these ids"),
    (PLACED, 422, "special_token_forbidden", None, "disallowed_special forbids"),
    (access.WorkTooLongError(2.5), 413, "work_too_long", None, "more than 2.5 seconds; send less"),
    (serving.NoTokenizerError("Starting."), 503, "no_tokenizer", "5", "Starting."),
    (serving.SwapTimeoutError(30.0, 2), 503, "swap_timeout", "30", "2 server processes"),
    (serving.SwapFailedError("x"), 503, "swap_failed", None, "(x)"),
    (serving.PromotionInProgressError(), 409, "promotion_in_progress", None, "in progress"),
    (serving.DiskError(OSError(errno.ENOSPC, "/secret")), 507, "disk_full", None, "disk is full"),
    (serving.DiskError(OSError(errno.EIO, "/secret")), 503, "storage_failed", "30", "the log"),
    (serving.FormatCannotHoldError("No."), 422, "format_cannot_hold_it", None, "No."),
    (jobs.QueueFullError(3, 2), 409, "training_queue_full", "30", "one may run and 2 may wait"),
    (jobs.JobRunningError(), 409, "training_busy", "30", "TOKENIZER_TRAIN_QUEUE=0"),
    (jobs.IdempotencyConflictError("j"), 422, "idempotency_key_reused", None, "to job j,"),
    (jobs.ImportRunningError(), 409, "import_running", "10", "is being imported"),
    (jobs.VocabularyImportError("invalid_file", "E {x}"), 422, "invalid_file", None, "E {x}"),
    (jobs.TooManyListenersError(64), 503, "too_many_listeners", "5", "GET /jobs/{id} instead"),
    (jobs.InvalidInputsError("empty_corpus", "E {x}."), 422, "empty_corpus", None, "E {x}."),
    (core.UnknownSpecialTokenError("a"), 422, "unknown_special_token", None, "a names what is"),
    (jobs.VersionInUseError("it is active"), 409, "tokenizer_in_use", None, "use: it is active."),
    (jobs.CorpusNotFoundError(), 404, "corpus_not_found", None, "see GET /corpora"),
    (jobs.CorpusExistsError(), 412, "corpus_exists", None, "If-None-Match: *"),
    (jobs.CorpusReplacedError(), 409, "corpus_changed", None, "just replaced"),
    (jobs.CorpusFormatError("x"), 415, "corpus_format", None, "The body is x. End the id in"),
    (jobs.CorporaQuotaError(10, 11), 413, "corpora_quota", None, "10 bytes. Remove one with"),
    (jobs.TokenFilesNotFoundError(), 404, "token_files_not_found", None, "GET /token-files."),
    (jobs.TokenFileNotFoundError(), 404, "file_not_found", None, "/token-files/{id} lists"),
    (jobs.TokenFilesExistError(), 409, "token_files_exist", None, "/token-files/{id}, or name"),
    (jobs.TokenFilesDamagedError("/secret"), 409, "token_files_corrupt", None, "fail their"),
    (jobs.TokenFilesQuotaError(10, 11), 413, "token_files_quota", None, "more than 10 bytes"),
    (jobs.DiskTooSmallError(10, 11), 507, "disk_full", None, "about 11 bytes, and 10 are free"),
    (JobDatabaseError("secret"), 503, "job_store_unavailable", "5", "at the moment"),
    (JobDatabaseUnusableError("/secret", "Do {x}."), 503, "job_database_unusable", None, "Do {x}."),
    (JobDatabaseError("secret", is_full=True), 507, "disk_full", None, "disk is full"),
    (JobDatabaseError("secret", is_read_only=True), 507, "disk_read_only", None, "is read-only"),
    (core.InvalidUtf8Error(7, is_cut=False), 400, "invalid_utf8", None, "offset 7"),
    (core.SplitTooSlowError("Slow."), 422, "split_too_slow", None, "Slow."),
    (core.PreTokenTooLongError("Long."), 413, "pre_token_too_long", None, "Long."),
    (core.ArtifactNotFoundError("secret"), 404, "tokenizer_not_found", None, "GET /tokenizers"),
    (core.ArtifactNameError("secret"), 422, "invalid_tokenizer_name", None, "up to 64 of a-z"),
    (core.ArtifactCorruptError("secret"), 409, "artifact_corrupt", None, "fails its verification"),
    (core.ArtifactStorageError(errno.EIO, "secret"), 503, "storage_failed", "30", "the log"),
    (core.ArtifactStorageError(errno.EROFS, "secret"), 507, "disk_read_only", None, "read-only"),
    (core.UnknownTokenIdError(3, 9, 5), 422, "unknown_token_id", None, "index 3"),
    (OSError(errno.EDQUOT, "/secret"), 507, "disk_full", None, "disk is full"),
    (MemoryError("secret"), 503, "out_of_memory", "5", "in smaller parts"),
]


def test_an_error_has_its_status_code_and_detail():
    for error, status, code, retry_after, words in CASES:
        problem = problem_of(error)
        assert (problem.status, problem.code) == (status, code)
        assert words in problem.detail
        assert problem.headers.get("Retry-After") == retry_after
        assert "secret" not in str(problem.document("r"))
    key_required = problem_of(access.KeyRequiredError("an admin key"))
    assert key_required.headers == {"WWW-Authenticate": 'Bearer realm="tokenizer"'}


def test_every_error_of_the_domain_has_a_row_and_a_case():
    for module in (access, responses, serving, jobs):
        kinds = {
            kind
            for _, kind in inspect.getmembers(module, inspect.isclass)
            if issubclass(kind, Exception) and kind.__module__ == module.__name__
        } - ROOTS
        assert kinds <= TABLE.keys()
        assert kinds <= {type(error) for error, *_ in CASES}


def test_other_errors_are_defects_and_subclasses_are_answered_as_their_base():
    class OwnError(core.CorpusError):
        code = "own"

    for error in (ValueError("x"), OSError(errno.EPIPE, "x"), KeyError("x")):
        assert problem_of(error) is None
    problem = problem_of(OwnError("Own."))
    assert (problem.status, problem.code, problem.detail) == (422, "own", "Own.")


def test_the_values_of_an_error_are_members_of_its_document():
    names = ("limit", "actual", "byte_offset", "errors")
    of_inputs = jobs.InvalidInputsError("empty_corpus", "x", [("/corpus_ids/0", "y")])
    wrong = {"pointer": "/corpus_ids/0", "detail": "y"}
    long = {"limit": 2, "actual": 3, "errors": [{"pointer": "/text", "detail": "3 tokens"}]}
    cases = [
        (jobs.CorporaQuotaError(10, 11), {"limit": 10, "actual": 11}),
        (jobs.QueueFullError(3, 2), {"limit": 2, "actual": 2}),
        (jobs.TooManyListenersError(64), {"limit": 64}),
        (core.InvalidUtf8Error(7, is_cut=True), {"byte_offset": 7}),
        (access.TooManyTokensError(2, 3, pointer="/text"), long),
        (BatchTooLargeError(70_000), {"limit": 65_536, "actual": 70_000}),
        (of_inputs, {"errors": [wrong]}),
    ]
    for error, expected in cases:
        problem = problem_of(error)
        document = problem.document("r")
        assert {name: document[name] for name in names if name in document} == expected
