"""Every operation gives what `str` gives, and each character keeps the origin that it had."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core.chat.traced_text import (
    LOST,
    TRUSTED,
    TracedText,
    join_traced,
    runs_of,
    traced,
)

FIRST = 10
TEXTS = st.text("ab \n,ßİ", max_size=12)
PIECES = st.text("ab \n,", max_size=2)
COUNTS = st.integers(-1, 4)


def one_origin_each(text: str, first: int = FIRST) -> str:
    """Character `i` has the origin `first + i`."""
    return join_traced("", [traced(char, first + i) for i, char in enumerate(text)])


def origins(text: str) -> list[int]:
    return [origin for length, origin in runs_of(text) for _ in range(length)]


def check(parts: Sequence[str], plain: Sequence[str], text: str, given_new: str = "") -> None:
    """Characters with an origin were in the text, and each keeps its origin."""
    assert list(parts) == list(plain)
    for part in parts:
        for char, origin in zip(part, origins(part), strict=True):
            source = given_new if origin >= 1000 else text
            assert char == source[origin - (1000 if origin >= 1000 else FIRST)]


PARTS: list[Callable[[str, str, int], Sequence[str]]] = [
    lambda text, piece, _: [text.strip(), text.strip(piece), text.removeprefix(piece)],
    lambda text, piece, _: [text.lstrip(), text.lstrip(piece), text.removesuffix(piece)],
    lambda text, piece, _: [text.rstrip(), text.rstrip(piece)],
    lambda text, piece, count: [
        *text.split(),
        *text.split(None, count),
        *text.split(piece or "a", count),
    ],
    lambda text, piece, count: [
        *text.rsplit(),
        *text.rsplit(None, count),
        *text.rsplit(piece or "a", count),
    ],
    lambda text, _, __: [*text.splitlines(), *text.splitlines(True)],
    lambda text, piece, _: text.partition(piece or "a"),
    lambda text, piece, _: text.rpartition(piece or "a"),
    lambda text, _, count: [text[count:], text[:count], text[1:count], text[:]],
    lambda text, _, count: [text[count % len(text)], text[-1]] if text else [],
    lambda text, _, __: [str(text)],
]


@given(text=TEXTS, piece=PIECES, count=COUNTS)
def test_parts_keep_the_origin_of_each_character(text: str, piece: str, count: int) -> None:
    for operation in PARTS:
        check(operation(one_origin_each(text), piece, count), operation(text, piece, count), text)


@given(text=TEXTS, old=PIECES, new=PIECES, count=COUNTS)
def test_replaced_text_has_the_origin_of_the_new_text(
    text: str, old: str, new: str, count: int
) -> None:
    old = old or "a"
    result = one_origin_each(text).replace(old, one_origin_each(new, 1000), count)
    check([result], [text.replace(old, new, count)], text, new)


@given(texts=st.lists(TEXTS, max_size=4), between=PIECES, count=COUNTS)
def test_joined_added_and_repeated_texts_keep_their_origins(
    texts: list[str], between: str, count: int
) -> None:
    whole = "".join(texts)
    parts, added = [], ""
    for text in texts:
        parts.append(one_origin_each(text, FIRST + len(added)))
        added = added + parts[-1]
    for joined in (join_traced("", parts), added):
        check([joined], [whole], whole)
    assert added * count == whole * count
    assert origins(added * count) == origins(added) * max(count, 0)
    joined = one_origin_each(between, 1000).join(parts)
    check([joined], [between.join(texts)], whole, between)
    plain = traced(between, TRUSTED).join(texts)
    n_trusted = max(0, (len(texts) - 1) * len(between))
    assert origins(plain).count(TRUSTED) == n_trusted


@given(text=TEXTS)
def test_case_keeps_origins_only_one_for_one(text: str) -> None:
    for name in ("upper", "lower", "title", "capitalize"):
        result: str = getattr(one_origin_each(text), name)()
        assert result == getattr(text, name)()
        if len(result) == len(text):
            assert origins(result) == origins(one_origin_each(text))
        elif len(text) > 1:
            assert set(origins(result)) == {LOST}
        else:  # one character: whatever it becomes has its origin
            assert set(origins(result)) == set(origins(one_origin_each(text)))


def test_other_operations_lose_trust() -> None:
    operations: list[Callable[[str], str]] = [
        lambda text: (text + traced("%*d", TRUSTED)) % (3, 1),
        lambda text: traced("%r", TRUSTED) % text,
        lambda text: (text + traced("{}", TRUSTED)).format(1),
        lambda text: f"{text}x",
        lambda text: text.center(40, "<"),
        lambda text: "".join(text),
        lambda text: "<" + text.swapcase(),
        lambda text: type(text)("".join(text)),
    ]
    for operation in operations:
        assert TRUSTED not in origins(operation(traced("<|end|>", TRUSTED)))


def test_a_plain_string_is_not_trusted() -> None:
    text = "user" + traced("<|end|>", TRUSTED) + "user"
    assert runs_of(text) == ((4, LOST), (7, TRUSTED), (4, LOST))
    assert runs_of(TracedText("abc")) == ((3, LOST),)
