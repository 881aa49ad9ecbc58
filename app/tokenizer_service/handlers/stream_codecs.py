"""Stream codecs: text to ids and ids to text while the input is still arriving.

`EncodeCodec` and `DecodeCodec` are the two codecs of `DuplexStream`; they do no input or output.
Ids arrive raw, split at any byte, or as lines of JSON: arrays of ids, or the records that
`/encode_stream` sends. `DecodeCodec` checks the last of these records, so that a truncated stream
never looks like a whole text. It does not accept frames: their media type is that of raw ids, so
the two are indistinguishable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokenizer_client.schemas.tokens import IdsError, parse_ids
from tokenizer_core.documents.document_pieces import Utf8Decoder
from tokenizer_core.text.decode_streams import StreamingDecoder
from tokenizer_core.text.streaming import StreamingEncoder
from tokenizer_service.access.errors import LineTooLongError
from tokenizer_service.http.id_formats import IdsForm, parse_raw_ids
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.observability.metrics import ServiceMetrics
from tokenizer_service.responses.decode import sizes_of, special_ids_of
from tokenizer_service.responses.json_values import utf8_length
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

MAX_LINE_BYTES: Final = 1 << 24
"""The longest line of JSON; a line is buffered until it ends."""

_ID_WINDOW: Final = 1 << 15
_TEXT_BYTES: Final = 1 << 18
"""Approximate limit of the text in one record; a few ids can mean any amount of text."""

_PART_FIELDS: Final = frozenset({"seq", "tokens", "byte_end"})
_END_FIELDS: Final = frozenset({"done", "count", "bytes", "digest"})


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Ids, and the byte of the text at which they end."""

    ids: list[int]
    byte_end: int

    def fields(self) -> dict[str, Any]:
        """The fields of a JSON line."""
        return {"tokens": self.ids, "byte_end": self.byte_end}

    def payload(self) -> bytes:
        """The ids as u32, little-endian."""
        return struct.pack(f"<{len(self.ids)}I", *self.ids)


class EncodeCodec:
    """Converts UTF-8 bytes to settled ids; does no input or output."""

    def __init__(self, encoder: StreamingEncoder) -> None:
        self._encoder = encoder
        self._text = Utf8Decoder()
        self.n_tokens = 0
        self.byte_end = 0

    @property
    def n_bytes(self) -> int:
        """The number of text bytes received."""
        return self._text.n_bytes

    @property
    def n_pending(self) -> int:
        """Bytes received whose ids were not returned; the next call may have to process them."""
        return self.n_bytes - self.byte_end

    def feed(self, data: bytes) -> Iterator[EncodedPart]:
        """Yield the ids that `data` settles.

        Raises:
            Problem: 400 with the byte offset of invalid UTF-8.
            TokenizerCoreError: see `StreamingEncoder.feed`.
        """
        yield from self._given_out(self._encoder.feed(self._text.decode(data)), is_last=False)

    def finish(self) -> Iterator[EncodedPart]:
        """Yield the remaining ids; the text ends here. Raises as `feed`."""
        self._text.decode(b"", final=True)
        yield from self._given_out(self._encoder.finish(), is_last=True)

    def totals(self) -> dict[str, int]:
        """The numbers of ids returned and of text bytes received."""
        return {"count": self.n_tokens, "bytes": self.n_bytes}

    def count_in(self, metrics: ServiceMetrics) -> None:
        """Add the bytes and ids to the metrics of encoding."""
        metrics.count_encoded(self.n_bytes, self.n_tokens)

    def _given_out(self, ids: list[int], *, is_last: bool) -> Iterator[EncodedPart]:
        if ids:
            self.n_tokens += len(ids)
            self.byte_end = self.n_bytes if is_last else self._encoder.bytes_settled
            yield EncodedPart(ids, self.byte_end)


