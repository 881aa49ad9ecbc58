"""What a request to encode corpora names, found, bound and tried: refused here, or it can work.

It stands alone because the tokenizer, the corpora and the disk are all asked before there is a
job, so that nobody learns in the tenth hour what could be known in the first second. Touches the
disk: call it from a thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from app.jobs.corpus_paths import (
    CorpusChangedError,
    CorpusFile,
    CorpusPathError,
    reopen_corpus_file,
)
from app.jobs.errors import CorpusReplacedError, InvalidInputsError, UnknownSpecialTokenError
from tokenizer_client.schemas.token_files import END_OF_TEXT
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.errors import TokenFilesPlanError

if TYPE_CHECKING:
    from app.jobs.corpus_store import CorpusStore
    from app.serving.live_tokenizer import LiveTokenizer
    from tokenizer_client.schemas.token_files import EncodeCorpusRequest
    from tokenizer_core.corpus import TokenFilesPlan
    from tokenizer_core.tokenizer import Tokenizer

_SAMPLE_BYTES: Final = 1 << 16
_SAMPLED_CORPORA: Final = 8
_DEFAULT_FIELD: Final = "text"


def find_encode_inputs(
    asked: EncodeCorpusRequest, corpus_id: str, corpora: CorpusStore
) -> list[CorpusFile]:
    """The corpora of a request, in order.

    Raises:
        CorpusNotFoundError: no corpus has the id `corpus_id`.
        InvalidInputsError: a further one does not exist or is named twice, or all are empty.
    """
    corpora.get(corpus_id)
    ids = [corpus_id, *asked.further_corpora]
    files = []
    for index, named in enumerate(ids):
        pointer = f"/further_corpora/{index - 1}"
        if named in ids[:index]:
            raise _wrong_corpus(pointer, "this corpus is named twice; each is encoded once")
        try:
            file = corpora.find_file(named)
        except CorpusPathError:
            file = None
        if file is None:
            raise _wrong_corpus(pointer, "there is no corpus with this id; see GET /corpora")
        files.append(file)
    if not any(file.size_bytes for file in files):
        raise InvalidInputsError(
            "empty_corpus", "The corpora are empty; there is nothing to encode."
        )
    return files


def plan_encoding(
    asked: EncodeCorpusRequest, live: LiveTokenizer
) -> tuple[TokenFilesPlan, dict[str, Any]]:
    """The plan, and the arguments it is made of once more in the child.

    Raises:
        InvalidInputsError: these ids cannot be written as asked.
        UnknownSpecialTokenError: the request names a token that is not special.
    """
    tokenizer = live.tokenizer
    known = tokenizer.spec.special_tokens
    end = asked.end_of_document
    if end is None and END_OF_TEXT in known:
        end = END_OF_TEXT
    for field, token in (("begin_of_document", asked.begin_of_document), ("end_of_document", end)):
        if token and token not in known:
            raise UnknownSpecialTokenError(field)
    for field in ("allowed_special", "disallowed_special"):
        names = getattr(asked, field)
        if not isinstance(names, str) and not names <= set(known):
            raise UnknownSpecialTokenError(field)
    arguments = {
        "layout": asked.layout,
        "dtype": asked.dtype,
        "tokens_per_shard": asked.tokens_per_shard,
        "begin_of_document": asked.begin_of_document or None,
        "end_of_document": end or None,
        "allowed_special": _as_json(asked.allowed_special),
        "disallowed_special": _as_json(asked.disallowed_special),
        "seed": asked.seed,
    }
    try:
        return plan_token_files(tokenizer, **arguments, ref=live.ref), arguments
    except TokenFilesPlanError as error:
        raise InvalidInputsError(error.code, f"{error}.") from None


def corpus_format(asked: EncodeCorpusRequest) -> dict[str, str | None]:
    """How documents stand in the files, as the core's `CorpusFormat` has it."""
    if asked.format == "jsonl":
        return {"format": "jsonl", "field": asked.field or _DEFAULT_FIELD, "separator": None}
    separator = END_OF_TEXT if asked.separator is None else asked.separator
    return {"format": "txt", "field": _DEFAULT_FIELD, "separator": separator or None}


def estimate_bytes(files: Sequence[CorpusFile], tokenizer: Tokenizer, plan: TokenFilesPlan) -> int:
    """About how many bytes the token files will have: as many ids for each byte of the corpora as
    the first 64 KiB of the largest few of them have.

    Raises:
        CorpusReplacedError: a corpus was replaced just now.
    """
    largest = sorted(files, key=lambda file: file.size_bytes, reverse=True)[:_SAMPLED_CORPORA]
    n_sampled = sum(file.size_bytes for file in largest)
    n_ids = sum(
        file.size_bytes * _ids_per_byte(file, tokenizer) for file in largest if file.size_bytes
    )
    n_bytes = sum(file.size_bytes for file in files)
    return round(n_bytes * n_ids / n_sampled * plan.disk_dtype.itemsize)


def _ids_per_byte(file: CorpusFile, tokenizer: Tokenizer) -> float:
    try:
        descriptor = reopen_corpus_file(file)
    except CorpusChangedError:
        raise CorpusReplacedError from None
    try:
        sample = os.read(descriptor, _SAMPLE_BYTES)
    finally:
        os.close(descriptor)
    text = sample.decode(errors="ignore")  # the last character may be cut
    return tokenizer.count(text, allowed_special="all") / len(sample)


def _as_json(policy: Any) -> Any:
    return policy if isinstance(policy, str) else sorted(policy)


def _wrong_corpus(pointer: str, reason: str) -> InvalidInputsError:
    return InvalidInputsError("corpus_not_found", f"{pointer}: {reason}.", [(pointer, reason)])
