"""The tokenizer of a text command: one of this machine, or one of a service (`--server URL`)."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tokenizer_core.compat.other_models import LibraryTokenizer
from tokenizer_core.errors import (
    ArtifactNameError,
    SpecialTokenForbiddenError,
    UnknownTokenIdError,
    did_you_mean,
)
from tokenizer_core.presets import PRESETS
from tokenizer_core.registry.versions import checked_name
from tokenizer_core.text.streaming import StreamingEncoder, encode_pieces
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_service.commands.command_line import (
    DEFAULT_TOKENIZER,
    CommandError,
    UsageError,
    note_other_version,
)

if TYPE_CHECKING:
    from tokenizer_client.client import Client, TokenizerResource
    from tokenizer_client.schemas.tokens import TokenizerSummary
    from tokenizer_core.text.truncate_and_chunk import TextPart

Specials: TypeAlias = Mapping[str, Any]
"""`allowed_special` and `disallowed_special` as of `Tokenizer.encode`."""

_ONE_REQUEST_IDS: Final = 1 << 20
_BATCH_DOCUMENTS, _BATCH_CHARS = 256, 1 << 18


class LocalCoder:
    """A tokenizer of this machine."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self._tokenizer, self.name = tokenizer, name
        self.largest_id, self.special_tokens = tokenizer.n_vocab - 1, tokenizer.special_tokens

    @property
    def added_ids(self) -> Mapping[str, int]:
        """The added tokens and their ids."""
        return self._tokenizer.spec.added_ids

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """The bytes of each id."""
        return self._tokenizer.spec.vocab

    @property
    def n_around(self) -> int:
        """The number of ids that `add_special_tokens` puts around a text."""
        encode = self._tokenizer.encode
        return len(encode("", add_special_tokens=True)) - len(encode(""))

    def encode(
        self, pieces: Iterable[str], specials: Specials, *, add_special_tokens: bool = False
    ) -> Iterator[list[int]]:
        """Yield the ids of a text, or of one that comes in pieces, each once it is final."""
        tokenizer = self._tokenizer
        is_whole = isinstance(pieces, str) or isinstance(tokenizer, LibraryTokenizer)
        if is_whole or not tokenizer.spec.pattern.has_cuts:  # nothing is settled before the end
            text = "".join(pieces)
            yield tokenizer.encode(text, add_special_tokens=add_special_tokens, **specials)
            return
        stream = StreamingEncoder(tokenizer, add_special_tokens=add_special_tokens, **specials)
        for piece in pieces:
            yield stream.feed(piece)
        yield stream.finish()

    def count_documents(
        self, pieces: Iterable[tuple[str, bool]], specials: Specials
    ) -> Iterator[int]:
        """Yield numbers of tokens of documents that come in pieces, each with whether it is the
        last of its document."""
        return map(len, encode_pieces(self._tokenizer, pieces, **specials))

    def decode(self, blocks: Iterator[list[int]], *, skip_special_tokens: bool) -> Iterator[bytes]:
        """Yield the text of ids that come in blocks; it may be no UTF-8."""
        from tokenizer_core.text.decode_streams import BytesDecoder

        tokenizer = self._tokenizer
        skipped = set(self.special_tokens.values()) if skip_special_tokens else set()
        if isinstance(tokenizer, LibraryTokenizer):
            ids = [id_ for id_ in chain.from_iterable(blocks) if id_ not in skipped]
            yield tokenizer.decode(ids).encode()
            return
        done = 0
        decoder = BytesDecoder(tokenizer)
        for block in blocks:
            try:
                yield decoder.feed([id_ for id_ in block if id_ not in skipped])
            except UnknownTokenIdError as error:
                index = done + block.index(int(str(error.token_id)))
                raise UnknownTokenIdError(index, error.token_id, self.largest_id) from None
            done += len(block)

    def truncate(self, text: str, max_tokens: int, side: Any, specials: Specials) -> dict[str, Any]:
        """The part that remains, as the command prints it."""
        from tokenizer_core.text.truncate_and_chunk import truncate_text

        return _as_object(truncate_text(self._tokenizer, text, max_tokens, side=side, **specials))

    def chunk(
        self, text: str, max_tokens: int, overlap_tokens: int, specials: Specials
    ) -> Iterator[dict[str, Any]]:
        """The chunks, as the command prints them."""
        from tokenizer_core.text.truncate_and_chunk import chunk_text

        options = {"overlap_tokens": overlap_tokens, **specials}
        return map(_as_object, chunk_text(self._tokenizer, text, max_tokens, **options))


