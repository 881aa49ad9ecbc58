"""Finds and checks the inputs that a request for a job names.

A training request names its corpus in one of four ways; an encoding request names corpora and a
tokenizer. This module turns them into files (and URLs, which the child process downloads). It does
every check that is possible before the job starts, so that a job does not fail after ten hours for
a reason that was known in the first second. It reads the disk: call it from a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from tokenizer_client.schemas.jobs import TrainRequest, find_document_separator
from tokenizer_client.schemas.token_files import EncodeCorpusRequest
from tokenizer_core.corpus import ConversationEncoder, TokenFilesPlan, plan_token_files
from tokenizer_core.corpus.token_plan import specials_of_documents
from tokenizer_core.documents import DEFAULT_FIELD, DEFAULT_MAX_BAD, format_of_name
from tokenizer_core.errors import ChatError, TokenFilesPlanError, UnknownSpecialTokenError
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_service.egress import CorpusUrlError, ListedHost, parse_corpus_url
from tokenizer_service.jobs.corpora import CorpusStore
from tokenizer_service.jobs.errors import (
    CorpusNotFoundError,
    CorpusReplacedError,
    InvalidInputsError,
)
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.input_files import (
    InputChangedError,
    InputFile,
    InputPathError,
    find_input_file,
    reopen_input_file,
)
from tokenizer_service.serving.live_tokenizer import LiveTokenizer
from tokenizer_service.settings import Settings

Found = TypeVar("Found")

_CODES: Final = {
    "input_paths": "invalid_corpus_path",
    "input_urls": "invalid_corpus_url",
    "corpus_ids": "corpus_not_found",
    "further_corpora": "corpus_not_found",
}
_TWICE: Final = "it is named twice, and each is read once; leave one out"
_OF_PLAN: Final = (
    *("layout", "dtype", "tokens_per_shard", "begin_of_document", "end_of_document", "seed"),
    *("max_length", "over_length"),
)
"""Fields of the request that are arguments of `plan_token_files`."""

_SAMPLE_BYTES: Final = 1 << 16
_SAMPLED_CORPORA: Final = 8
_PACKED_IDS_PER_BYTE: Final = 1.0
"""A guess: an id stands for about four bytes of text, which packs to a third or a quarter."""

# Training


def find_training_inputs(
    asked: TrainRequest, settings: Settings, corpora: CorpusStore, folder: JobFolder
) -> list[InputFile]:
    """The files of a request, each once; writes inline documents to `folder`. Empty if it names
    URLs.
    """
    if asked.documents is not None:
        folder.make()
        separator = find_document_separator(asked.special_tokens)
        return folder.write_documents(asked.documents, separator)
    if asked.input_urls is not None:
        hosts = [ListedHost.parse(entry) for entry in settings.corpus_url_hosts]
        parse = partial(parse_corpus_url, hosts=hosts, s3_prefixes=settings.corpus_s3_prefixes)
        _each("input_urls", asked.input_urls, parse)
        return []
    if asked.corpus_ids is not None:
        field, names = "corpus_ids", asked.corpus_ids
        find = partial(_find_corpus, corpora, asked.skip_bad)
    else:
        roots = settings.corpus_roots
        field, names = "input_paths", asked.input_paths or []
        find = partial(find_input_file, roots)
    files = list(dict.fromkeys(_each(field, names, find)))
    if not any(file.size_bytes for file in files):
        raise InvalidInputsError(
            "empty_corpus",
            "The corpus files are empty; there is nothing to learn from.",
            [(f"/{field}", "every file is empty")],
        )
    return files


def _find_corpus(corpora: CorpusStore, skip_bad: bool, corpus_id: str) -> InputFile:
    try:
        file = corpora.find_file(corpus_id)
    except (CorpusNotFoundError, InputPathError):
        raise InputPathError("there is no corpus with this id; see GET /corpora") from None
    if file.not_utf8_at is not None and not skip_bad:
        raise InvalidInputsError(
            "invalid_corpus",
            f"The corpus {file.name} is not UTF-8: its text is wrong at byte {file.not_utf8_at}. "
            f"Convert it to UTF-8 and upload it again, or set skip_bad, which leaves out the "
            f"documents that are not.",
        )
    return file


def _each(
    field: str, names: Sequence[str], find: Callable[[str], Found], *read: str
) -> list[Found]:
    """The results of `find` for all names; raises one error for all names that it refuses, that
    are there twice or in `read`."""
    found: list[Found] = []
    wrong: list[tuple[str, str]] = []
    seen = {*read}
    for index, name in enumerate(names):
        try:
            if name in seen:
                raise InputPathError(_TWICE)
            seen.add(name)
            found.append(find(name))
        except (InputPathError, CorpusUrlError) as error:
            wrong.append((f"/{field}/{index}", str(error)))
    if wrong:
        index_text = wrong[0][0].rpartition("/")[2]
        code = "invalid_request" if wrong[0][1] == _TWICE else _CODES[field]
        raise InvalidInputsError(code, f"{field}[{index_text}]: {wrong[0][1]}.", wrong)
    return found


# Encoding


def find_encoding_inputs(
    asked: EncodeCorpusRequest, corpus_id: str, corpora: CorpusStore
) -> list[InputFile]:
    """The corpora of a request, in order; raises CorpusNotFoundError for that of the path."""
    find = partial(_find_corpus, corpora, asked.skip_bad)
    try:
        first = find(corpus_id)
    except InputPathError:
        raise CorpusNotFoundError from None
    files = [first, *_each("further_corpora", asked.further_corpora, find, corpus_id)]
    if not any(file.size_bytes for file in files):
        raise InvalidInputsError(
            "empty_corpus", "The corpora are empty; there is nothing to encode."
        )
    return files


def plan_encoding(
    asked: EncodeCorpusRequest, live: LiveTokenizer, files: Sequence[InputFile]
) -> tuple[TokenFilesPlan, dict[str, Any]]:
    """The plan for these files, and the arguments from which the child rebuilds it."""
    tokenizer = live.tokenizer
    known = tokenizer.spec.special_tokens
    is_chat = asked.format == "chat"
    for field in ("begin_of_document", "end_of_document"):
        token = getattr(asked, field)
        if token and token not in known:
            raise UnknownSpecialTokenError(field)
    for field in ("allowed_special", "disallowed_special"):
        names = getattr(asked, field)
        if isinstance(names, frozenset) and not names <= set(known):
            raise UnknownSpecialTokenError(field)
    is_text = is_chat or all(is_text_format(kind) for kind in _formats(asked, files))
    allowed: Any = "ordinary" if asked.added_tokens == "none" else asked.allowed_special
    disallowed: Any = asked.disallowed_special
    specials = specials_of_documents(allowed, disallowed, is_text=is_text)
    arguments = {
        **{name: getattr(asked, name) for name in _OF_PLAN},
        **{name: n if isinstance(n, str) else sorted(n) for name, n in specials.items()},
        "loss_mask": is_chat,
    }
    template, templates = asked.chat_template, tokenizer.chat_templates
    if template is not None and template not in templates:
        listed = f"it has {', '.join(templates)}" if templates else "it has none"
        reason = (
            f"the tokenizer has no chat template of this name, {listed}; a request names a "
            f"template and never holds its source; `tokenizer import --chat-template FILE` adds one"
        )
        raise InvalidInputsError(
            "chat_template_missing", f"/chat_template: {reason}.", [("/chat_template", reason)]
        )
    try:
        if is_chat:
            ConversationEncoder(tokenizer, **conversation_options(asked))
        return plan_token_files(tokenizer, **arguments, ref=live.ref), arguments
    except (TokenFilesPlanError, ChatError) as error:
        raise InvalidInputsError(error.code, f"{error}.") from None


def conversation_options(asked: EncodeCorpusRequest) -> dict[str, Any]:
    """The options of the library's `ConversationEncoder`."""
    return {
        "loss": asked.loss,
        "chat_template": asked.chat_template,
        "turn_ends": list(asked.turn_ends),
    }


