"""Bodies with token ids, in JSON and in binary; `dialects` has those of other servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tokenizer_service.http.id_formats import render_ids_form
from tokenizer_service.responses.json_values import (
    Rendered,
    describe_token,
    render_described,
    render_each,
    render_ids,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from tokenizer_service.http.id_formats import IdsForm
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_NO_OFFSETS: Final = np.empty((0, 2), dtype=np.uint64)


class Encoded(NamedTuple):
    """The ids of a text, the size of the text in bytes of UTF-8 and, if they were asked for, where
    each token starts and ends in it: shape (n_tokens, 2)."""

    ids: NDArray[np.uint32]
    n_bytes: int
    offsets: NDArray[Any] = _NO_OFFSETS


def is_detailed(returned: Collection[str]) -> bool:
    """Whether the parts `returned` describe each token."""
    return "pieces" in returned or "offsets" in returned


def place_around(offsets: NDArray[Any], n_around: tuple[int, int], place: int) -> None:
    """Let the first and the last tokens, which the post-processor added, start and end at
    `place`, as other servers say."""
    n_before, n_after = n_around
    offsets[:n_before] = place
    offsets[len(offsets) - n_after :] = place


def render_encoded(
    texts: list[Encoded], returned: Collection[str], live: LiveTokenizer, *, is_batch: bool
) -> Rendered:
    """The parts `returned` of one text or of a batch as JSON."""
    n_tokens = sum(len(text.ids) for text in texts)
    chunks = list(_render_parts(texts, returned, live, is_batch=is_batch))
    return Rendered(chunks, n_tokens, sum(text.n_bytes for text in texts))


def _render_parts(
    texts: list[Encoded], returned: Collection[str], live: LiveTokenizer, *, is_batch: bool
) -> Iterator[bytes]:
    vocab = live.tokenizer.spec.vocab
    yield b"{"
    if "ids" in returned:
        yield b'"tokens":'
        lists = (render_ids(text.ids) for text in texts)
        yield from render_each(lists, is_batch=is_batch)
        yield b","
    yield b'"count":'
    yield from render_counts(texts, is_batch=is_batch)
    if "pieces" in returned:
        yield b',"pieces":'
        pieces = (
            render_described(text.ids, lambda id_: describe_token(vocab[id_])) for text in texts
        )
        yield from render_each(pieces, is_batch=is_batch)
    if "offsets" in returned:
        yield b',"offsets":'
        rows = (render_described(text.offsets, lambda row: row) for text in texts)
        yield from render_each(rows, is_batch=is_batch)
    yield b',"tokenizer":%b}' % live.identity_json


def render_counts(texts: list[Encoded], *, is_batch: bool) -> Iterator[bytes]:
    """The number of ids of one text, or of each text of a batch."""
    yield from render_each((iter([b"%d" % len(text.ids)]) for text in texts), is_batch=is_batch)


def render_binary(
    ids: NDArray[np.uint32], lengths: NDArray[np.uint64] | None, n_bytes: int, form: IdsForm
) -> Rendered:
    """Only the ids, in `form`; no id becomes a Python int. `lengths` are those of a batch."""
    if lengths is None:
        lengths = np.array([len(ids)], dtype=np.uint64)
    return Rendered(list(render_ids_form(ids, lengths, form)), len(ids), n_bytes, form.media_type)
