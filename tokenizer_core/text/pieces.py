"""Pieces: a text cut into its tokens, which a notebook shows in colour.

The markup has no scripts and no style sheet. Its colours are translucent, so that they suit a light
and a dark notebook, and all text of the tokenizer and of the user is escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizer_core.spec.alphabet import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_SHOWN: Final = 2000
"""Tokens that a notebook shows; more would make it slow."""

_HUES: Final = ("66,133,244", "245,158,11", "34,170,84", "214,72,160", "132,94,247", "20,170,180")
_SIGNS: Final = str.maketrans({"\n": "⏎\n", "\r": "␍", "\t": "⇥\t"})


class Pieces:
    """The tokens of a text, in order; iterating gives (id, bytes) pairs.

    `ids` are the token ids. The bytes are those of the vocabulary, so that a text which is changed
    before it is split (normalized, or begun with a space) shows what the model gets.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo"}
        >>> tokenizer = Tokenizer(vocab, [(b"l", b"o")])
        >>> pieces = tokenizer.pieces("low")
        >>> pieces, list(pieces)
        (<Pieces: 2 tokens: 'lo', 'w'>, [(256, b'lo'), (119, b'w')])
    """

    def __init__(self, text: str, ids: list[int], vocab: Mapping[int, bytes]) -> None:
        self.text, self.ids = text, ids
        self._vocab = vocab

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return ((id_, self._vocab[id_]) for id_ in self.ids)

    def __repr__(self) -> str:
        shown = [readable_token(token)[0] for _, token in self]
        listed = ", ".join(map(repr, shown[:20])) + (", ..." if len(shown) > 20 else "")
        return f"<Pieces: {len(self)} tokens{': ' if shown else ''}{listed}>"

    def _repr_html_(self) -> str:
        from html import escape

        spans = []
        for index, (id_, token) in enumerate(self):
            if index == MAX_SHOWN:
                spans.append(f" … and {len(self) - MAX_SHOWN:,} more")
                break
            text, is_text = readable_token(token)
            shown = escape(text.translate(_SIGNS) if is_text else text)
            font = "" if is_text else ";font-family:monospace;font-size:.85em"
            hue = _HUES[index % len(_HUES)]
            spans.append(
                f'<span title="{id_}: {escape(repr(token))}" style="background:rgba({hue},.28);'
                f"border-bottom:2px solid rgba({hue},.8);border-radius:3px;margin:0 1px;"
                f'-webkit-box-decoration-break:clone;box-decoration-break:clone{font}">{shown}</span>'
            )
        count = f"{len(self):,} tokens, {len(self.text.encode()):,} bytes"
        return (
            f'<div style="font-size:1rem;line-height:1.75;white-space:pre-wrap;'
            f'overflow-wrap:anywhere">{"".join(spans)}</div>'
            f'<div style="opacity:.7;font-size:.85em;margin-top:.4em">{count}</div>'
        )


def readable_token(token: bytes) -> tuple[str, bool]:
    """A token as text, or as hexadecimal bytes if it is a part of a character."""
    return (token.decode(), True) if is_utf8(token) else (token.hex(" "), False)
