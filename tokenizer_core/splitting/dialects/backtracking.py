r"""Refuses expressions on which a backtracking engine can take exponential time.

Backtracking is exponential when a loop can read one text in two ways: `(a|aa)*`, `(\w+\s?)*`. The
expression becomes an automaton without empty moves: its places are the characters of the
expression, and a move leads to each place that may read the next character. Two ways around a loop
for one text are a pair of different places that is reached from a pair of equal ones, and leads
back to one.
Pairs are only searched within a loop, where there are few places.

A loop at the end, after which nothing can fail, is left at its first way out: `\p{N}{1,3}+` as a
whole alternative takes linear time, whatever it may match in how many ways. The end of a lookahead
is such an end too.

Assertions and atomic groups count as if they held nothing back, so an expression may be refused
that is harmless. One exception: after `x++` the next character is no `x`. Which characters two sets
share is decided on a sample. What gets past this check, and everything that takes quadratic time,
ends at the time limit of `pretokenize`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn

import regex

from tokenizer_core.splitting.dialects.syntax import (
    Alternatives,
    Assertion,
    Atomic,
    Characters,
    CharacterSet,
    Look,
    Node,
    Repeat,
    Sequence,
    always_matches,
    set_text,
)
from tokenizer_core.splitting.unicode_sets import compile_exactly

MAX_LOOP_PLACES: Final = 200
_MAX_PLACES: Final = 20_000
_MAX_MOVES: Final = 100_000
_MAX_COPIES: Final = 8
_MANY: Final = 2  # two ways or more

Refuse = Callable[[str, int | None, str], NoReturn]
Counts = dict[int, int]


def check_backtracking(node: Node, refuse: Refuse) -> None:
    """Call `refuse` if the expression can take exponential time, or is too large to tell."""
    automaton = _Automaton(refuse)
    automaton.add(node, is_last=True)
    for loop in automaton.loops():
        if len(loop) > MAX_LOOP_PLACES:
            refuse(f"a repeated part of more than {MAX_LOOP_PLACES} characters", None, "shorten it")
        if automaton.is_ambiguous(loop):
            refuse(
                "a repetition that can match one text in two ways, which can take exponential time",
                None,
                "make it possessive, or its parts exclusive",
            )


@dataclass(slots=True)
class _Part:
    """The places where a part of the expression begins and ends, and the ways to pass it without
    reading; each with the number of ways, at most `_MANY`. `closed`: what cannot follow an end."""

    first: Counts
    last: Counts
    n_empty: int
    closed: dict[int, int] = field(default_factory=dict)


class _Automaton:
    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self._masks: list[int] = []
        self._moves: list[Counts] = []
        self._n_moves = 0
        self._members = _sample_masks()

    def add(self, node: Node, *, is_last: bool) -> _Part:
        """Add the places and moves of a node; `is_last`: nothing after it can fail."""
        match node:
            case Characters(characters):
                return self._place(characters)
            case Assertion():
                return _Part({}, {}, 1)
            case Look(body):
                self.add(body, is_last=True)
                return _Part({}, {}, 1)
            case Atomic(body):
                return self._atomic(body, is_last=is_last)
            case Sequence(parts):
                added: list[_Part] = []
                for part in reversed(parts):
                    added.insert(0, self.add(part, is_last=is_last))
                    is_last = is_last and always_matches(part)
                return self._sequence(added)
            case Alternatives(parts):
                return _either([self.add(part, is_last=is_last) for part in parts])
            case Repeat(body, least) if is_last and least <= 1:
                return self.add(body, is_last=True)
            case Repeat(body, least, most):
                return self._repeat(body, least, most)

    def _place(self, characters: CharacterSet) -> _Part:
        if len(self._masks) >= _MAX_PLACES:
            self._refuse("an expression with too many repetitions", None, "shorten it")
        place = len(self._masks)
        self._masks.append(self._members(characters))
        self._moves.append({})
        return _Part({place: 1}, {place: 1}, 0)

    def _atomic(self, body: Node, *, is_last: bool) -> _Part:
        part = self.add(body, is_last=is_last)
        if isinstance(body, Repeat) and body.most is None and not body.is_lazy:
            inner = body.body
            if isinstance(inner, Characters):
                mask = self._members(inner.set)
                part.closed = dict.fromkeys(part.last, mask)
        return part

    def _sequence(self, parts: list[_Part]) -> _Part:
        joined = _Part({}, {}, 1)
        for part in parts:
            self._connect(joined, part)
            joined = _Part(
                _sum(joined.first, _times(part.first, joined.n_empty)),
                _sum(part.last, _times(joined.last, part.n_empty)),
                min(_MANY, joined.n_empty * part.n_empty),
                part.closed | joined.closed,
            )
        return joined

    def _repeat(self, body: Node, least: int, most: int | None) -> _Part:
        if most is not None and most <= _MAX_COPIES:
            copies = [self.add(body, is_last=False) for _ in range(most)]
            for copy in copies[least:]:
                copy.n_empty = min(_MANY, copy.n_empty + 1)
            if len(copies) == most and least < most - 1:
                return self._optional_copies(copies, least)
            return self._sequence(copies)
        part = self.add(body, is_last=False)
        self._connect(part, part)
        n_empty = part.n_empty + (least == 0)
        return _Part(part.first, part.last, min(_MANY, n_empty), part.closed)

    def _optional_copies(self, copies: list[_Part], least: int) -> _Part:
        """`x{2,4}` is `xx(x(x)?)?`: one way for each number of copies."""
        tail = copies[-1]
        for copy in reversed(copies[least:-1]):
            copy.n_empty = 0
            tail = self._sequence([copy, tail])
            tail.n_empty = 1
        return self._sequence([*copies[:least], tail])

    def _connect(self, one: _Part, other: _Part) -> None:
        self._n_moves += len(one.last) * len(other.first)
        if self._n_moves > _MAX_MOVES:
            self._refuse("an expression with too many ways through it", None, "shorten it")
        for end, n_ends in one.last.items():
            barred = one.closed.get(end, 0)
            moves = self._moves[end]
            for begin, n_begins in other.first.items():
                if self._masks[begin] & ~barred:
                    moves[begin] = min(_MANY, moves.get(begin, 0) + n_ends * n_begins)

    def loops(self) -> list[list[int]]:
        """The groups of places that reach each other (Tarjan's algorithm, without recursion)."""
        order: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        on_stack: set[int] = set()
        found: list[list[int]] = []
        for root in range(len(self._masks)):
            if root in order:
                continue
            work = [(root, iter(self._moves[root]))]
            order[root] = low[root] = len(order)
            stack.append(root)
            on_stack.add(root)
            while work:
                place, moves = work[-1]
                following = next(moves, None)
                if following is None:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[place])
                    if low[place] == order[place]:
                        group = stack[stack.index(place) :]
                        del stack[-len(group) :]
                        on_stack.difference_update(group)
                        if len(group) > 1 or place in self._moves[place]:
                            found.append(group)
                elif following not in order:
                    order[following] = low[following] = len(order)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(self._moves[following])))
                elif following in on_stack:
                    low[place] = min(low[place], order[following])
        return found

    def is_ambiguous(self, loop: list[int]) -> bool:
        """Whether the loop can be passed in two ways for one text."""
        inside = set(loop)
        moves = {
            place: [begin for begin in self._moves[place] if begin in inside] for place in loop
        }
        if any(self._moves[place][begin] > 1 for place in loop for begin in moves[place]):
            return True
        # Pairs of different places reached from equal ones, and whether any leads back.
        reached = self._closure([(place, place) for place in loop], moves)
        back: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for pair in reached:
            for following in self._pairs_after(pair, moves):
                back.setdefault(following, []).append(pair)
        seen = {(place, place) for place in loop}
        work = list(seen)
        while work:
            for before in back.get(work.pop(), ()):
                if before[0] != before[1]:
                    return True
                if before not in seen:
                    seen.add(before)
                    work.append(before)
        return False

    def _closure(
        self, start: list[tuple[int, int]], moves: dict[int, list[int]]
    ) -> set[tuple[int, int]]:
        seen = set(start)
        work = list(start)
        while work:
            for following in self._pairs_after(work.pop(), moves):
                if following not in seen:
                    seen.add(following)
                    work.append(following)
        return seen

    def _pairs_after(
        self, pair: tuple[int, int], moves: dict[int, list[int]]
    ) -> list[tuple[int, int]]:
        masks = self._masks
        return [
            (one, other)
            for one in moves[pair[0]]
            for other in moves[pair[1]]
            if masks[one] & masks[other]
        ]