def max_bad(asked: EncodeCorpusRequest | TrainRequest) -> float | None:
    """The library's `max_bad`."""
    if not asked.skip_bad:
        return None
    return DEFAULT_MAX_BAD if asked.max_bad is None else asked.max_bad


def corpus_format(
    asked: EncodeCorpusRequest | TrainRequest, files: Sequence[InputFile], separator: str = ""
) -> dict[str, Any]:
    """The arguments of the library's `CorpusFormat`, which describes how files hold documents; a
    dict of fields is by the names of the files. `separator` is the default.

    Raises:
        InvalidInputsError: the request has a field, and all files are text; it has a separator, and
            no file is text.
    """
    are_text = [is_text_format(kind) for kind in _formats(asked, files)]
    if asked.field is not None and are_text and all(are_text):
        raise field_of_text()
    if asked.separator and are_text and not any(are_text):
        raise InvalidInputsError(
            "corpus_separator",
            "A separator is of plain text, and the corpus is JSON lines or Parquet, in which a "
            "line or row is a document; omit separator, or set format to text.",
            [("/separator", "the corpus has no plain text")],
        )
    formats = {file.format for file in files}
    if asked.format == "chat" and any(name and name.startswith("txt") for name in formats):
        raise InvalidInputsError(
            "corpus_format",
            "Conversations are JSON lines or Parquet, and a corpus was uploaded as text; upload it "
            "with ?format=jsonl.",
        )
    # Other files have names that end in their formats (see `name_inputs`), and are checked.
    known = next(iter(formats)) if len(formats) == 1 and all(f.is_told for f in files) else None
    if asked.format == "chat":
        return {"format": known, "field": None, "separator": None}
    own = {file.name: file.text_field or DEFAULT_FIELD for file in files}
    named = [asked.field] if isinstance(asked.field, str) else asked.field
    fields = list(dict.fromkeys(named or own.values() or [DEFAULT_FIELD]))
    several: Any = fields if named else own
    return {
        "format": "txt" if asked.format == "text" else asked.format or known,
        "field": fields[0] if len(fields) == 1 else several,
        "separator": (separator if asked.separator is None else asked.separator) or None,
    }


