"""The tokens of a text to look at: their bytes, and the markup of a notebook."""

import html
import re

import pytest

from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.pieces import MAX_SHOWN

BYTES = {i: bytes([i]) for i in range(256)}
MERGES = [(b"<", b"&"), (b"<&", b">"), (b"\xe6", b"\x9d"), (b"l", b"o")]
VOCAB = BYTES | {256 + i: left + right for i, (left, right) in enumerate(MERGES)}
TOKENIZER = Tokenizer(VOCAB, MERGES, ["<|end|>"])


@pytest.mark.parametrize("text", ["", "low", "<b>&amp;\"'\n 東京\t👩\u200d👩<|end|>", "<|end|>"])
def test_the_bytes_of_the_pieces_are_the_text(text):
    pieces = TOKENIZER.pieces(text)
    assert b"".join(token for _, token in pieces) == text.encode()
    assert [id_ for id_, _ in pieces] == pieces.ids == TOKENIZER.encode(text)
    assert len(pieces) == len(pieces.ids)
    assert TOKENIZER.pieces(text, allowed_special="none").ids == TOKENIZER.encode_ordinary(text)


def shown(markup: str) -> list[str]:
    """What a browser shows, after a check that the text added no element and no attribute."""
    assert set(re.findall(r"</?(\w+)", markup)) <= {"code", "div", "span"}
    assert set(re.findall(r"""\s([\w-]+)=["']""", markup)) <= {"style", "title"}
    return [html.unescape(text) for text in re.findall(r">([^<]*)<", markup) if text]


def test_markup_in_a_text_is_shown_and_never_run():
    text = "<script>alert('x')</script>b<&>&lt;\n東<|end|>"
    tokenizer = Tokenizer(VOCAB, MERGES, ["<|end|>", '<i onclick="x">'])
    markup = tokenizer.pieces(text + '<i onclick="x">')._repr_html_()
    *texts, summary = shown(markup)
    assert "".join(texts).replace("⏎", "").startswith("<script>alert('x')</script>b<&>&lt;\n")
    assert texts[-4:] == ["e6 9d", "b1", "<|end|>", '<i onclick="x">']
    assert 'title="257: b&#x27;&lt;&amp;&gt;&#x27;"' in markup
    assert summary == "38 tokens, 61 bytes"


def test_a_long_text_is_shown_in_part():
    *pieces, more, _ = shown(TOKENIZER.pieces("ab" * MAX_SHOWN)._repr_html_())
    assert len(pieces) == MAX_SHOWN
    assert more.startswith(f" … and {MAX_SHOWN:,} more")
    assert repr(TOKENIZER.pieces("ab" * 99)).endswith("'b', ...>")
    title, *pieces, _ = shown(TOKENIZER._repr_html_())
    assert (title, pieces[-1]) == (repr(TOKENIZER), "<|end|>")
    spec = TokenizerSpec.from_merges(VOCAB, MERGES, normalizer="prefix-space")
    assert list(Tokenizer.from_spec(spec).pieces("lo")) == [(32, b" "), (259, b"lo")]