class RawIds:
    """Reads raw ids, split at any byte, even inside an id."""

    def __init__(self, form: IdsForm) -> None:
        self._form = form
        self._rest = b""

    @property
    def n_held(self) -> int:
        """Bytes of an incomplete id."""
        return len(self._rest)

    def read(self, data: bytes) -> Iterator[NDArray[np.uint32]]:
        """Yield the ids that `data` completes; raises Problem, as all methods of readers."""
        data = self._rest + data
        end = len(data) - len(data) % self._form.id_bytes
        self._rest = data[end:]
        if end:
            yield parse_raw_ids(data[:end], self._form)

    def finish(self) -> Iterator[NDArray[np.uint32]]:
        """Yield nothing; raises Problem if the body ends inside an id."""
        if self._rest:
            raise Problem(
                400,
                "malformed_ids",
                f"The body ends inside an id of {self._form.id_bytes} bytes, so it was cut off or "
                f"its dtype is another.",
            )
        yield from ()


class IdLines:
    """Reads ids from lines of JSON: arrays of ids, or the records of `/encode_stream`.

    `digest` identifies the tokenizer that decodes; the last record names the one that encoded.
    """

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._rest = bytearray()
        self._n_lines = 0
        self._n_records = 0
        self._n_ids = 0
        self._is_done = False

    @property
    def n_held(self) -> int:
        """Bytes of an incomplete line."""
        return len(self._rest)

    def read(self, data: bytes) -> Iterator[NDArray[np.uint32]]:
        """Yield the ids of the lines that `data` completes."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._hold(end)
            yield from self._take_line()
        self._hold(rest)

    def finish(self) -> Iterator[NDArray[np.uint32]]:
        """Yield the ids of an unterminated last line; raises Problem without the last record."""
        yield from self._take_line()
        if self._n_records and not self._is_done:
            raise Problem(
                422,
                "source_cut_off",
                "The records have no last one with `done`: they were cut off before they arrived, "
                "and ids are missing.",
            )

    def _hold(self, data: bytes) -> None:
        if len(self._rest) + len(data) > MAX_LINE_BYTES:
            raise LineTooLongError(MAX_LINE_BYTES, self._n_lines + 1)
        self._rest += data

    def _take_line(self) -> Iterator[NDArray[np.uint32]]:
        line = bytes(self._rest)
        self._rest.clear()
        self._n_lines += 1
        if not line.strip():
            return
        if self._is_done:
            raise self._wrong("follows the record with `done`, which is the last one")
        try:
            value = parse_body_json(line)
        except Problem as problem:
            detail = f"Line {self._n_lines}: {problem.detail}"
            raise Problem(problem.status, problem.code, detail) from None
        listed = self._open_record(value) if isinstance(value, dict) else value
        ids = self._parse(listed)
        self._n_ids += len(ids)
        if len(ids):
            yield ids

    def _open_record(self, record: dict[str, Any]) -> list[Any]:
        """The ids of a record, not yet validated."""
        if "error" in record:
            raise Problem(
                422,
                "source_failed",
                f"Line {self._n_lines} is an error: what made these ids did not come to its end, "
                f"and ids are missing.",
            )
        if "done" in record and set(record) <= _END_FIELDS:
            self._check_end(record)
            self._is_done = True
            return []
        if "tokens" not in record or not set(record) <= _PART_FIELDS:
            raise self._wrong("is neither an array of ids nor a record of /encode_stream")
        if record.get("seq", self._n_records) != self._n_records:
            raise self._wrong(f"should have seq {self._n_records}; records before it are missing")
        self._n_records += 1
        ids: list[Any] = record["tokens"]
        return ids

    def _check_end(self, record: dict[str, Any]) -> None:
        if record["done"] is not True or record.get("count", self._n_ids) != self._n_ids:
            raise self._wrong(f"names another count than the {self._n_ids} received")
        if record.get("digest", self._digest) != self._digest:
            raise Problem(
                412,
                "digest_mismatch",
                f"Line {self._n_lines} names the digest of another tokenizer; these ids were "
                f"decoded with {self._digest}. Name the one that made them in `tokenizer`.",
            )

    def _parse(self, listed: Any) -> NDArray[np.uint32]:
        if not isinstance(listed, list):
            raise self._wrong("is neither an array of ids nor a record of /encode_stream")
        try:
            return parse_ids(listed)
        except IdsError as error:
            raise Problem(
                422,
                "invalid_token_id",
                f"Line {self._n_lines} has entries that are not token ids ({error.count}, first "
                f"{error.pointers[0]}); they must be integers from 0 to 4294967295.",
            ) from None

    def _wrong(self, what: str) -> Problem:
        return Problem(422, "invalid_record", f"Line {self._n_lines} {what}.")


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """Text, and the number of ids received when it was settled."""

    text: str
    ids_end: int

    def fields(self) -> dict[str, Any]:
        """The fields of a JSON line."""
        return {"text": self.text, "ids_end": self.ids_end}

    def payload(self) -> bytes:
        """The text as UTF-8."""
        return self.text.encode()


class DecodeCodec:
    """Converts ids to settled text; does no input or output.

    A character is returned when all its bytes have arrived. The joined text therefore equals that
    of all ids decoded at once, however the input was split.
    """

    def __init__(
        self,
        live: LiveTokenizer,
        reader: RawIds | IdLines,
        *,
        errors: str = "replace",
        skip_special_tokens: bool = False,
    ) -> None:
        self._live = live
        self._reader = reader
        self._decoder = StreamingDecoder(live.tokenizer, errors=errors)
        self._skipped = special_ids_of(live) if skip_special_tokens else None
        self._n_fed = 0  # bytes passed to the decoder
        self.n_tokens = 0
        self.n_bytes = 0

    @property
    def n_pending(self) -> int:
        """Bytes of an incomplete id or line."""
        return self._reader.n_held

    def feed(self, data: bytes) -> Iterator[DecodedPart]:
        """Yield the text that `data` settles.

        Raises:
            Problem: 400 or 422 for invalid ids; 422 for an id outside the vocabulary (with its
                index) and, with `errors="strict"`, for bytes that are not UTF-8.
        """
        for ids in self._reader.read(data):
            yield from self._decode(ids)

    def finish(self) -> Iterator[DecodedPart]:
        """Yield the remaining text; the ids end here. Raises as `feed`."""
        for ids in self._reader.finish():
            yield from self._decode(ids)
        yield from self._settle(None)

    def totals(self) -> dict[str, int]:
        """The numbers of ids received and of text bytes returned."""
        return {"count": self.n_tokens, "bytes": self.n_bytes}

    def count_in(self, metrics: ServiceMetrics) -> None:
        """Add the ids to the metrics of decoding."""
        metrics.count_decoded(self.n_tokens)

    def _decode(self, ids: NDArray[np.uint32]) -> Iterator[DecodedPart]:
        for start in range(0, len(ids), _ID_WINDOW):
            window = ids[start : start + _ID_WINDOW]
            sizes = sizes_of(window, self._live, first_index=self.n_tokens)
            ends = np.cumsum(sizes, dtype=np.uint64)
            first = 0
            while first < len(window):
                most = np.uint64(_TEXT_BYTES) + (ends[first - 1] if first else np.uint64(0))
                stop = max(first + 1, int(np.searchsorted(ends, most, side="right")))
                self.n_tokens += stop - first
                yield from self._settle(window[first:stop])
                first = stop

    def _settle(self, ids: NDArray[np.uint32] | None) -> Iterator[DecodedPart]:
        """Yield the text that these ids complete; None: the remaining text."""
        if ids is not None and self._skipped is not None:
            ids = ids[~np.isin(ids, self._skipped)]
        if ids is not None:
            self._n_fed += int(self._live.token_lengths[ids].sum(dtype=np.uint64))
        try:
            text = self._decoder.flush() if ids is None else self._decoder.feed(ids)
        except UnicodeDecodeError as error:
            # The decoder still held the last of these bytes, `error.object`.
            offset = self._n_fed - len(error.object) + error.start
            raise Problem(
                422,
                "not_utf8",
                f"The bytes of these ids are not UTF-8 at byte {offset} of the text; decode them "
                f"with errors=replace.",
                byte_offset=offset,
            ) from None
        if text:
            self.n_bytes += utf8_length(text)
            yield DecodedPart(text, self.n_tokens)
