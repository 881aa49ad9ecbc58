"""The tokens of a text to look at: their bytes, and the markup of a notebook."""

from html.parser import HTMLParser

import pytest

from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.pieces import MAX_SHOWN

BYTES = {i: bytes([i]) for i in range(256)}
MERGES = [(b"<", b"&"), (b"<&", b">"), (b"\xe6", b"\x9d"), (b"l", b"o")]
VOCAB = BYTES | {256 + i: left + right for i, (left, right) in enumerate(MERGES)}
TOKENIZER = Tokenizer(VOCAB, MERGES, ["<|end|>"])


class Shown(HTMLParser):
    """What a browser shows: the text of each span with a title, and all names of elements."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.pieces: list[tuple[str, str]] = []
        self.names: list[str] = []
        self.rest = ""
        self.is_piece = False
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.is_piece = tag == "span"
        if self.is_piece:
            self.pieces.append((dict(attrs)["title"], ""))

    def handle_endtag(self, tag):
        self.is_piece = False

    def handle_data(self, data):
        if self.is_piece:
            title, text = self.pieces.pop()
            self.pieces.append((title, text + data))
        else:
            self.rest += data


@pytest.mark.parametrize("text", ["", "low", "<b>&amp;\"'\n 東京\t👩\u200d👩<|end|>", "<|end|>"])
def test_the_bytes_of_the_pieces_are_the_text(text):
    pieces = TOKENIZER.pieces(text)
    assert b"".join(token for _, token in pieces) == text.encode()
    assert [id_ for id_, _ in pieces] == pieces.ids == TOKENIZER.encode(text)
    assert len(pieces) == len(pieces.ids)
    assert TOKENIZER.pieces(text, allowed_special="none").ids == TOKENIZER.encode_ordinary(text)


def test_markup_in_a_text_is_shown_and_never_run():
    text = "<script>alert('x')</script>b<&>&lt;\n東<|end|>"
    tokenizer = Tokenizer(VOCAB, MERGES, ["<|end|>", '<i onclick="x">'])
    shown = Shown(tokenizer.pieces(text + '<i onclick="x">')._repr_html_())
    assert set(shown.names) == {"div", "span"}
    texts = [text for _, text in shown.pieces]
    assert "".join(texts).replace("⏎", "").startswith("<script>alert('x')</script>b<&>&lt;\n")
    assert texts[-4:] == ["e6 9d", "b1", "<|end|>", '<i onclick="x">']
    assert ("257: b'<&>'", "<&>") in shown.pieces
    assert shown.rest == "38 tokens, 61 bytes"


def test_a_long_text_is_shown_in_part():
    shown = Shown(TOKENIZER.pieces("ab" * MAX_SHOWN)._repr_html_())
    assert len(shown.pieces) == MAX_SHOWN
    assert shown.rest.startswith(f" … and {MAX_SHOWN:,} more")
    assert repr(TOKENIZER.pieces("ab" * 99)).endswith("'b', ...>")
    shown = Shown(TOKENIZER._repr_html_())
    assert shown.rest.startswith(repr(TOKENIZER))
    assert shown.pieces[-1] == ("260: b'<|end|>'", "<|end|>")


def test_a_changed_text_shows_what_is_encoded():
    spec = TokenizerSpec.from_merges(VOCAB, MERGES, normalizer="prefix-space")
    assert list(Tokenizer.from_spec(spec).pieces("lo")) == [(32, b" "), (259, b"lo")]
