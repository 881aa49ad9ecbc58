"""Bytes cut at separators give the same documents as str, wherever blocks end."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from tokenizer_core.documents.document_pieces import Utf8Piece, split_plain_text, split_utf8_text

TEXTS = st.text(st.sampled_from("ab|<>é中🙂"), max_size=40)
CUTS = st.lists(st.integers(0, 120), max_size=8)


def join(pieces: list[tuple[str, bool]] | list[tuple[bytes, bool]]) -> list[str]:
    """The documents; each piece must be whole characters, and the last piece must end one."""
    documents, is_open = [], False
    for text, is_last in pieces:
        decoded = text.decode() if isinstance(text, bytes) else text
        if is_open:
            documents[-1] += decoded
        else:
            documents.append(decoded)
        is_open = not is_last
    assert not is_open
    return documents


@given(TEXTS, CUTS, st.sampled_from([None, "|", "||", "<|>", "<<|", "中|中", "é"]))
@example("a||||b", [3, 4, 5], "||")
@example("中|中|中", [2, 4], "中|中")
def test_the_documents_are_those_of_the_text(
    text: str, cuts: list[int], separator: str | None
) -> None:
    data = text.encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    blocks = [data[start:end] for start, end in pairwise(places)]
    expected = join([tuple(piece) for piece in split_plain_text([text], separator, 1000)])
    mark = separator.encode() if separator else None
    for max_bytes in (1, 7, 1000):
        pieces = [tuple(piece) for piece in split_utf8_text(blocks, mark, max_bytes)]
        assert join(pieces) == expected
        assert all(len(data) <= max_bytes + max(len(mark or b""), 4) for data, _ in pieces)


def test_invalid_utf8_is_passed_on() -> None:
    for data in (b"\xff", b"a\xe4", b"\x80\x80\x80\x80", b"\xf0\x9f|\x99\x82", b"\xc3"):
        for size in (1, 2, 10):
            blocks = [data[start : start + size] for start in range(0, len(data), size)]
            documents = [b""]
            for text, is_last in split_utf8_text(blocks, b"|", size):
                documents[-1] += text
                documents += [b""] if is_last else []
            assert documents[:-1] == data.split(b"|")


def test_without_text_there_is_a_document_only_without_a_separator() -> None:
    assert list(split_utf8_text([], None, 9)) == [Utf8Piece(b"", True)]
    assert list(split_utf8_text([b""], b"|", 9)) == []
    assert list(split_utf8_text([b"a|"], b"|", 9)) == [(b"a", True)]