def _either(parts: list[_Part]) -> _Part:
    joined = _Part({}, {}, 0)
    for part in parts:
        joined.first |= part.first
        joined.last |= part.last
        joined.closed |= part.closed
        joined.n_empty = min(_MANY, joined.n_empty + part.n_empty)
    return joined


def _sum(one: Counts, other: Counts) -> Counts:
    joined = dict(one)
    for place, number in other.items():
        joined[place] = min(_MANY, joined.get(place, 0) + number)
    return joined


def _times(counts: Counts, factor: int) -> Counts:
    return (
        {place: min(_MANY, number * factor) for place, number in counts.items()} if factor else {}
    )


@lru_cache(maxsize=1)
def _sample() -> str:
    """ASCII, Latin to Thai, and a character of most other scripts and classes."""
    return "".join(
        map(chr, [*range(0x0E80), *range(0x1000, 0xD800, 97), *range(0xE000, 0x20000, 61)])
    )


def _sample_masks() -> Callable[[CharacterSet], int]:
    """A function from a set to the characters of the sample that it holds, as bits."""
    sample = _sample()
    known: dict[str, int] = {}

    def members(characters: CharacterSet) -> int:
        text = set_text(characters)
        if text not in known:
            found = compile_exactly(text, regex.VERSION1)
            bits = bytearray(len(sample) // 8 + 1)
            for match in found.finditer(sample):
                at = match.start()
                bits[at >> 3] |= 1 << (at & 7)
            known[text] = int.from_bytes(bits, "little") or 1 << (len(sample) + len(known))
        return known[text]

    return members
