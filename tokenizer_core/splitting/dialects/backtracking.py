r"""Refuses expressions on which a backtracking engine can take exponential time.

Backtracking is exponential when a loop can read one text in two ways: `(a|aa)*`, `(\w+\s?)*`. A
move leads from a place of the expression that reads a character to each that may read the next one.
Two ways around a loop for one text are a pair of different places that is reached from a pair of
equal ones, and leads back to one. Pairs are only searched within a loop, where there are few
places.

A loop at the end, after which nothing can fail, is left at its first way out: `\p{N}{1,3}+` as a
whole alternative takes linear time, in however many ways it may match. The end of a lookahead
is such an end too.

Assertions and atomic groups count as if they held nothing back, so an expression may be refused
that is harmless. One exception: after `x++` the next character is no `x`. What gets past this
check, and everything that takes quadratic time, ends at the time limit of `pretokenize`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn, TypeVar

from tokenizer_core.splitting.dialects.automaton import (
    ASK,
    FORK,
    MATCH,
    READ,
    NoAutomatonError,
    Places,
    classes_of,
)
from tokenizer_core.splitting.dialects.syntax import Assertion, Characters, Look, Node, Repeat

MAX_LOOP_PLACES: Final = 200
_MAX_VISITS: Final = 500_000
_MAX_COPIES: Final = 8
_MANY: Final = 2  # two ways or more

T = TypeVar("T")


def check_backtracking(node: Node, refuse: Callable[[str, int | None, str], NoReturn]) -> None:
    """Call `refuse` if the expression can take exponential time, or is too large to tell."""
    _, numbers, masks = classes_of([node])
    places = _Ways(masks, max(numbers) + 1)
    try:
        places.add(node, places.place(MATCH), is_last=True)
        moves = places.moves()
    except NoAutomatonError as error:
        refuse(f"an expression with {error}", None, "shorten it")
    for loop in _loops(moves, moves.__getitem__):
        if len(loop) > MAX_LOOP_PLACES:
            refuse(f"a repeated part of more than {MAX_LOOP_PLACES} characters", None, "shorten it")
        if places.is_ambiguous(loop, moves):
            refuse(
                "a repetition that can match one text in two ways, which can take exponential time",
                None,
                "make it possessive, or its parts exclusive",
            )


class _Ways(Places):
    """The places as this check walks them: assertions are passed, and a repetition has few copies
    or is a loop."""

    most = 40_000

    def add(self, node: Node, following: int, *, is_last: bool) -> int:
        match node:
            case Repeat(body, least) if is_last and least <= 1:
                return self.add(body, following, is_last=True)
            case Repeat(body, least, most) if most is None or most > _MAX_COPIES:
                node = Repeat(body, min(least, 1), None)
        return super().add(node, following, is_last=is_last)

    def ask(self, node: Assertion | Look, following: int) -> int:
        if isinstance(node, Look):
            self.add(node.body, self.place(MATCH), is_last=True)
        return following

    def atomic(self, body: Node, following: int, *, is_last: bool) -> int:
        match body:
            case Repeat(Characters(characters), most=None, is_lazy=False):
                following = self.place(ASK, self.any & ~self._masks[characters], following)
        return self.add(body, following, is_last=is_last)

    def moves(self) -> dict[int, dict[int, int]]:
        """For each place that reads, those that may read next, and the ways to each, at most
        `_MANY`. Raises NoAutomatonError if there are too many ways to walk."""
        n_visits = 0
        found: dict[int, dict[int, int]] = {}
        for start in (place for place, kind in enumerate(self.kinds) if kind == READ):
            found[start] = {}
            visits: dict[tuple[int, int], int] = {}
            stack = [(self.next[start], self.any)]
            while stack:
                place, asked = stack.pop()
                visits[place, asked] = visits.get((place, asked), 0) + 1
                if visits[place, asked] > _MANY:
                    continue
                kind, value = self.kinds[place], self.values[place]
                if kind == READ and value & asked:
                    found[start][place] = min(_MANY, found[start].get(place, 0) + 1)
                elif kind == ASK:
                    stack.append((self.next[place], asked & value))
                elif kind == FORK:
                    stack += ((self.next[place], asked), (value, asked))
            n_visits += sum(visits.values())
            if n_visits > _MAX_VISITS:
                raise NoAutomatonError("too many ways through it")
        return found

    def is_ambiguous(self, loop: list[int], moves: dict[int, dict[int, int]]) -> bool:
        """Whether the loop can be passed in two ways for one text."""
        inside = {place: moves[place].keys() & set(loop) for place in loop}
        if any(moves[place][following] > 1 for place in loop for following in inside[place]):
            return True

        def after(pair: tuple[int, int]) -> list[tuple[int, int]]:
            values = self.values
            return [
                (one, other)
                for one in inside[pair[0]]
                for other in inside[pair[1]]
                if values[one] & values[other]
            ]

        groups = _loops([(place, place) for place in loop], after)
        return any(len({one == other for one, other in group}) > 1 for group in groups)


def _loops(starts: Iterable[T], after: Callable[[T], Iterable[T]]) -> Iterator[list[T]]:
    """The groups whose members reach each other (Tarjan's algorithm, without recursion)."""
    low: dict[T, int] = {}
    unfinished: dict[T, int] = {}  # the members of groups to come, and their numbers
    work: list[tuple[T, Iterator[T]]] = []

    def enter(one: T) -> None:
        low[one] = unfinished[one] = len(low)
        work.append((one, iter(after(one))))

    for start in starts:
        if start not in low:
            enter(start)
        while work:
            member, others = work[-1]
            other = next(others, None)
            if other is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[member])
                if low[member] == unfinished[member]:
                    group: list[T] = []
                    while member in unfinished:
                        group.append(unfinished.popitem()[0])
                    if len(group) > 1 or member in after(member):
                        yield group
            elif other not in low:
                enter(other)
            elif other in unfinished:
                low[member] = min(low[member], unfinished[other])
