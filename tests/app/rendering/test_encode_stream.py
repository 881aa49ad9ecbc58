"""TextSettler: what it gives out and what it says of it."""

from __future__ import annotations

from app.rendering.encode_stream import TextSettler
from tokenizer_core import Tokenizer
from tokenizer_core.streaming import StreamingEncoder


def test_bytes_of_a_settler_add_up(small_tokenizer: Tokenizer) -> None:
    settler = TextSettler(StreamingEncoder(small_tokenizer))
    text = "the quick é中👩 fox"
    ids: list[int] = []
    for byte in text.encode():
        for part in settler.feed(bytes([byte])):
            ids += part.ids
            assert part.byte_end == settler.byte_end
        assert small_tokenizer.decode_bytes(ids) == text.encode()[: settler.byte_end]
        assert settler.n_pending == settler.n_bytes - settler.byte_end
    ids += [id_ for part in settler.finish() for id_ in part.ids]
    assert ids == small_tokenizer.encode(text)
    assert settler.byte_end == settler.n_bytes == len(text.encode())
