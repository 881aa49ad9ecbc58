"""Every error this library raises on purpose, as one tree; `python -m pydoc tokenizer_core.errors`
draws it.

Each class has a `code`, a stable word for machines (the service adds it to its problem documents),
and each message names a remedy. Errors that derive from a builtin exception can be caught as that
builtin.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any, ClassVar, Final, TypeVar

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a disk without space for the caller; free some."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean encode?`, or nothing if no known word begins like this or is similar, or if
    the similar one says something else: nobody who writes `--no-promote` means `--promote`.

    Example:
        >>> did_you_mean("enocde", ["encode", "decode"]), did_you_mean("x", ["encode"])
        ('; did you mean encode?', '')
        >>> did_you_mean("GPT2", ["gpt2"]), did_you_mean("o200k", ["gpt2", "o200k_base"])
        ('; did you mean gpt2?', '; did you mean o200k_base?')
        >>> did_you_mean("--disallowed-special", ["--allowed-special"])
        ''
    """
    import difflib  # only here: commands without a mistake do not load it

    word = word[:256]  # enough, and the time of difflib grows with its length
    known = list(known)
    near = [name for name in known if name.lower() == word.lower()]
    near = near or [name for name in known if word.strip("-")[2:] and name.startswith(word)]
    candidates = [name for name in known if not _says_another_thing(word, name)]
    near = near or difflib.get_close_matches(word, candidates, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def counted(number: int, noun: str) -> str:
    """A number and what it counts, for people.

    Example:
        >>> counted(1, "document"), counted(2000, "document")
        ('1 document', '2,000 documents')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_NEGATIONS: Final = {"no", "non", "not", "without", "skip", "keep"}


def _says_another_thing(word: str, name: str) -> bool:
    """Whether a part of a name is negated in the other (`--no-promote`), or is another word
    (`--skip-special-tokens` and `--add-special-tokens`), not a misspelt one."""
    import difflib

    parts, others = (each.strip("-").replace("_", "-").split("-") for each in (word, name))
    if len(parts) != len(others):
        return bool(({*parts} ^ {*others}) & _NEGATIONS)
    return any(
        part.startswith("dis") != other.startswith("dis")
        or difflib.SequenceMatcher(None, part, other).ratio() <= 0.5
        for part, other in zip(parts, others, strict=True)
    )


class TokenizerCoreError(Exception):
    """Root of the tree; `code` is a stable word for machines. `needs_package`: a package that is
    not installed would mend it."""

    code: ClassVar[str] = "tokenizer_error"
    needs_package = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self))


Error = TypeVar("Error", bound=TokenizerCoreError)


def missing_extra(kind: type[Error], what: str, extra: str) -> Error:
    """The error of this kind where `what` needs an extra of the package that is not installed."""
    error = kind(f"{what} needs the extra {extra}; pip install 'tokenizer-service[{extra}]'")
    error.needs_package = True
    return error


def _restored(
    kind: type[BaseException], args: tuple[object, ...], fields: dict[str, Any]
) -> object:
    """A pickled error: without `__init__`, whose arguments are not those of the message."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(fields)
    return error


class InvalidSpecError(TokenizerCoreError, ValueError):
    """The vocabulary, merges or special tokens cannot be a byte-level BPE tokenizer."""

    code = "invalid_tokenizer"


class UnknownPatternError(TokenizerCoreError, ValueError):
    """No split pattern has that name."""

    code = "unknown_pattern"


class SpecialTokenForbiddenError(TokenizerCoreError, ValueError):
    """The text contains a special token that the caller disallowed; `token` names it (empty if a
    service does not), `place` the document of a corpus, `index` its number there if that is known,
    `which` the text, and `as_text` the way to encode it as plain text."""

    code = "special_token_forbidden"
    index: int | None = None

    def __init__(
        self,
        token: str,
        place: str = "",
        which: str = "the text",
        as_text: str = "pass allowed_special='none' and no disallowed_special",
    ) -> None:
        self.token, self.place, self.which = token, place, which
        self.shown = f"the special token {token!r}" if token else "a special token"
        if place:
            super().__init__(
                f"{place}: the document holds {self.shown}, and nothing allows it. "
                f"allowed_special all (--allowed-special all) takes it as the token, none as text"
            )
            return
        super().__init__(
            f"{which} holds {self.shown}, which disallowed_special forbids. "
            f"To have it recognised, name it in allowed_special and not in disallowed_special; to "
            f"take it as plain text, {as_text}."
        )


class SpecialTokenReachedError(TokenizerCoreError, ValueError):
    """Plain text in segments would give the id of a control token; `token_id` is that id."""

    code = "special_token_reached"

    def __init__(self, token_id: int, token: bytes) -> None:
        self.token_id, self.token = token_id, token
        super().__init__(
            f"this vocabulary gives id {token_id}, of the control token "
            f"{token.decode(errors='replace')!r:.60}, to plain text as well, and would do so in "
            f"these segments. Leave the token out of the text, mark all segments as trusted, or "
            f"use a vocabulary whose merges do not make its control tokens."
        )


class UnknownSpecialTokenError(TokenizerCoreError, ValueError):
    """`option`, an argument or a field of a request, names no special token of the tokenizer."""

    code = "unknown_special_token"

    def __init__(self, option: str, message: str | None = None) -> None:
        self.option = option
        super().__init__(message or f"{option} names no special token of the tokenizer")


class UnknownTokenIdError(TokenizerCoreError, ValueError):
    """An id outside the vocabulary; `index` is its index in the ids, `token_id` its value, and
    `owner` says whose ids they are, if there are several."""

    code = "unknown_token_id"

    def __init__(self, index: int, token_id: object, largest_id: int, owner: str = "") -> None:
        self.index, self.token_id, self.largest_id = index, token_id, largest_id
        self.owner = owner
        whose = f" of {owner}" if owner else ""
        super().__init__(
            f"ids[{index}] = {token_id!r:.40}{whose} is not in the vocabulary (largest id "
            f"{largest_id}). Decode with the tokenizer that made these ids."
        )


class PreTokenTooLongError(TokenizerCoreError, ValueError):
    """A single pre-token of a stream is longer than its cap, so no part of it can be settled."""

    code = "pre_token_too_long"


class SplitTooSlowError(TokenizerCoreError, ValueError):
    """The split pattern of the tokenizer, which is not a named one, takes too long on the text."""

    code = "split_too_slow"


class InvalidUtf8Error(TokenizerCoreError, ValueError):
    """A text is not UTF-8 at `byte_offset`, or ends inside a character there."""

    code = "invalid_utf8"

    def __init__(self, byte_offset: int, *, is_cut: bool) -> None:
        self.byte_offset, self.is_cut = byte_offset, is_cut
        what = "ends inside a character" if is_cut else "is not UTF-8"
        super().__init__(f"The text {what}: invalid bytes at offset {byte_offset}.")


class MaxTokensTooSmallError(TokenizerCoreError, ValueError):
    """The character at `byte_offset` has more tokens (`n_tokens`) than a chunk may have."""

    code = "max_tokens_too_small"

    def __init__(self, max_tokens: int, n_tokens: int, byte_offset: int) -> None:
        self.max_tokens, self.n_tokens, self.byte_offset = max_tokens, n_tokens, byte_offset
        super().__init__(
            f"the character at byte {byte_offset} alone has {n_tokens} tokens, and max_tokens is "
            f"{max_tokens}; a chunk never ends inside a character, so allow more"
        )


class EngineUnavailableError(TokenizerCoreError, RuntimeError):
    """The requested engine is not part of this installation."""

    code = "engine_unavailable"


class CancelledError(TokenizerCoreError):
    """Another thread cancelled the call; see `engines.stoppable`."""

    code = "cancelled"


class WorkerProcessError(TokenizerCoreError, RuntimeError):
    """A worker process died (killed, out of memory) before it returned its result. `tasks`: the
    indices of its tasks; empty if it did not start."""

    code = "worker_died"

    def __init__(self, message: str, tasks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.tasks = tasks


class RunError(TokenizerCoreError, RuntimeError):
    """A run over many workers failed; the next run continues from its storage."""

    code = "run_failed"


class RunConflictError(RunError, ValueError):
    """The storage contains a run with other inputs or settings."""

    code = "run_conflict"


class ShardFailedError(RunError):
    """A shard failed each time it was tried; the message names it and the last reason."""

    code = "shard_failed"


class ChatError(TokenizerCoreError):
    """A conversation could not be rendered with a chat template. `message_index`: the message that
    the template was at, if known."""

    code = "chat_failed"

    def __init__(self, message: str, message_index: int | None = None) -> None:
        super().__init__(message)
        self.message_index = message_index


class ChatInputError(ChatError, ValueError):
    """The messages do not have the form of a conversation, or do not fit the options."""

    code = "invalid_chat"


class ChatShapeError(ChatInputError):
    """A message or a tool has a shape that cannot be given to a template. `place`: JSON pointer of
    it in the message, or in the arguments if no message is named; `detail`: what it must be."""

    def __init__(self, place: str, detail: str, message_index: int | None = None) -> None:
        self.place, self.detail = place, detail
        in_message = "" if message_index is None else f"messages/{message_index}"
        name, *rest = f"{in_message}{place}".strip("/").split("/")
        path = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in rest)
        super().__init__(f"{name}{path}: {detail}", message_index)


class TurnEndError(ChatInputError):
    """The chat template ends a turn of the assistant with a token that is not declared to be its
    end. No other conversation helps: the caller names the token, or the rule of tags."""


class ChatTemplateMissingError(ChatError, LookupError):
    """The tokenizer has no chat template, or none of that name."""

    code = "chat_template_missing"


class ChatTemplateError(ChatError, ValueError):
    """The chat template is no valid template, or raised an error for this conversation."""

    code = "chat_template_failed"

    def __str__(self) -> str:
        # Not in the message: the index changes where the form of the messages does.
        at = "" if self.message_index is None else f", at messages[{self.message_index}]"
        return f"{super().__str__()}{at}"


class ChatLimitError(ChatError, ValueError):
    """The chat template needs more time, memory or output than it may."""

    code = "chat_limit_exceeded"


class OutputError(TokenizerCoreError):
    """The output of a model cannot be read."""


class OutputStateError(OutputError, ValueError):
    """The state of an output does not fit itself, or what follows it."""

    code = "invalid_stream_state"


class OutputTooLongError(OutputError, ValueError):
    """A part of an output that arrives in parts is longer than a state may hold."""

    code = "stream_state_too_large"


class FormatError(TokenizerCoreError, ValueError):
    """A tokenizer file does not follow its format."""

    code = "invalid_file"


class OtherModelError(FormatError):
    """The file has a model that is no byte-level BPE: the library `tokenizers` runs it, and nothing
    publishes or serves it."""


class MissingPatternError(FormatError):
    """The file does not say how text is split: the caller must give its pattern."""


class UnsafePickleError(FormatError):
    """A pickle contains more than the plain dicts, lists, ints and bytes of a tokenizer."""

    code = "unsafe_pickle"


class PresetError(TokenizerCoreError, LookupError):
    """No preset has that name, or its file is not on this machine."""

    code = "preset_not_found"


class HubError(TokenizerCoreError):
    """A tokenizer could not be downloaded from the Hugging Face Hub."""

    code = "hub_unavailable"


class ConversionError(TokenizerCoreError):
    """A conversion cannot write its output, or the output is not the same tokenizer."""

    code = "conversion_failed"


class TrainingError(TokenizerCoreError):
    """Training failed."""

    code = "training_failed"


class VocabSizeError(TrainingError, ValueError):
    """The requested vocabulary size is too small or too large; the message names the bound."""

    code = "invalid_vocab_size"


class CorpusError(TrainingError, ValueError):
    """The corpus is missing, empty, damaged, changing while it is read, or not UTF-8."""

    code = "invalid_corpus"


class CorpusDocumentError(CorpusError):
    """A document cannot be read. Callers with `max_bad` can leave it out."""


class TooManyBadDocumentsError(CorpusError):
    """More of the documents of a corpus are bad than the run may leave out."""

    code = "too_many_bad_documents"


class ConversationError(CorpusError):
    """A record of a corpus is no conversation, or cannot be encoded as one; `reason` is a stable
    word, by which such records are counted."""

    code = "invalid_conversation"

    def __init__(self, message: str, reason: str = "no_conversation") -> None:
        self.reason = reason
        super().__init__(message)


class DocumentRefusedError(CorpusError):
    """A document of a corpus cannot be encoded; `number` is its number in the corpus, from 0,
    `forbidden` the special token that it holds and may not, and `kind` the error for callers."""

    def __init__(
        self,
        number: int,
        reason: str,
        forbidden: str | None = None,
        kind: type[CorpusError] = CorpusError,
    ) -> None:
        self.number, self.reason, self.forbidden, self.kind = number, reason, forbidden, kind
        super().__init__(f"document {number} of the corpus: {reason}")


class CorpusChangedError(CorpusError):
    """A corpus file was changed, replaced or removed while it was read."""

    code = "corpus_changed"


class TrainingCancelledError(TrainingError):
    """Training stopped at the caller's request; nothing was written."""

    code = "cancelled"


class TokenFilesError(TokenizerCoreError):
    """Token files could not be written or read."""

    code = "token_files_failed"


class TokenFilesPlanError(TokenFilesError, ValueError):
    """The token files cannot be written; raised before anything is written."""

    code = "invalid_token_files_plan"


class TokenFilesCorruptError(TokenFilesError, ValueError):
    """Manifest, hashes and token files do not agree; write the files again from the corpus."""

    code = "token_files_corrupt"


class TokenizerMismatchError(TokenFilesError, ValueError):
    """The token files were written by a different tokenizer than the given one."""

    code = "tokenizer_mismatch"


class StorageError(TokenizerCoreError, OSError):
    """A storage of named bytes is unreachable, full, or refuses an operation."""

    code = "storage_unavailable"


class StorageMissingError(StorageError, LookupError):
    """The storage has no object with that name."""

    code = "storage_missing"


class StorageTooLargeError(StorageError):
    """The object is larger than its reader's limit; `version` is the argument that `swap` needs."""

    code = "storage_too_large"

    def __init__(self, message: str, version: str) -> None:
        super().__init__(message)
        self.version = version


class ArtifactError(TokenizerCoreError):
    """An operation on published tokenizers failed.

    `version` (`name@version`) and `file` (a name without a path) say what is damaged or missing, if
    it is one version or one file.
    """

    code = "artifact_error"
    version: str | None = None
    file: str | None = None


class ArtifactNotFoundError(ArtifactError, LookupError):
    """No tokenizer, or no version of it, has that name. `name` is what no tokenizer has, `near`
    suggests one, as `did_you_mean`."""

    code = "tokenizer_not_found"
    name: str = ""
    near: str = ""


class ArtifactNameError(ArtifactError, ValueError):
    """No tokenizer or version can have this name."""

    code = "invalid_tokenizer_name"


class ArtifactInUseError(ArtifactError):
    """The version is the active one; promote another before removing it."""

    code = "tokenizer_in_use"


class ModelNotFoundError(ArtifactNotFoundError):
    """No tokenizer has that name or alias."""

    code = "model_not_found"


class AliasTakenError(ArtifactError):
    """The alias is a tokenizer's name or belongs to another one; or the name is an alias."""

    code = "alias_taken"


class NameReservedError(ArtifactError):
    """The name is that of a preset, and the tokenizer would be another one."""

    code = "name_reserved"


class PointerMovedError(ArtifactError):
    """Another promotion moved the pointer first; read it again and retry."""

    code = "pointer_moved"


class ArtifactStorageError(ArtifactError, OSError):
    """The disk failed to read or write (`errno` says why); earlier files are unchanged."""

    code = "storage_failed"

    def __str__(self) -> str:
        """The message without the number."""
        return self.strerror or super().__str__()


class ArtifactCorruptError(ArtifactError, ValueError):
    """Manifest, hashes and files of an artifact do not agree; it is not loaded."""

    code = "artifact_corrupt"