def _as_object(part: TextPart) -> dict[str, Any]:
    return {"text": part.text, "tokens": part.ids.tolist(), "start": part.start, "end": part.end}


class ServedCoder:
    """The tokenizer of a service, active or named, in the version that it has at the start."""

    def __init__(self, url: str, name: str | None) -> None:
        client = open_client(url)
        with errors_in_a_line():
            found = _find(client.tokenizers, name)
            self.name = f"{found.name}@{found.version}"
            self._client = client.pinned(self.name, digest=found.digest)
        manifest = found.manifest
        if manifest is None:
            raise CommandError(f"the service sent no manifest of {self.name}")
        self.largest_id: int = manifest["largest_id"]
        self._around: list[list[int]] = [manifest["prefix_ids"], manifest["suffix_ids"]]
        self.n_around = sum(map(len, self._around))
        added = manifest["added_tokens"]
        self.added_ids: Mapping[str, int] = {token["content"]: token["id"] for token in added}
        self.special_tokens: Mapping[str, int] = {
            token["content"]: token["id"] for token in added if token["special"]
        }
        self.vocab: Mapping[int, bytes] = _Vocab(self._client)

    def encode(
        self, pieces: Iterable[str], specials: Specials, *, add_special_tokens: bool = False
    ) -> Iterator[list[int]]:
        """As of LocalCoder; the service encodes while it receives."""
        before, after = self._around if add_special_tokens else ([], [])
        with errors_in_a_line():
            source = [pieces] if isinstance(pieces, str) else pieces
            yield before
            for ids in self._client.encode_stream(source, **_as_fields(specials)):
                yield ids.tolist()
            yield after

    def count_documents(
        self, pieces: Iterable[tuple[str, bool]], specials: Specials
    ) -> Iterator[int]:
        """As of LocalCoder, many documents a request."""
        options = _as_fields(specials)
        n_done = 0
        for batch in _batches(pieces):
            try:
                with errors_in_a_line():
                    yield sum(self._client.count_batch(batch, **options))
            except SpecialTokenForbiddenError as error:
                error.index = n_done + self._find_refused(batch, options)
                raise
            n_done += len(batch)

    def _find_refused(self, batch: list[str], options: dict[str, Any]) -> int:
        """The index of the first text that the service refuses, which does not say it."""
        for index, text in enumerate(batch[:-1]):
            try:
                with errors_in_a_line():
                    self._client.count(text, **options)
            except SpecialTokenForbiddenError:
                return index
        return len(batch) - 1

    def decode(self, blocks: Iterator[list[int]], *, skip_special_tokens: bool) -> Iterator[bytes]:
        """As of LocalCoder. What one request does not hold is streamed, as text."""
        ids: list[int] = []
        blocks = _within(self.largest_id, blocks)
        for block in blocks:
            ids += block
            if len(ids) > _ONE_REQUEST_IDS:
                break
        client, skip = self._client, skip_special_tokens
        with errors_in_a_line():
            if len(ids) <= _ONE_REQUEST_IDS:
                yield client.decode_bytes(ids, skip_special_tokens=skip)
                return
            more = chain([ids], blocks)
            for text in client.decode_stream(more, skip_special_tokens=skip, errors="strict"):
                yield text.encode()

    def truncate(self, text: str, max_tokens: int, side: Any, specials: Specials) -> dict[str, Any]:
        """As of LocalCoder."""
        with errors_in_a_line():
            part = self._client.truncate(text, max_tokens, side=side, **_as_fields(specials))
        n_bytes, n_kept = len(text.encode()), len(part.text.encode())
        start = n_bytes - n_kept if side == "left" else 0
        return {"text": part.text, "tokens": part.tokens, "start": start, "end": start + n_kept}

    def chunk(
        self, text: str, max_tokens: int, overlap_tokens: int, specials: Specials
    ) -> Iterator[dict[str, Any]]:
        """As of LocalCoder."""
        options = {"overlap_tokens": overlap_tokens, **_as_fields(specials)}
        with errors_in_a_line():
            for part in self._client.chunk(text, max_tokens, **options):
                yield part.model_dump()


