r"""The syntax tree of a translated expression, and its text for `regex`.

The tree has only what all three engines have, with one meaning. The text is for version 1 of
`regex`, which has differences of sets. Case folding is already resolved
into sets, so no flag is needed. Every literal is written so that it cannot be read as syntax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Item:
    r"""A member of a set, as `regex` writes it: a character, a range or `\p{L}`."""

    text: str


@dataclass(frozen=True, slots=True)
class Union:
    """The characters of any of the sets; without sets, no character."""

    sets: tuple[CharacterSet, ...]


@dataclass(frozen=True, slots=True)
class Complement:
    """All characters that are not in the set."""

    inner: CharacterSet


@dataclass(frozen=True, slots=True)
class Operation:
    """Intersection (`&&`), difference (`--`) or symmetric difference (`~~`) of two sets."""

    operator: Literal["&&", "--", "~~"]
    left: CharacterSet
    right: CharacterSet


CharacterSet = Item | Union | Complement | Operation


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set. `literal` is the character if there is one, and `folded` the
    lower-case character of a literal under `(?i)`."""

    set: CharacterSet
    literal: str | None = None
    folded: str | None = None


@dataclass(frozen=True, slots=True)
class Assertion:
    """A place in the text, as `regex` writes it."""

    text: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """The parts one after the other; without parts, the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The first of the parts that leads to a match."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Atomic:
    """The first match of the body, which is never given up for another."""

    body: Node


@dataclass(frozen=True, slots=True)
class Look:
    """Whether the body matches (or not) after or before this place."""

    body: Node
    is_behind: bool
    is_negative: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """The body `least` to `most` times; without `most`, any number of times."""

    body: Node
    least: int
    most: int | None
    is_lazy: bool = False


Node = Characters | Assertion | Sequence | Alternatives | Atomic | Look | Repeat

LINE_END: Final = r"(?![^\n])"
"""The assertion that a line ends."""

_ANY: Final = "(?s:.)"
_NONE: Final = "(?!)"


def literal_text(character: str) -> str:
    """The character as `regex` reads it inside and outside a set."""
    if character.isascii() and character.isalnum():
        return character
    return f"\\U{ord(character):08X}"


def range_item(first: str, last: str) -> Item:
    """The set of the characters from `first` to `last`, both included."""
    return Item(f"{literal_text(first)}-{literal_text(last)}")


def set_text(characters: CharacterSet) -> str:
    """An expression that matches one character of the set and holds no alternative open.

    Brackets hold only what they name. `regex` 2025.9.18 reads `[^\\d\\D]` as every character, and
    `[^a]|[^b]` as `[^ab]`. So a complement is never a member of brackets, nor a bare alternative,
    and operations are lookaheads, but for differences of what is named, which are twice as fast in
    brackets.
    """
    match characters:
        case Item(text):
            return f"[{text}]"
        case Complement(Item(text)):
            return f"[^{text}]"
        case Complement(Union(())):
            return _ANY
        case Complement(inner):
            return f"(?:(?!{set_text(inner)}){_ANY})"
        case Union(sets):
            return _union_text(sets)
        case Operation("--", Item(left), Item(right)):
            return f"[[{left}]--[{right}]]"
        case Operation("&&", Item(left), Complement(Item(right))):
            return f"[[{left}]--[{right}]]"
        case Operation("~~", left, right):
            one, other = set_text(left), set_text(right)
            return f"(?>(?!{other}){one}|(?!{one}){other})"
        case Operation("--", left, right) | Operation("&&", left, Complement(right)):
            return f"(?:(?!{set_text(right)}){set_text(left)})"
        case Operation(_, left, right):
            return f"(?:(?={set_text(right)}){set_text(left)})"


def _union_text(sets: tuple[CharacterSet, ...]) -> str:
    named = "".join(one.text for one in sets if isinstance(one, Item))
    texts = [f"[{named}]"] if named else []
    left_out = [found for one in sets if (found := _left_out(one))]
    if left_out:
        # Not in the union is what every complement leaves out and nothing names.
        outside = "".join(f"(?={one})" for one in left_out) + "".join(f"(?!{one})" for one in texts)
        texts = [f"(?:(?!{outside}){_ANY})"]
    texts += [set_text(one) for one in sets if not (isinstance(one, Item) or _left_out(one))]
    if len(texts) > 1:
        return f"(?>{'|'.join(texts)})"
    return texts[0] if texts else _NONE


def _left_out(characters: CharacterSet) -> str:
    """What `[^...]` leaves out, in brackets; an empty string for any other set."""
    if isinstance(characters, Complement) and isinstance(characters.inner, Item):
        return set_text(characters.inner)
    return ""


def union(sets: list[CharacterSet]) -> CharacterSet:
    """The union of the sets, with unions among them opened and items joined."""
    opened: list[CharacterSet] = []
    for one in sets:
        opened += one.sets if isinstance(one, Union) else [one]
    named = "".join(one.text for one in opened if isinstance(one, Item))
    others = [one for one in opened if not isinstance(one, Item)]
    made = [Item(named), *others] if named else others
    return made[0] if len(made) == 1 else Union(tuple(made))


def node_text(node: Node) -> str:
    """The expression for version 1 of `regex`."""
    match node:
        case Characters(characters, literal):
            return set_text(characters) if literal is None else literal_text(literal)
        case Assertion(text):
            return text
        case Sequence(parts):
            return "".join(map(_part_text, parts))
        case Alternatives(parts):
            return "|".join(map(_alternative_text, parts))
        case Atomic(body):
            return f"(?>{node_text(body)})"
        case Look(body, is_behind, is_negative):
            behind, sign = "<" if is_behind else "", "!" if is_negative else "="
            return f"(?{behind}{sign}{node_text(body)})"
        case Repeat(body, least, most, is_lazy):
            whole = node_text(body)
            if not isinstance(body, Characters):
                whole = f"(?:{whole})"
            return f"{whole}{_bounds_text(least, most)}{'?' if is_lazy else ''}"


def _alternative_text(part: Node) -> str:
    left_out = _left_out(part.set) if isinstance(part, Characters) else ""
    return f"(?!{left_out}){_ANY}" if left_out else node_text(part)


def _part_text(part: Node) -> str:
    return f"(?:{node_text(part)})" if isinstance(part, Alternatives) else node_text(part)


def _bounds_text(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if least == most:
        return f"{{{least}}}"
    return short.get((least, most)) or f"{{{least},{'' if most is None else most}}}"


def lengths(node: Node) -> tuple[int, int | None]:
    """The fewest and the most characters that a match of the node covers; None: any number."""
    match node:
        case Characters():
            return 1, 1
        case Assertion() | Look():
            return 0, 0
        case Atomic(body):
            return lengths(body)
        case Sequence(parts):
            nothing: tuple[int, int | None] = (0, 0)
            return reduce(_add, map(lengths, parts), nothing)
        case Alternatives(parts):
            shortest, longest = zip(*map(lengths, parts), strict=True)
            return min(shortest), None if None in longest else max(longest)
        case Repeat(body, least, most):
            low, high = lengths(body)
            if high == 0:
                return 0, 0
            return low * least, None if high is None or most is None else high * most


def nodes_in(node: Node) -> Iterator[Node]:
    """The node and the nodes within, in order."""
    yield node
    match node:
        case Sequence(parts) | Alternatives(parts):
            for part in parts:
                yield from nodes_in(part)
        case Atomic(body) | Look(body) | Repeat(body):
            yield from nodes_in(body)


def always_matches(node: Node) -> bool:
    """Whether the node matches at every position, perhaps nothing."""
    match node:
        case Repeat(_, least):
            return least == 0
        case Sequence(parts):
            return all(map(always_matches, parts))
        case Alternatives(parts):
            return any(map(always_matches, parts))
        case Atomic(body):
            return always_matches(body)
    return False


def unrolled_size(node: Node) -> int:
    """The number of characters of the expression with its counted repetitions written out, which
    `regex` does in memory."""
    match node:
        case Characters():
            return 1
        case Assertion():
            return 0
        case Look(body) | Atomic(body):
            return unrolled_size(body)
        case Sequence(parts) | Alternatives(parts):
            return sum(map(unrolled_size, parts))
        case Repeat(body, least, most):
            return unrolled_size(body) * max(1, least, most or 0)


def sets_in(node: Node) -> list[str] | None:
    """An expression for one character of each set in the node; None if the node also looks at
    characters around its match."""
    nodes = list(nodes_in(node))
    if any(isinstance(one, Assertion | Look) for one in nodes):
        return None
    return [set_text(one.set) for one in nodes if isinstance(one, Characters)]


def _add(one: tuple[int, int | None], other: tuple[int, int | None]) -> tuple[int, int | None]:
    most = None if one[1] is None or other[1] is None else one[1] + other[1]
    return one[0] + other[0], most
