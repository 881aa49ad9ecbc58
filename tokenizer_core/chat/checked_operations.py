"""The operations of a template that runs in the calling process.

Each takes the budget, then its operands. It knows the types for which it has a bound, and takes
that many units before it spends them; a unit is about a character that is copied. For other types
it raises `ElsewhereError`. Results are those of the operations in `template.py`, with the same
origins.
"""

from __future__ import annotations

import operator
from functools import partial, reduce
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, cast

from jinja2 import Undefined
from jinja2.filters import do_default, do_dictsort
from jinja2.runtime import LoopContext

from tokenizer_core.chat.template import TemplateNamespace, indent, to_json
from tokenizer_core.chat.traced_text import (
    Runs,
    TracedMarkup,
    TracedText,
    join_runs,
    join_traced,
    runs_of,
    with_runs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

OBJECT_UNITS: Final = 32
CALL_UNITS: Final = 256
_RUN_UNITS: Final = 8

MOST_DEPTH: Final = 100
"""Of values within each other, and of the parts of a template."""

_LARGEST: Final = 1 << 63
"""Numbers up to this size take the same time."""

_LONGEST_SEPARATOR: Final = 64
_WIDEST_MARGIN: Final = 64


class ElsewhereError(Exception):
    """Only the child process can render this conversation."""


class Budget:
    """What is left of the units of one rendering, and how many macros are within each other."""

    __slots__ = ("depth", "left")

    def __init__(self, units: int) -> None:
        self.left = units
        self.depth = 0

    def take(self, units: int) -> None:
        """Take units before they are spent. Raises ElsewhereError: there are not as many left."""
        self.left -= units
        if self.left < 0:
            raise ElsewhereError


# --- Values ---------------------------------------------------------------------------------------


def _require(condition: bool) -> None:
    if not condition:
        raise ElsewhereError


def _number(value: Any) -> Any:
    _require(type(value) in _NUMBERS and -_LARGEST < value < _LARGEST)  # nor if it is no number
    return value


def _units_of_number(value: float) -> int:
    _number(value)
    return OBJECT_UNITS


def _units_of_text(text: TracedText) -> int:
    return len(text) + _RUN_UNITS * len(text._runs) + OBJECT_UNITS


_COPY: Final[dict[type, Callable[[Any], int]]] = {
    str: lambda text: len(text) + OBJECT_UNITS,
    **dict.fromkeys((TracedText, TracedMarkup), _units_of_text),
    **dict.fromkeys((bool, float, int), _units_of_number),
    **dict.fromkeys((NoneType, Undefined), lambda _: OBJECT_UNITS),
    **dict.fromkeys((dict, list, tuple), lambda value: OBJECT_UNITS * (1 + len(value))),
}
"""The units for a copy of a value of each kind, without the values inside it."""

_NUMBERS: Final = frozenset({bool, float, int})
SCALARS: Final = _NUMBERS | {NoneType}
TEXTS: Final = frozenset({TracedText, str})
_PLAIN: Final = SCALARS | {dict, list, str}
_WRITTEN: Final = _PLAIN | {TracedText, tuple}
_PRINTED: Final = SCALARS | TEXTS | {TracedMarkup, Undefined}
_FIELDLESS: Final = SCALARS | TEXTS | {list, tuple}
_SIZED: Final = TEXTS | {dict, list, tuple, type({}.items()), type({}.keys()), type({}.values())}
LOOP_FIELDS: Final = frozenset(
    {"depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"}
)


def _units(value: Any, kinds: Collection[type] = TEXTS) -> int:
    """The units for a copy of a value, which must be of one of the kinds."""
    kind = type(value)
    if kind is str and str in kinds:
        return len(value) + OBJECT_UNITS
    _require(kind in kinds)
    return _COPY[kind](value)


def take_plain(budget: Budget, value: Any) -> None:
    """Take the units for a value of the request, which must be what JSON would give back."""
    _take_value(budget, value, _PLAIN)


def _take_value(budget: Budget, value: Any, kinds: Collection[type] = _WRITTEN) -> None:
    """Take the units for a value with all that is in it, as often as it is in it."""
    level = [value]
    for _ in range(MOST_DEPTH):
        below: list[Any] = []
        for each in level:
            units = _units(each, kinds)
            kind = type(each)
            if kind in TEXTS:
                each.isascii() or each.encode()  # a lone surrogate raises an error
            elif kind is dict:
                for key, item in each.items():
                    _require(type(key) in TEXTS)
                    key.isascii() or key.encode()
                    units += len(key)
                    if type(item) is str and item.isascii():
                        units += len(item)
                    else:
                        below.append(item)
            elif kind in (list, tuple):
                below += each
            budget.take(units)
        if not below:
            return
        level = below
    raise ElsewhereError


def _text(budget: Budget, value: Any) -> Any:
    """A text of a sum with a literal, which is copied where it is printed."""
    _require(type(value) in TEXTS)
    return value


def join_printed(budget: Budget, values: Iterable[Any]) -> tuple[str, Runs]:
    """The text of what a template prints, and its origins."""
    texts = list(values)
    if not TEXTS.issuperset(map(type, texts)):
        texts = [_as_text(budget, value) for value in texts]
    all_runs = [text._runs if type(text) is TracedText else runs_of(text) for text in texts]
    budget.take(sum(map(len, texts)) + _RUN_UNITS * sum(map(len, all_runs)) + OBJECT_UNITS)
    return "".join(texts), join_runs(all_runs)


def _as_text(budget: Budget, value: Any) -> str:
    if type(value) not in TEXTS:
        budget.take(_units(value, _PRINTED))
        return str(value)
    return cast("str", value)


def get_field(value: Any, name: str) -> Any:
    """`value.name`"""
    kind = type(value)
    if kind is dict and name in value:
        return value[name]
    if kind is LoopContext:
        _require(name in LOOP_FIELDS)
        return getattr(value, name)
    if kind is TemplateNamespace and hasattr(value, name):
        return getattr(value, name)
    _require(kind in (dict, TemplateNamespace) or (kind in _FIELDLESS and not hasattr(value, name)))
    return Undefined(obj=value, name=name)


def get_item(value: Any, key: Any) -> Any:
    """`value[key]`, where looking for the key has a bound."""
    kind = type(value)
    if kind is dict:
        if type(key) in TEXTS:
            if key in value:
                return value[key]
            if not hasattr(dict, key):
                return Undefined(obj=value, name=key)
    elif type(key) is int and kind in (list, tuple, TracedText, str):
        try:
            return value[key]
        except IndexError:
            return Undefined(obj=value, name=cast("str", key))
    elif type(key) in TEXTS and kind in _FIELDLESS and not hasattr(value, key):
        return Undefined(obj=value, name=key)
    raise ElsewhereError


def _checked_item(budget: Budget, value: Any, key: Any) -> Any:
    for text in (key, value):
        if type(text) in TEXTS:
            budget.take(_units(text))
    return get_item(value, key)


def _slice(budget: Budget, value: Any, *bounds: Any) -> Any:
    """`value[start:stop:step]`"""
    for bound in bounds:
        _units(bound, SCALARS)
    budget.take(_units(value, TEXTS | {list, tuple}))
    return value[slice(*bounds)]


def _iterate(budget: Budget, value: Any, units_each: int = 0) -> Any:
    """`value`, from which values are taken; each costs `units_each` more."""
    kind = type(value)
    if kind in _SIZED or kind is range:
        budget.take(OBJECT_UNITS * (1 + len(value)))
    elif kind is not Undefined and kind is not _Lazy:
        raise ElsewhereError
    budget.take(units_each * operator.length_hint(value))
    return value


class _Lazy:
    """An iterator, as the filters that make one return it, over at most `n_most` values."""

    def __init__(self, values: Iterator[Any], n_most: int) -> None:
        self._values, self._n_most = values, n_most

    def __iter__(self) -> Iterator[Any]:
        return self._values

    def __next__(self) -> Any:
        return next(self._values)

    def __length_hint__(self) -> int:
        return self._n_most


# --- Operations -----------------------------------------------------------------------------------


def _add(budget: Budget, left: Any, right: Any) -> Any:
    kind = type(left)
    if kind in TEXTS:
        budget.take(_units(left) + _units(right))
    elif kind in (list, tuple):
        budget.take(_units(left, (kind,)) + _units(right, (kind,)))
    else:
        return _number(left) + _number(right)
    return left + right


def _add_all(budget: Budget, *parts: Any) -> Any:
    """The sum of at least two parts; of texts in one step."""
    if all(type(part) in TEXTS for part in parts):
        return with_runs(*join_printed(budget, parts))
    return reduce(partial(_add, budget), parts)


def _equal(budget: Budget, left: Any, right: Any) -> bool:
    kinds = {type(left), type(right)}
    if kinds <= TEXTS:
        budget.take(min(len(left), len(right)))
    elif not kinds <= SCALARS | TEXTS | {Undefined}:
        raise ElsewhereError
    return bool(left == right)


def _compare(how: Callable[[Any, Any], bool]) -> Callable[[Budget, Any, Any], bool]:
    def compare(budget: Budget, left: Any, right: Any) -> bool:
        if type(left) in TEXTS and type(right) in TEXTS:
            budget.take(min(len(left), len(right)))
            return how(left, right)
        return how(_number(left), _number(right))

    return compare


def _contains(budget: Budget, wanted: Any, container: Any) -> bool:
    kind = type(container)
    if kind in TEXTS and type(wanted) in TEXTS:
        budget.take(_units(container) * (1 + min(len(wanted), 100) // 8) + len(wanted))
    elif kind is Undefined:
        return False
    elif kind is dict:
        budget.take(_units(wanted))
    elif kind in (list, tuple):
        budget.take(_units(wanted, SCALARS | TEXTS) * len(container))
    else:
        raise ElsewhereError
    return wanted in container


# --- Methods and filters --------------------------------------------------------------------------


def _units_to_find(text: Any, part: Any) -> int:
    """The units to look for a part, which must be short, in a text."""
    _require(type(part) in TEXTS and 0 < len(part) <= _LONGEST_SEPARATOR)
    return _units(text) * (1 + len(part) // 8)


def _units_to_strip(text: Any, chars: Any = None) -> int:
    return _units(text) if chars is None else _units_to_find(text, chars)


def _units_to_compare(text: Any, part: Any) -> int:
    return min(_units(text), _units(part))


def _units_to_change(text: Any) -> int:
    return 4 * _units(text)


def _take_parts(budget: Budget, text: Any, n_parts: int) -> None:
    budget.take(n_parts * (CALL_UNITS // 2 + _RUN_UNITS * len(runs_of(text))))


def _split(budget: Budget, text: Any, sep: Any = None, maxsplit: Any = -1) -> list[str]:
    budget.take(16 * _units(text) if sep is None else 2 * _units_to_find(text, sep))
    n_parts = len(str.split(text)) if sep is None else 1 + str.count(text, sep)
    _take_parts(budget, text, n_parts)
    _require(type(maxsplit) is int)
    return [text] if n_parts == 1 and sep else text.split(sep, maxsplit)


def _replace(budget: Budget, text: Any, old: Any, new: Any) -> str:
    budget.take(2 * _units_to_find(text, old))
    n_parts = str.count(text, old)
    _take_parts(budget, text, 1 + n_parts)
    budget.take(n_parts * _units(new))
    return text.replace(old, new)  # type: ignore[no-any-return]


def _method(name: str, units: Callable[..., int]) -> Callable[..., Any]:
    """A method; `units` gives what it costs from its operands."""

    def call(budget: Budget, value: Any, *arguments: Any) -> Any:
        budget.take(units(value, *arguments))
        return getattr(value, name)(*arguments)

    return call


_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "get": _method("get", lambda value, key, _=None: _units(value, (dict,)) + _units(key)),
    "replace": _replace,
    "split": _split,
    **{name: _method(name, _units_to_change) for name in ("capitalize", "lower", "upper")},
    **{name: _method(name, _units_to_compare) for name in ("endswith", "startswith")},
    **{name: _method(name, _units_to_strip) for name in ("lstrip", "rstrip", "strip")},
    **{
        name: _method(name, lambda value: _units(value, (dict,)))
        for name in ("items", "keys", "values")
    },
}


def _length(_: Budget, value: Any) -> int:
    _require(type(value) in _SIZED or type(value) is Undefined)
    return len(value)


def _take_written(budget: Budget, value: Any, times: int) -> None:
    """Take the units to write out a value; `times` of what reading it takes."""
    before = budget.left
    _take_value(budget, value)
    budget.take((before - budget.left) * times)


def _string(budget: Budget, value: Any) -> Any:
    if type(value) not in (list, dict):
        _require(type(value) is not TracedMarkup)
        budget.take(_units(value, _PRINTED))
        return value if type(value) in TEXTS else str(value)
    _take_written(budget, value, 2)
    return str(value)


def _to_json(budget: Budget, value: Any, **style: Any) -> str:
    for name, given in style.items():
        _require(name in ("ensure_ascii", "indent", "sort_keys"))
        _require(given is None or (type(given) in (bool, int) and 0 <= given <= 8))
    # Each line may be indented by the depth of its value.
    _take_written(budget, value, MOST_DEPTH // 4 if style.get("indent") else 2)
    return to_json(value, **style)


def _indent(
    budget: Budget, text: Any, width: Any = 4, first: Any = False, blank: Any = False
) -> str:
    _require(type(width) is int and 0 <= width <= _WIDEST_MARGIN)
    _require(type(first) is bool and type(blank) is bool)
    budget.take(16 * _units(text))
    n_lines = 1 + len(str.splitlines(text))
    _take_parts(budget, text, 4 * n_lines)
    budget.take(n_lines * width)
    return indent(text, width, first, blank)


def _items(budget: Budget, value: Any) -> _Lazy:
    found = {} if type(value) is Undefined else value
    found = _iterate(budget, _METHODS["items"](budget, found))
    return _Lazy(iter(found), len(found))


def _safe(budget: Budget, value: Any) -> TracedMarkup:
    budget.take(_units(value))
    return TracedMarkup(value)


def _join(budget: Budget, value: Any, separator: Any = "") -> str:
    texts = [_string(budget, item) for item in _iterate(budget, value)]
    budget.take(_units(separator) * len(texts))
    return join_traced(separator, texts)


def _sorted_items(budget: Budget, value: Any) -> list[tuple[Any, Any]]:
    _require(type(value) is dict)
    costs = [_units(key) for key in value]
    budget.take(max(costs, default=0) * len(costs) * 24)  # comparisons, and keys in small letters
    return do_dictsort(value)


def _map(budget: Budget, value: Any, name: Any = None, *, attribute: Any = None) -> _Lazy:
    change: Callable[[Budget, Any], Any]
    if name is None:
        _require(_is_attribute(attribute))
        change = lambda budget, item: get_item(item, attribute)  # noqa: E731
    else:
        _require(attribute is None and name in _MAPPED)
        change = OPERATIONS[str(name)]
    found = _iterate(budget, value, CALL_UNITS)
    return _Lazy((change(budget, item) for item in found), operator.length_hint(found))


def _select(*, wanted: bool, by_attribute: bool) -> Callable[..., _Lazy]:
    def select(budget: Budget, value: Any, *given: Any) -> _Lazy:
        attribute, test, other = given if by_attribute else ("x", *given)
        _require(test in ("equalto", "eq", "==") and _is_attribute(attribute))
        found = _iterate(budget, value, CALL_UNITS)
        chosen = (
            item
            for item in found
            if _equal(budget, get_item(item, attribute) if by_attribute else item, other) == wanted
        )
        return _Lazy(chosen, operator.length_hint(found))

    return select


def _is_attribute(name: Any) -> bool:
    return type(name) in TEXTS and name.isidentifier() and not hasattr(dict, name)


_MAPPED: Final = ("capitalize", "lower", "string", "tojson", "trim", "upper")

OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    **{f".{name}": method for name, method in _METHODS.items()},
    **{name: _METHODS[name] for name in ("capitalize", "lower", "replace", "upper")},
    **dict.fromkeys(("count", "length"), _length),
    **dict.fromkeys(("d", "default"), lambda _, *values: do_default(*values)),
    "dictsort": _sorted_items,
    "indent": _indent,
    "items": _items,
    "join": _join,
    "list": lambda budget, value: list(_iterate(budget, value)),
    "map": _map,
    "reject": _select(wanted=False, by_attribute=False),
    "rejectattr": _select(wanted=False, by_attribute=True),
    "safe": _safe,
    "select": _select(wanted=True, by_attribute=False),
    "selectattr": _select(wanted=True, by_attribute=True),
    "string": _string,
    "tojson": _to_json,
    "trim": lambda budget, value: (
        "" if type(value) is Undefined else _METHODS["strip"](budget, value)
    ),
    "+": _add_all,
    "-": lambda _, left, right: _number(left) - _number(right),
    "%": lambda _, left, right: _number(left) % _number(right),
    "-x": lambda _, value: -_number(value),
    "~": lambda budget, *values: with_runs(*join_printed(budget, values)),
    "==": _equal,
    "x in": _contains,
    "<": _compare(operator.lt),
    "<=": _compare(operator.le),
    ">": _compare(operator.gt),
    ">=": _compare(operator.ge),
    "[]": _checked_item,
    "[:]": _slice,
    "is text": _text,
    "for each": _iterate,
    "take units": Budget.take,
}
"""Filters by their names, methods with a point in front, and the operations of other nodes, whose
names no filter of a template can have."""