class _Vocab(dict[int, bytes]):
    """The bytes of ids, each asked for once."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __missing__(self, id_: int) -> bytes:
        with errors_in_a_line():
            self[id_] = base64.b64decode(self._client.describe_token(id_, depth=0).bytes)
        return self[id_]


Coder: TypeAlias = LocalCoder | ServedCoder


def _find(tokenizers: TokenizerResource, word: str | None) -> TokenizerSummary:
    from tokenizer_client import NotFoundError

    if word is None:
        return tokenizers.active()
    name, at, version = word.partition("@")
    try:
        versions = tokenizers.versions(checked_name(name))
    except (ArtifactNameError, NotFoundError) as error:
        owners = {model.id: model.root.partition("@")[0] for model in tokenizers.models().data}
        if (owner := owners.get(word, word)) != word:
            return _find(tokenizers, owner)
        if isinstance(error, NotFoundError) and word in (*PRESETS, DEFAULT_TOKENIZER):
            raise CommandError(error.detail) from error  # it says how to publish this one
        near, there = did_you_mean(name, owners), ", ".join(sorted(owners)) or "none"
        raise CommandError(
            f"the service has no tokenizer {name!r}{near}; it has: {there}"
        ) from error
    for found in versions:
        if not at and not found.active:
            served = {model.id: model.root for model in tokenizers.models().data}
            newest = f"{found.name}@{found.version}"
            note_other_version(newest, served.get(name, newest))
        if not at or version == found.version:
            return found
    raise CommandError(f"the service has no version {version!r:.80} of {name}")


def _as_fields(specials: Specials) -> dict[str, Any]:
    """The options as the client has them, where `ordinary` is an option of its own."""
    if specials["allowed_special"] != "ordinary":
        return dict(specials)
    return {"disallowed_special": specials["disallowed_special"], "added_tokens": "none"}


def _within(largest_id: int, blocks: Iterator[list[int]]) -> Iterator[list[int]]:
    n_done = 0
    for block in blocks:
        if max(block, default=0) > largest_id:
            index, wrong = next(item for item in enumerate(block) if item[1] > largest_id)
            raise UnknownTokenIdError(n_done + index, wrong, largest_id)
        n_done += len(block)
        yield block


def _batches(pieces: Iterable[tuple[str, bool]]) -> Iterator[list[str]]:
    batch, document, n_chars = [], "", 0
    for text, is_last in pieces:
        document += text
        if is_last:
            batch.append(document)
            n_chars, document = n_chars + len(document), ""
            if n_chars >= _BATCH_CHARS or len(batch) >= _BATCH_DOCUMENTS:
                yield batch
                batch, n_chars = [], 0
    if batch:
        yield batch


def open_client(url: str) -> Client:
    """A client of the service of `--server`; raise UsageError if there can be none. Without a
    scheme, only one of this machine: for another, http would send the key in the clear."""
    if url.partition(":")[0] in ("localhost", "127.0.0.1"):
        url = f"http://{url}"
    try:
        from tokenizer_client import Client
    except ModuleNotFoundError as error:
        raise UsageError(f"--server: {error}") from error
    try:
        return Client(url)
    except ValueError as error:
        raise UsageError(f"--server: {error}") from None


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Raise errors of the client in the block as CommandError, and a special token that the service
    refuses as SpecialTokenForbiddenError."""
    from tokenizer_client import AuthenticationError, ClientError, NotFoundError, ProblemError

    try:
        yield
    except ClientError as error:
        said = str(error)
        if isinstance(error, AuthenticationError) and error.code.endswith("key_required"):
            key = "a read key or an admin key"
            if key not in error.detail:
                key = "an admin key (printed at start when none was set)"
            found = "has another" if os.environ.get("TOKENIZER_API_KEY") else "is not set"
            said = (
                f"{error.status} {error.code}: the service requires {key}, which commands read "
                f"from the variable TOKENIZER_API_KEY; it {found}"
            )
        if isinstance(error, NotFoundError) and error.code == "job_not_found":
            said = "the service has no such job; tokenizer jobs list shows them, also with --server"
        if isinstance(error, ProblemError) and error.code == SpecialTokenForbiddenError.code:
            raise SpecialTokenForbiddenError("") from error
        raise CommandError(said) from error