def _formats(asked: EncodeCorpusRequest | TrainRequest, files: Sequence[InputFile]) -> list[str]:
    """The format of each file or URL, as the request, the upload or the name says it."""
    named = [(file.format, file.name) for file in files]
    for url in getattr(asked, "input_urls", None) or ():
        named.append((None, url.partition("?")[0]))
    return [asked.format or known or format_of_name(name) or "txt" for known, name in named]


def is_text_format(name: str) -> bool:
    """Whether a format, as a request or a name says it, is plain text, also packed."""
    return name.partition(".")[0] in ("txt", "text")


def field_of_text() -> InvalidInputsError:
    """The error for a field of plain text: ignored, it would hide a wrong format."""
    return InvalidInputsError(
        "corpus_field",
        "A field is of JSON lines or Parquet, and the corpus is text; omit field, or set format.",
        [("/field", "the corpus is text, which has no fields")],
    )


def estimate_bytes(files: Sequence[InputFile], tokenizer: Tokenizer, plan: TokenFilesPlan) -> int:
    """Estimate the bytes of the token files.

    Assumes that all text has the ids per byte of the first 64 KiB of the eight largest corpora.
    """
    largest = sorted(files, key=lambda file: file.size_bytes, reverse=True)[:_SAMPLED_CORPORA]
    n_sampled = sum(file.size_bytes for file in largest)
    n_ids = sum(
        file.size_bytes * _ids_per_byte(file, tokenizer) for file in largest if file.size_bytes
    )
    n_bytes = sum(file.size_bytes for file in files)
    bytes_per_id = plan.disk_dtype.itemsize + plan.loss_mask
    if plan.layout_name == "parquet":  # input_ids and labels, which pack to about four bytes
        bytes_per_id += 4
    return round(n_bytes * n_ids / n_sampled * bytes_per_id)


def _ids_per_byte(file: InputFile, tokenizer: Tokenizer) -> float:
    """The ids of the beginning per byte of the stored file; of a packed file, a guess."""
    if file.format not in (None, "txt", "jsonl"):
        return _PACKED_IDS_PER_BYTE
    try:
        descriptor = reopen_input_file(file)
    except InputChangedError:
        raise CorpusReplacedError from None
    try:
        sample = os.read(descriptor, _SAMPLE_BYTES)
    finally:
        os.close(descriptor)
    text = sample.decode(errors="ignore")  # the sample may end inside a character
    return tokenizer.count(text, allowed_special="all") / len(sample)
