r"""Expressions as deterministic automata, which split a text in linear time.

An automaton reads classes of characters: two code points are in one class if no set of the
expression tells them apart. It starts where the last match ended and stops where no way through the
expression is left. Among the ways, the first one in the order of a backtracking engine wins: a
state is the *ordered* list of the places that are still possible, and a match drops the places
after it.

A place may ask for the next character (`\s+(?!\S)`, `\Z`). A state lists the places before any such
question; a move answers it with the character that it reads, or with the end of the text. So a move
says two things: whether a match ends before its character, and the state after it. Possessive
repetitions of a set become such questions: `x++` is `x+(?!x)`.

Some expressions have no automaton here, and `regex` runs them: those with lookbehind, with
lookahead of several characters, with other atomic groups, and those that can match nothing.

`cuts` says between which two characters a text may be cut, because either side is split as if the
other were not there; see `_cuts_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import regex

from tokenizer_core.splitting.dialects.syntax import (
    LINE_END,
    Alternatives,
    Assertion,
    Atomic,
    Characters,
    Complement,
    Item,
    Look,
    Operation,
    Repeat,
    Sequence,
    Union,
    always_matches,
    lengths,
    nodes_in,
)
from tokenizer_core.splitting.unicode_sets import (
    LAST,
    complement,
    intersect,
    join,
    ranges_of,
    subtract,
)

if TYPE_CHECKING:
    from collections.abc import Sequence as Listed

    from numpy.typing import NDArray

    from tokenizer_core.splitting.dialects.syntax import CharacterSet, Node
    from tokenizer_core.splitting.unicode_sets import Ranges

MAX_PLACES: Final = 4_000
MAX_STATES: Final = 2_000
MAX_CLASSES: Final = 250
_MAX_WORK: Final = 3_000_000  # places looked at: a second

DEAD: Final = 0
"""The state without a way through."""
START: Final = 1
MATCHED: Final = 1 << 31
"""Flag of a move: a match ends before the character that it reads."""
_STATE: Final = np.uint32(MATCHED - 1)


class NoAutomatonError(Exception):
    """The expression has no automaton here; says why."""


class Step(NamedTuple):
    """One expression of a pattern, and what becomes of its matches; see `patterns.SplitPattern`."""

    node: Node
    behavior: str
    invert: bool
    drops_unmatched: bool


@dataclass(frozen=True, eq=False)
class SplitAutomaton:
    """The automata of a pattern's steps over common classes.

    - `firsts`, `numbers`: a run of code points begins at each of `firsts` (ascending, from 0), and
      its class is in `numbers`; shape (n_runs,), uint32 and uint8.
    - `moves`: for each step the state and flag after a state and a class, shape
      (n_states, n_classes + 1), uint32. The last column is the end of the text and leads to DEAD.
    - `steps`: for each step behavior, `invert`, and whether text without a match is dropped.
    - `cuts`: whether a text may be cut between characters of two classes, shape
      (n_classes, n_classes).
    """

    firsts: NDArray[np.uint32]
    numbers: NDArray[np.uint8]
    moves: tuple[NDArray[np.uint32], ...]
    steps: tuple[tuple[str, bool, bool], ...]
    cuts: NDArray[np.bool_]

    @cached_property
    def class_table(self) -> NDArray[np.uint8]:
        """The class of each code point, shape (0x110000,)."""
        return np.repeat(self.numbers, np.diff(np.append(self.firsts, LAST + 1)))

    def cuts_in(self, text: str) -> NDArray[np.intp]:
        """The positions in `text`, in characters, where it may be cut, ascending.

        Raises UnicodeEncodeError for a lone surrogate.
        """
        points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        classes = self.class_table[points]
        return np.flatnonzero(self.cuts[classes[:-1], classes[1:]]) + 1


def build_automaton(steps: Listed[Step]) -> SplitAutomaton:
    """Make the automaton of a pattern. Raises NoAutomatonError: an expression has none here."""
    if any(lengths(step.node)[0] == 0 for step in steps):
        raise NoAutomatonError("an expression that can match nothing")
    firsts, numbers, masks = classes_of([step.node for step in steps])
    n_classes = max(numbers) + 1
    if n_classes > MAX_CLASSES:
        raise NoAutomatonError(f"more than {MAX_CLASSES} classes of characters")
    moves = tuple(_moves_of(step.node, Places(masks, n_classes)) for step in steps)
    # Published patterns match at every character, so they drop nothing.
    steps = [
        step._replace(
            drops_unmatched=step.drops_unmatched
            and not _always_match(table) >= set((table[START, :-1] & _STATE).tolist())
        )
        for step, table in zip(steps, moves, strict=True)
    ]
    return SplitAutomaton(
        np.array(firsts, np.uint32),
        np.array(numbers, np.uint8),
        moves,
        tuple((step.behavior, step.invert, step.drops_unmatched) for step in steps),
        _cuts_of(steps, moves),
    )


def _set_of(node: Node) -> CharacterSet | None:
    """The set of which the node itself asks for a character."""
    if isinstance(node, Characters):
        return node.set
    return _NEWLINE if isinstance(node, Assertion) and node.text == LINE_END else None


_NEWLINE: Final = Item(r"\n")
_MEMBER: Final = regex.compile(
    r"(?P<class>\\p\{(?P<name>[^}]+)\}|\\[sdw])|(?P<first>\\U.{8}|\\x..|\\.|.)"
    r"(?:-(?P<last>\\U.{8}|\\x..|\\.|.))?"
)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t"}


def _ranges(characters: CharacterSet) -> Ranges:
    match characters:
        case Item(text):
            return join(map(_member_ranges, _MEMBER.finditer(text)))
        case Union(sets):
            return join(map(_ranges, sets))
        case Complement(inner):
            return complement(_ranges(inner))
        case Operation(operator, left, right):
            one, other = _ranges(left), _ranges(right)
            if operator == "&&":
                return intersect(one, other)
            if operator == "--":
                return subtract(one, other)
            return subtract(join([one, other]), intersect(one, other))


def _member_ranges(member: regex.Match[str]) -> Ranges:
    if member["class"]:
        return ranges_of(member["name"] or member["class"])
    first = _code_point(member["first"])
    return ((first, _code_point(member["last"]) if member["last"] else first),)


def _code_point(written: str) -> int:
    if written[0] != "\\":
        return ord(written)
    if written[1] in "Ux":
        return int(written[2:], 16)
    return ord(_CONTROLS.get(written[1], written[1]))


def classes_of(nodes: Listed[Node]) -> tuple[list[int], list[int], dict[CharacterSet, int]]:
    """The runs of code points with their classes, and for each set the classes in it as bits."""
    found = (_set_of(one) for node in nodes for one in nodes_in(node))
    sets = list(dict.fromkeys(one for one in found if one is not None))
    changes: dict[int, int] = {0: 0}
    for index, characters in enumerate(sets):
        for first, last in _ranges(characters):
            changes[first] = changes.get(first, 0) ^ 1 << index
            changes[last + 1] = changes.get(last + 1, 0) ^ 1 << index
    changes.pop(LAST + 1, None)
    firsts: list[int] = []
    numbers: list[int] = []
    signature = 0
    number_of: dict[int, int] = {}
    for first in sorted(changes):
        signature ^= changes[first]
        number = number_of.setdefault(signature, len(number_of))
        if not numbers or numbers[-1] != number:
            firsts.append(first)
            numbers.append(number)
    masks = [0] * len(sets)
    for signature, number in number_of.items():
        while signature:
            lowest = signature & -signature
            masks[lowest.bit_length() - 1] |= 1 << number
            signature ^= lowest
    return firsts, numbers, dict(zip(sets, masks, strict=True))


READ, ASK, FORK, MATCH = range(4)


class Places:
    """The program of an expression.

    A place reads a character of a set (`READ`), tests the next one without reading it (`ASK`),
    continues at two places, the preferred one first (`FORK`), or ends a match (`MATCH`). `values`
    has the mask of a set, or the second place of a fork.
    """

    most = MAX_PLACES

    def __init__(self, masks: dict[CharacterSet, int], n_classes: int) -> None:
        self._masks = masks
        self._end = 1 << n_classes
        self.n_symbols = n_classes + 1
        self.any = (1 << self.n_symbols) - 1
        self.kinds: list[int] = []
        self.values: list[int] = []
        self.next: list[int] = []

    def place(self, kind: int, value: int = 0, following: int = -1) -> int:
        """Add a place; raises NoAutomatonError if there are too many."""
        if len(self.kinds) >= self.most:
            raise NoAutomatonError("too many places")
        self.kinds.append(kind)
        self.values.append(value)
        self.next.append(following)
        return len(self.kinds) - 1

    def add(self, node: Node, following: int, *, is_last: bool) -> int:
        """Add the places of a node that goes on at `following`; returns its first place. `is_last`:
        nothing after it can fail."""
        match node:
            case Characters(characters):
                return self.place(READ, self._masks[characters], following)
            case Assertion() | Look():
                return self.ask(node, following)
            case Sequence(parts):
                for part in reversed(parts):
                    following = self.add(part, following, is_last=is_last)
                    is_last = is_last and always_matches(part)
                return following
            case Alternatives(parts):
                first = self.add(parts[-1], following, is_last=is_last)
                for part in reversed(parts[:-1]):
                    way = self.add(part, following, is_last=is_last)
                    first = self.place(FORK, first, way)
                return first
            case Repeat(body, least, most, is_lazy):
                return self._repeat(body, least, most, following, is_lazy=is_lazy)
            case Atomic(body):
                return self.atomic(body, following, is_last=is_last)

    def ask(self, node: Assertion | Look, following: int) -> int:
        """Add an assertion."""
        return self.place(ASK, self._asked(node), following)

    def atomic(self, body: Node, following: int, *, is_last: bool) -> int:
        """Add an atomic group."""
        if is_last:
            return self.add(body, following, is_last=True)
        match body:
            case Repeat(Characters(characters), least, most, is_lazy=False):
                rest = self.any & ~self._masks[characters]
                left = self.place(ASK, rest, following)
                return self._repeat(body.body, least, most, following, left=left, is_lazy=False)
            case Atomic(inner):
                return self.atomic(inner, following, is_last=False)
            case Characters() | Assertion() | Look():
                return self.add(body, following, is_last=False)
        raise NoAutomatonError("an atomic group with something after it")

    def _repeat(
        self,
        body: Node,
        least: int,
        most: int | None,
        following: int,
        *,
        is_lazy: bool,
        left: int | None = None,
    ) -> int:
        """The places of a repetition; one with fewer than `most` goes on at `left`, if given."""
        left = following if left is None else left
        if most is None:
            fork = self.place(FORK, -1, -1)
            again = self.add(body, fork, is_last=False)
            self.next[fork], self.values[fork] = (left, again) if is_lazy else (again, left)
            first = fork
        else:
            first = following
            for _ in range(most - least):
                again = self.add(body, first, is_last=False)
                first = self.place(FORK, *((again, left) if is_lazy else (left, again)))
        for _ in range(least):
            first = self.add(body, first, is_last=False)
        return first

    def _asked(self, node: Node) -> int:
        """The next characters, and the end of the text, before which the node matches."""
        match node:
            case Assertion(r"\Z"):
                return self._end
            case Assertion(text) if text == LINE_END:
                return self._end | self._masks[_NEWLINE]
            case Look(body, is_behind=False, is_negative=is_negative):
                asked = self._first_of(body)
                return self.any & ~asked if is_negative else asked
        raise NoAutomatonError("a lookbehind, or an assertion other than the end of the text")

    def _first_of(self, node: Node) -> int:
        match node:
            case Characters(characters):
                return self._masks[characters]
            case Alternatives(parts):
                asked = 0
                for part in parts:
                    asked |= self._first_of(part)
                return asked
            case Atomic(body):
                return self._first_of(body)
            case Assertion() | Look():
                return self._asked(node)
            case Repeat(Characters(), least=1):
                return self._first_of(node.body)
        raise NoAutomatonError("a lookahead of several characters")


def _moves_of(node: Node, places: Places) -> NDArray[np.uint32]:
    """The moves of one expression, as in `SplitAutomaton`."""
    start = places.add(node, places.place(MATCH), is_last=True)
    states: dict[tuple[int, ...], int] = {(): DEAD, (start,): START}
    waiting: list[tuple[int, ...]] = [(start,)]
    rows: list[list[int]] = [[DEAD] * places.n_symbols]
    work = 0
    for state in waiting:
        row = []
        for symbol in range(places.n_symbols):
            has_matched, after, n_places = _move(places, state, 1 << symbol)
            work += n_places
            if after not in states:
                states[after] = len(states)
                waiting.append(after)
            row.append(states[after] | (MATCHED if has_matched else 0))
        rows.append(row)
        if len(states) > MAX_STATES or work > _MAX_WORK:
            raise NoAutomatonError("too many states")
    return np.array(rows, np.uint32)


def _move(places: Places, state: tuple[int, ...], symbol: int) -> tuple[bool, tuple[int, ...], int]:
    """Whether a match ends before the symbol, the state after it, and the places visited."""
    after: dict[int, None] = {}
    seen: set[int] = set()
    stack = list(reversed(state))
    while stack:
        place = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        kind = places.kinds[place]
        if kind == MATCH:
            return True, tuple(after), len(seen)
        if kind == FORK:
            stack += (places.values[place], places.next[place])
        elif places.values[place] & symbol:
            if kind == ASK:
                stack.append(places.next[place])
            else:
                after[places.next[place]] = None
    return False, tuple(after), len(seen)


def _cuts_of(steps: Listed[Step], moves: Listed[NDArray[np.uint32]]) -> NDArray[np.bool_]:
    """Between which two classes a text may be cut.

    A cut is *inert* in a step if, whatever was read before the first character, no way leads on
    over the second one, and a match ends between them exactly if it also ends at the end of a text.
    Then no match crosses the cut, and both sides have the same matches with the cut as without. It
    is a *boundary* if, moreover, the first character is never in the text between two matches,
    which the cut would divide: alone, it begins a match that ends at the cut. A cut that is inert
    in all steps and a boundary of one step divides no pre-token. Text that a step drops may be cut
    as well.
    """
    n_classes = moves[0].shape[1] - 1
    inert = np.ones((n_classes, n_classes), np.bool_)
    boundary = np.zeros((n_classes, n_classes), np.bool_)
    for step, table in zip(steps, moves, strict=True):
        if step.behavior in ("contiguous", "merged-with-previous", "merged-with-next"):
            return np.zeros((n_classes, n_classes), np.bool_)
        states, matched = _parts_of(table)
        may_cut = (states[:, :-1] == DEAD) & (matched[:, :-1] == matched[:, -1:])
        for one in range(n_classes):
            after = np.unique(states[:, one])
            inert[one] &= may_cut[after[after != DEAD]].all(axis=0)
        boundary |= matched[states[START, :-1], :-1] | step.drops_unmatched
    return inert & boundary


def _parts_of(table: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """The states of moves, and whether a match ends."""
    return table & _STATE, (table & np.uint32(MATCHED)) != 0


def _always_match(table: NDArray[np.uint32]) -> set[int]:
    """The states in which a match is certain for any following text."""
    states, matched = _parts_of(table)
    # The largest set of states each of whose moves has matched or leads into the set.
    is_sure = np.ones(len(states), np.bool_)
    is_sure[DEAD] = False
    while True:
        still = is_sure & (matched | is_sure[states]).all(axis=1)
        if (still == is_sure).all():
            return set(np.flatnonzero(is_sure).tolist())
        is_sure = still
