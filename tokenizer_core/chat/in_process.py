"""Render a chat template in the calling process, if nothing in it can need more than a budget.

A template is admitted by its syntax tree: every node, filter, test and method is one of those
below. Its code is that of `template.py`, with each operation behind a check: the types that it is
known for, and its cost in units, which it takes from a budget before it runs. A unit is about a
character that is copied; each block of statements also costs by its size when it is entered. So
time and memory have a bound that no conversation can move.

Other types, an error of the template, and an empty budget raise `ElsewhereError`; then a child
process renders the conversation from its beginning. A result here is the same as that of the child:
the text, and the origin of each character.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from types import MethodType, NoneType
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from jinja2 import Undefined, nodes
from jinja2.compiler import operators
from jinja2.filters import do_default, do_dictsort
from jinja2.runtime import LoopContext, Macro
from jinja2.tests import TESTS

from tokenizer_core.chat.template import (
    ChatTemplate,
    GenerationTag,
    TemplateNamespace,
    TracingCodeGenerator,
    TracingEnvironment,
    cut_after_final_message,
    make_environment,
    parse,
    strftime_now,
    to_json,
)
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
    from collections.abc import Callable, Iterable, Iterator

    from jinja2.compiler import Frame
    from jinja2.runtime import Context

MOST_UNITS: Final = 1 << 24
"""The budget of one conversation."""

_BYTES_PER_UNIT: Final = 8
_UNITS_PER_SECOND: Final = 1 << 25
"""What a unit needs at most: so a conversation takes at most 0.5 s and 134 MB."""

_LEAST_UNITS: Final = 1 << 20
_UNITS_PER_UNIT: Final = 64
"""What a template may take of it, at least and for each unit of the conversation."""

_MOST_CHARS: Final = 1 << 16
_MOST_NODES: Final = 10_000
_MOST_DEPTH: Final = 100
"""Of the source, its syntax tree and the nesting of values: more is left to the child."""

_MOST_CALLS: Final = 32
"""Macros within macros."""

_NODE_UNITS: Final = 8
_OBJECT_UNITS: Final = 32
_CALL_UNITS: Final = 256
_RUN_UNITS: Final = 8
_LARGEST: Final = 1 << 63
"""Numbers up to this size take the same time."""

_LONGEST_SEPARATOR: Final = 64
_PLAIN_FORM: Final = re.compile(r"(?:%[A-Za-z]|[^%]){0,64}")

_NODES: Final = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Assign,
    nodes.AssignBlock, nodes.Macro, nodes.CallBlock, nodes.Break, nodes.Continue, nodes.Const,
    nodes.Name, nodes.NSRef, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Compare,
    nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.Add, nodes.Sub, nodes.Mod,
    nodes.Neg, nodes.Concat, nodes.Call, nodes.Keyword, nodes.Filter, nodes.Test, nodes.List,
    nodes.Tuple, nodes.Dict, nodes.Pair, nodes.ExtensionAttribute,
)  # fmt: skip
_FOLDED: Final = (
    nodes.Add, nodes.Concat, nodes.Filter, nodes.Getattr, nodes.Getitem, nodes.Mod, nodes.Sub,
)  # fmt: skip
_TESTS: Final = frozenset(
    {
        "boolean", "defined", "false", "float", "integer", "iterable", "mapping", "none", "number",
        "sequence", "string", "true", "undefined",
    }
)  # fmt: skip
"""All look at the type of a value only."""

_LOOP_FIELDS: Final = frozenset(
    {"depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"}
)
_SCALARS: Final = frozenset({bool, float, int, NoneType})
_TEXTS: Final = frozenset({TracedText, str})
_FIELDLESS: Final = _SCALARS | _TEXTS | {list, tuple}
_SIZED: Final = _TEXTS | {dict, list, tuple, type({}.items()), type({}.keys()), type({}.values())}


class ElsewhereError(Exception):
    """Only the child process can render this conversation."""


class Budget:
    """What is left of the units of one rendering, and how many macros are within each other."""

    __slots__ = ("depth", "left")

    def __init__(self, units: int) -> None:
        self.left = units
        self.depth = 0

    def take(self, units: int) -> None:
        """Take units before they are spent.

        Raises:
            ElsewhereError: there are not as many left.
        """
        self.left -= units
        if self.left < 0:
            raise ElsewhereError


def units_within(seconds: float, n_bytes: int) -> int:
    """The budget that needs at most this time and memory."""
    return min(MOST_UNITS, n_bytes // _BYTES_PER_UNIT, int(seconds * _UNITS_PER_SECOND))


@lru_cache(maxsize=64)
def admit(source: str) -> InProcessTemplate | None:
    """The template, if it can be rendered here."""
    if len(source) > _MOST_CHARS:
        return None
    try:
        tree = parse(source)
        return InProcessTemplate(source, tree) if _is_admitted(tree) else None
    except Exception:  # the child process raises it again, with its message
        return None


# --- Admission ------------------------------------------------------------------------------------


def _is_admitted(root: nodes.Template) -> bool:
    n_left = _MOST_NODES
    level: list[nodes.Node] = [root]
    for _ in range(_MOST_DEPTH):
        if not level:
            return True
        n_left -= len(level)
        if n_left < 0 or not all(map(_is_known, level)):
            return False
        level = [child for node in level for child in _children(node)]
    return False


def _children(node: nodes.Node) -> Iterator[nodes.Node]:
    """The nodes inside this one; of a call of a method the object, not the method."""
    for child in node.iter_child_nodes():
        if isinstance(node, nodes.Call) and isinstance(child, nodes.Getattr):
            yield from child.iter_child_nodes() if child is node.node else (child,)
        else:
            yield child


def _is_known(node: nodes.Node) -> bool:
    if type(node) not in _NODES or _is_folded(node):
        return False
    match node:
        case nodes.Const():
            return type(node.value) in _SCALARS or _has_characters(node.value)
        case nodes.TemplateData():
            return _has_characters(node.data)
        case nodes.Getattr():
            return not node.attr.startswith("_") and not hasattr(dict, node.attr)
        case nodes.NSRef():
            return not node.attr.startswith("_")
        case nodes.For():
            return not node.recursive
        case nodes.AssignBlock():
            return node.filter is None
        case nodes.Compare():
            return len(node.ops) == 1
        case nodes.Dict():
            return all(type(pair.key) is nodes.Const for pair in node.items)
        case nodes.CallBlock():
            is_tag = isinstance(node.call.node, nodes.ExtensionAttribute)
            return is_tag and not (node.args or node.defaults)
        case nodes.Call():
            return _is_known_call(node)
        case nodes.Filter():
            return node.name in FILTERS and node.node is not None and not _is_spread(node)
        case nodes.Test():
            return node.name in _TESTS and not node.args and not node.kwargs
    return True


def _is_folded(node: nodes.Node) -> bool:
    """Whether Jinja may compute it while it compiles the template. The text of such a number, or of
    a filter, is literal text of the template; computed in a rendering, it has no origin."""
    match node:
        case nodes.And() | nodes.Or():
            return _is_constant(node.left)
        case nodes.CondExpr():
            return _is_constant(node.test)
        case nodes.Output():
            return any(
                _is_constant(child)
                for child in node.nodes
                if not isinstance(child, nodes.Const | nodes.TemplateData) and not _is_text(child)
            )
    return isinstance(node, _FOLDED) and _is_constant(node) and not _is_text(node)


def _is_constant(node: nodes.Node) -> bool:
    parts = (nodes.Name, nodes.Call)
    return not isinstance(node, parts) and next(node.find_all(parts), None) is None


def _is_text(node: nodes.Node) -> bool:
    """Whether it joins nothing but literals."""
    if isinstance(node, nodes.Add):
        return _is_text(node.left) and _is_text(node.right)
    if isinstance(node, nodes.Concat):
        return all(map(_is_text, node.nodes))
    return isinstance(node, nodes.Const) and type(node.value) is str


def _is_known_call(node: nodes.Call) -> bool:
    if _is_spread(node):
        return False
    match node.node:
        case nodes.Getattr():
            return node.node.attr in METHODS and not node.kwargs
        case nodes.Name():
            return all(not keyword.key.startswith("_") for keyword in node.kwargs)
        case nodes.ExtensionAttribute():
            return True
    return False


def _is_spread(node: nodes.Call | nodes.Filter) -> bool:
    return node.dyn_args is not None or node.dyn_kwargs is not None


def _has_characters(text: object) -> bool:
    return type(text) is str and not any("\ud800" <= c <= "\udfff" for c in text)


# --- Values ---------------------------------------------------------------------------------------


def _leave(*_: Any) -> NoReturn:
    raise ElsewhereError


def _cost(text: Any) -> int:
    """The units for a copy of a text."""
    kind = type(text)
    if kind is TracedText:
        return len(text) + _RUN_UNITS * len(text._runs) + _OBJECT_UNITS
    if kind is str:
        return len(text) + _OBJECT_UNITS
    raise ElsewhereError


def _take_plain(budget: Budget, value: Any, depth: int = 0) -> None:
    """Take the units for a value of the request, which must be what JSON would give back."""
    kind = type(value)
    if kind is str:
        budget.take(len(value) + _OBJECT_UNITS)
        value.isascii() or value.encode()  # a lone surrogate raises an error
    elif kind is dict:
        budget.take(_OBJECT_UNITS * (1 + len(value)))
        for key, item in value.items():
            if type(key) is not str:
                raise ElsewhereError
            key.isascii() or key.encode()
            if type(item) is str and item.isascii():
                budget.left -= len(key) + len(item)
            else:
                budget.left -= len(key)
                _take_plain(budget, item, depth + 1)
    elif kind is list:
        budget.take(_OBJECT_UNITS)
        for item in value:
            _take_plain(budget, item, depth + 1)
    elif kind in _SCALARS:
        _take_scalar(budget, value)
    else:
        raise ElsewhereError
    if depth > _MOST_DEPTH:
        raise ElsewhereError


def _take_value(budget: Budget, value: Any, depth: int = 0) -> None:
    """Take the units to write out a value, which may hold another one several times."""
    kind = type(value)
    if kind in _TEXTS:
        budget.take(_cost(value) * 2)
    elif kind is dict:
        budget.take(_OBJECT_UNITS)
        for key, item in value.items():
            _take_value(budget, key)
            _take_value(budget, item, depth + 1)
    elif kind is list or kind is tuple:
        budget.take(_OBJECT_UNITS)
        for item in value:
            _take_value(budget, item, depth + 1)
    elif kind in _SCALARS:
        _take_scalar(budget, value)
    else:
        raise ElsewhereError
    if depth > _MOST_DEPTH:
        raise ElsewhereError


def _take_scalar(budget: Budget, value: Any) -> None:
    budget.take(_OBJECT_UNITS)
    if value is not None and not -_LARGEST < value < _LARGEST:  # nor if it is no number
        raise ElsewhereError


def _number(value: Any) -> Any:
    if type(value) not in _SCALARS or value is None or not -_LARGEST < value < _LARGEST:
        raise ElsewhereError
    return value


def _text_of(budget: Budget, value: Any) -> str:
    """What a template prints for a value, as `TracedText` where it has origins."""
    kind = type(value)
    if kind is TracedText:
        budget.take(len(value) + _RUN_UNITS * len(value._runs))
        return cast("str", value)
    if kind is str:
        budget.take(len(value))
        return cast("str", value)
    if kind in _SCALARS:
        _take_scalar(budget, value)
        return str(value)
    if kind is Undefined:
        return ""
    if kind is TracedMarkup:
        text = str(value)
        budget.take(_cost(text))
        return text
    raise ElsewhereError


def _summand(budget: Budget, value: Any) -> str:
    """A part of a sum with a literal, which must be a text."""
    kind = type(value)
    if kind is TracedText:
        budget.left -= len(value) + _RUN_UNITS * len(value._runs)
        if budget.left >= 0:
            return cast("str", value)
    elif kind is str:
        budget.take(len(value))
        return cast("str", value)
    raise ElsewhereError


def _field(value: Any, name: str) -> Any:
    """`value.name`"""
    kind = type(value)
    if kind is dict:
        if name in value:
            return value[name]
    elif kind is LoopContext:
        return getattr(value, name) if name in _LOOP_FIELDS else _leave()
    elif kind is TemplateNamespace:
        try:
            return getattr(value, name)
        except AttributeError:
            pass
    elif kind not in _FIELDLESS or hasattr(value, name):
        raise ElsewhereError
    return Undefined(obj=value, name=name)


def _item(value: Any, key: Any) -> Any:
    """`value[key]`"""
    kind = type(value)
    if kind is dict:
        if type(key) in _TEXTS:
            if key in value:
                return value[key]
            if not hasattr(dict, key):
                return Undefined(obj=value, name=key)
    elif type(key) is int and kind in (list, tuple, TracedText, str):
        try:
            return value[key]
        except IndexError:
            return Undefined(obj=value, name=cast("str", key))
    elif type(key) in _TEXTS and kind in _FIELDLESS and not hasattr(value, key):
        return Undefined(obj=value, name=key)
    raise ElsewhereError


def _checked_item(budget: Budget, value: Any, key: Any) -> Any:
    if type(key) in _TEXTS:
        budget.take(_cost(key))
    elif type(value) in _TEXTS:
        budget.take(_cost(value))
    return _item(value, key)


def _cut(budget: Budget, value: Any, part: slice) -> Any:
    """`value[start:stop:step]`"""
    for bound in (part.start, part.stop, part.step):
        if bound is not None:
            _number(bound)
    if type(value) in _TEXTS:
        budget.take(_cost(value))
    elif type(value) in (list, tuple):
        budget.take(len(value) + _OBJECT_UNITS)
    else:
        raise ElsewhereError
    return value[part]


def _iterate(budget: Budget, value: Any) -> Any:
    """The values of a loop, charged for here; the code of the block charges for each turn."""
    kind = type(value)
    if kind in _SIZED or kind is range:
        budget.take(_OBJECT_UNITS * (1 + len(value)))
        return value
    if kind is Undefined or kind is _Lazy:
        return value
    raise ElsewhereError


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
    if kind in _TEXTS:
        budget.take(_cost(left) + _cost(right))
    elif kind in (list, tuple):
        if type(right) is not kind:
            raise ElsewhereError
        budget.take(len(left) + len(right) + _OBJECT_UNITS)
    else:
        return _number(left) + _number(right)
    return left + right


def _add_all(budget: Budget, *parts: Any) -> Any:
    """The sum of at least two parts; of texts in one step."""
    all_runs: list[Runs] = []
    cost = _OBJECT_UNITS
    for part in parts:
        if type(part) not in _TEXTS:
            total = parts[0]
            for other in parts[1:]:
                total = _add(budget, total, other)
            return total
        runs = runs_of(part)
        all_runs.append(runs)
        cost += len(part) + _RUN_UNITS * len(runs)
    budget.take(cost)
    return with_runs("".join(parts), join_runs(all_runs))


def _concat(budget: Budget, *parts: Any) -> str:
    texts = [_text_of(budget, part) for part in parts]
    budget.take(_OBJECT_UNITS)
    return join_traced("", texts)


def _subtract(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int and -_LARGEST < left - right < _LARGEST:
        return left - right
    return _number(left) - _number(right)


def _remainder(left: Any, right: Any) -> Any:
    return _number(left) % _number(right)


def _negative(value: Any) -> Any:
    return -_number(value)


def _equal(budget: Budget, left: Any, right: Any) -> bool:
    kinds = {type(left), type(right)}
    if kinds <= _TEXTS:
        budget.take(min(len(left), len(right)))
    elif not kinds <= _SCALARS | _TEXTS | {Undefined}:
        raise ElsewhereError
    return bool(left == right)


def _differ(budget: Budget, left: Any, right: Any) -> bool:
    return not _equal(budget, left, right)


def _compare(how: Callable[[Any, Any], bool]) -> Callable[[Budget, Any, Any], bool]:
    def compare(budget: Budget, left: Any, right: Any) -> bool:
        if type(left) is int and type(right) is int:
            return how(left, right)
        if type(left) in _TEXTS and type(right) in _TEXTS:
            budget.take(min(len(left), len(right)))
            return how(left, right)
        return how(_number(left), _number(right))

    return compare


def _contains(budget: Budget, wanted: Any, container: Any) -> bool:
    kind = type(container)
    if kind in _TEXTS and type(wanted) in _TEXTS:
        budget.take(_cost(container) * (1 + min(len(wanted), 100) // 8) + len(wanted))
    elif kind is Undefined:
        return False
    elif kind is dict and type(wanted) in _TEXTS:
        budget.take(_cost(wanted))
    elif kind in (list, tuple) and (type(wanted) in _SCALARS or type(wanted) in _TEXTS):
        each = len(wanted) if type(wanted) in _TEXTS else 0
        budget.take((each + _OBJECT_UNITS) * len(container))
    else:
        raise ElsewhereError
    return wanted in container


def _lacks(budget: Budget, wanted: Any, container: Any) -> bool:
    return not _contains(budget, wanted, container)


_COMPARISONS: Final = {
    "eq": _equal,
    "ne": _differ,
    "in": _contains,
    "notin": _lacks,
    **{name: _compare(getattr(operator, name)) for name in ("gt", "lt")},
    "gteq": _compare(operator.ge),
    "lteq": _compare(operator.le),
}


# --- Methods --------------------------------------------------------------------------------------


def _require_short(text: Any) -> int:
    """By how much a longer separator makes a search more expensive; a long one is refused."""
    if type(text) not in _TEXTS or not 0 < len(text) <= _LONGEST_SEPARATOR:
        raise ElsewhereError
    return 1 + len(text) // 8


def _change(method: Callable[[Any], str]) -> Callable[[Budget, Any], str]:
    """A method that changes each character."""

    def change(budget: Budget, text: Any) -> str:
        budget.take(4 * _cost(text))
        return method(text)

    return change


def _strip(name: str) -> Callable[..., str]:
    def strip(budget: Budget, text: Any, chars: Any = None) -> str:
        budget.take(_cost(text) * (1 if chars is None else _require_short(chars)))
        stripped: str = getattr(text, name)(chars)
        return stripped

    return strip


def _take_parts(budget: Budget, text: Any, n_parts: int) -> None:
    runs = len(text._runs) if type(text) is TracedText else 0
    budget.take(n_parts * (_CALL_UNITS // 2 + _RUN_UNITS * runs))


def _split(budget: Budget, text: Any, sep: Any = None, maxsplit: Any = -1) -> list[str]:
    if type(maxsplit) is not int:
        raise ElsewhereError
    if sep is None:
        budget.take(_cost(text) * 16)
        n_parts = len(str.split(text, None, maxsplit))
    else:
        budget.take(_cost(text) * 2 * _require_short(sep))
        n_parts = 1 + str.count(text, sep)
    _take_parts(budget, text, n_parts)
    return text.split(sep, maxsplit)  # type: ignore[no-any-return]


def _replace(budget: Budget, text: Any, old: Any, new: Any) -> str:
    budget.take(_cost(text) * 2 * _require_short(old))
    n_parts = str.count(text, old)
    _take_parts(budget, text, 1 + n_parts)
    budget.take(n_parts * _cost(new))
    return text.replace(old, new)  # type: ignore[no-any-return]


def _starts(name: str) -> Callable[[Budget, Any, Any], bool]:
    def starts(budget: Budget, text: Any, part: Any) -> bool:
        if type(text) not in _TEXTS:
            raise ElsewhereError
        budget.take(_cost(part))
        return bool(getattr(text, name)(part))

    return starts


def _of_dict(name: str) -> Callable[[Budget, Any], Any]:
    def view(budget: Budget, value: Any) -> Any:
        if type(value) is not dict:
            raise ElsewhereError
        budget.take(_OBJECT_UNITS)
        return getattr(value, name)()

    return view


def _get(budget: Budget, value: Any, key: Any, default: Any = None) -> Any:
    if type(value) is not dict:
        raise ElsewhereError
    budget.take(_cost(key))
    return value.get(key, default)


METHODS: Final[dict[str, Callable[..., Any]]] = {
    "capitalize": _change(lambda text: text.capitalize()),
    "endswith": _starts("endswith"),
    "get": _get,
    "items": _of_dict("items"),
    "keys": _of_dict("keys"),
    "lower": _change(lambda text: text.lower()),
    "lstrip": _strip("lstrip"),
    "replace": _replace,
    "rstrip": _strip("rstrip"),
    "split": _split,
    "startswith": _starts("startswith"),
    "strip": _strip("strip"),
    "upper": _change(lambda text: text.upper()),
    "values": _of_dict("values"),
}
"""The methods of texts and objects that a template may call."""


# --- Filters --------------------------------------------------------------------------------------


def _trim(budget: Budget, value: Any) -> str:
    return "" if type(value) is Undefined else METHODS["strip"](budget, value)


def _length(_: Budget, value: Any) -> int:
    if type(value) not in _SIZED and type(value) is not Undefined:
        raise ElsewhereError
    return len(value)


def _string(budget: Budget, value: Any) -> str:
    if type(value) not in (list, dict):
        return _text_of(budget, value) if type(value) is not TracedMarkup else _leave()
    _take_value(budget, value)
    return str(value)


def _items(budget: Budget, value: Any) -> Any:
    if type(value) is Undefined:
        return _Lazy(iter(()), 0)
    found = _iterate(budget, METHODS["items"](budget, value))
    return _Lazy(iter(found), len(found))


def _safe(budget: Budget, value: Any) -> TracedMarkup:
    budget.take(_cost(value))
    return TracedMarkup(value)


def _join(budget: Budget, value: Any, separator: Any = "") -> str:
    texts = [_text_of(budget, item) for item in _iterate(budget, value)]
    budget.take(_cost(separator) * len(texts))
    return join_traced(separator, texts)


def _sorted_items(budget: Budget, value: Any) -> list[tuple[Any, Any]]:
    if type(value) is not dict:
        raise ElsewhereError
    costs = [_cost(key) for key in value]
    budget.take(max(costs, default=0) * len(costs) * 24)  # comparisons, and keys in small letters
    return do_dictsort(value)


def _list(budget: Budget, value: Any) -> list[Any]:
    return list(_iterate(budget, value))


def _to_json(budget: Budget, value: Any, **style: Any) -> str:
    for name, given in style.items():
        if name not in ("ensure_ascii", "indent", "sort_keys"):
            raise ElsewhereError
        if given is not None and (type(given) not in (bool, int) or not 0 <= given <= 8):
            raise ElsewhereError
    before = budget.left
    _take_value(budget, value)
    if style.get("indent"):
        # Each line may be indented by the depth of its value.
        budget.take((before - budget.left) * _MOST_DEPTH // 4)
    return to_json(value, **style)


def _map(budget: Budget, value: Any, name: Any = None, *, attribute: Any = None) -> _Lazy:
    change: Callable[[Budget, Any], Any]
    if name is None and _is_attribute(attribute):
        change = lambda _, item: _item(item, attribute)  # noqa: E731
    elif attribute is None and name in _MAPPED:
        change = FILTERS[str(name)]
    else:
        raise ElsewhereError
    found, n_most = _take_each(budget, value)
    return _Lazy((change(budget, item) for item in found), n_most)


def _take_each(budget: Budget, value: Any) -> tuple[Any, int]:
    """What a filter calls a function for, and how many values that are at most."""
    found = _iterate(budget, value)
    n_most = operator.length_hint(found, MOST_UNITS)
    budget.take(n_most * _CALL_UNITS)
    return found, n_most


def _select(*, wanted: bool, by_attribute: bool) -> Callable[..., _Lazy]:
    def select(budget: Budget, value: Any, *given: Any) -> _Lazy:
        attribute, test, other = given if by_attribute else (None, *given)
        if test not in ("equalto", "eq", "==") or (by_attribute and not _is_attribute(attribute)):
            raise ElsewhereError
        found, n_most = _take_each(budget, value)
        chosen = (
            item
            for item in found
            if _equal(budget, _item(item, attribute) if by_attribute else item, other) == wanted
        )
        return _Lazy(chosen, n_most)

    return select


def _is_attribute(name: Any) -> bool:
    return type(name) in _TEXTS and name.isidentifier() and not hasattr(dict, name)


_MAPPED: Final = ("capitalize", "lower", "string", "tojson", "trim", "upper")

FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "capitalize": METHODS["capitalize"],
    "count": _length,
    "d": lambda _, *values: do_default(*values),
    "default": lambda _, *values: do_default(*values),
    "dictsort": _sorted_items,
    "items": _items,
    "join": _join,
    "length": _length,
    "list": _list,
    "lower": METHODS["lower"],
    "map": _map,
    "reject": _select(wanted=False, by_attribute=False),
    "rejectattr": _select(wanted=False, by_attribute=True),
    "replace": _replace,
    "safe": _safe,
    "select": _select(wanted=True, by_attribute=False),
    "selectattr": _select(wanted=True, by_attribute=True),
    "string": _string,
    "tojson": _to_json,
    "trim": _trim,
    "upper": METHODS["upper"],
}
"""The filters that a template may use."""


# --- Code -----------------------------------------------------------------------------------------


_INLINE_TESTS: Final = {
    "defined": ("(not isinstance(", ", Undefined))"),
    "none": ("(", " is None)"),
    "string": ("isinstance(", ", str)"),
    "undefined": ("isinstance(", ", Undefined)"),
}
"""What Jinja's functions do, in the code itself."""


def _own_cost(statements: Iterable[nodes.Node]) -> int:
    """The units of a block without the loops and macros inside it: its nodes and its literals."""
    units, waiting = _OBJECT_UNITS, list(statements)
    while waiting:
        node = waiting.pop()
        units += _NODE_UNITS
        match node:
            case nodes.Const(value=str(text)) | nodes.TemplateData(data=text):
                units += len(text)
        inner = ("body",) if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock) else ()
        for name, value in node.iter_fields():
            if name not in inner:
                children = value if isinstance(value, list) else [value]
                waiting += [child for child in children if isinstance(child, nodes.Node)]
    return units


class _CodeGenerator(TracingCodeGenerator):
    """Writes each operation as a call of what checks it first."""

    _is_branch = False
    _default_units = 0
    """What the default values of a macro cost, which each call computes."""

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("budget = context.budget")
        self.writeline("literals = environment.literals")
        for name in ("field", "methods", "show", "summand"):
            self.writeline(f"{name} = environment.{name}")

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        statements = list(nodes)
        if not self._is_branch:
            units, self._default_units = _own_cost(statements) + self._default_units, 0
            self.writeline(f"budget.take({units})")
        was_branch, self._is_branch = self._is_branch, False
        super().blockvisit(statements, frame)
        self._is_branch = was_branch

    def visit_If(self, node: nodes.If, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        # All branches were taken from the budget with the block that they are in.
        self._is_branch = True
        super().visit_If(node, frame)
        self._is_branch = False

    def visit_Macro(self, node: nodes.Macro, frame: Frame) -> None:  # noqa: N802
        self._default_units = _own_cost(node.defaults)
        super().visit_Macro(node, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        vars(node.iter)["is_iterated"] = True
        vars(node.iter)["units_each"] = _own_cost([node.test]) if node.test else 0
        super().visit_For(node, frame)

    def visit(self, node: nodes.Node, *arguments: Any, **options: Any) -> Any:
        if "is_iterated" in vars(node):
            del vars(node)["is_iterated"]
            self.write(f"environment.iterate(budget, {vars(node)['units_each']}, ")
            super().visit(node, *arguments, **options)
            self.write(")")
            return None
        return super().visit(node, *arguments, **options)

    def _literal(self, value: Any) -> str:
        return super()._literal(value).removeprefix("environment.")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if isinstance(node, nodes.TemplateData | nodes.Const):
            return super()._output_child_to_const(node, frame, finalize)
        raise nodes.Impossible  # nothing is computed while a template is compiled

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:  # noqa: N802
        # The parts of a text that is only written need not be joined first.
        children: list[nodes.Expr] = []
        for child in node.nodes:
            parts = _summands(child) if isinstance(child, nodes.Add) else [child]
            if len(parts) > 1 and any(map(_is_text, parts)):
                for part in parts:
                    vars(part)["is_summand"] = True
            else:
                parts = [child]
            children += parts
        super().visit_Output(nodes.Output(children, lineno=node.lineno), frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        del frame, finalize
        self.write("summand(budget, " if vars(node).pop("is_summand", False) else "show(budget, ")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        del node, frame, finalize
        self.write(")")

    def _write_call(
        self, name: str, first: str, operands: Iterable[nodes.Node], frame: Frame
    ) -> None:
        self.write(f"{name}({first}")
        for operand in operands:
            self.visit(operand, frame)
            self.write(", ")
        self.write(")")

    def _visit_plain(self, node: nodes.Node, frame: Frame) -> None:
        """Write a text that is compared or sought, and is no text of the output."""
        if isinstance(node, nodes.Const):
            self.write(repr(node.value))
        else:
            self.visit(node, frame)

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        name = repr(node.attr)
        if node.attr in _LOOP_FIELDS and getattr(node.node, "name", None) == "loop":
            self.write(f"(o.{node.attr} if type(o := ")
            self.visit(node.node, frame)
            self.write(f") is LoopContext else field(o, {name}))")
            return
        self.write(f"(o[{name}] if type(o := ")
        self.visit(node.node, frame)
        self.write(f") is dict and {name} in o else field(o, {name}))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            self.write("environment.cut(budget, ")
            self.visit(node.node, frame)
            self.write(", slice(")
            for bound in (node.arg.start, node.arg.stop, node.arg.step):
                self.write("None, " if bound is None else "")
                if bound is not None:
                    self.visit(bound, frame)
                    self.write(", ")
            self.write("))")
            return
        is_key = isinstance(node.arg, nodes.Const) and type(node.arg.value) is str
        self.write("environment.item(" if is_key else "environment.checked_item(budget, ")
        self.visit(node.node, frame)
        self.write(", ")
        self._visit_plain(node.arg, frame)
        self.write(")")

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        parts = _summands(node)
        if len(parts) == 1:
            self.visit(parts[0], frame)
            return
        if len(parts) == 2:
            self._write_call("environment.add", "budget, ", parts, frame)
        else:
            self._write_call("environment.add_all", "budget, ", parts, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self._write_call("environment.concat_all", "budget, ", node.nodes, frame)

    def visit_Sub(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        self._write_call("environment.subtract", "", (node.left, node.right), frame)

    def visit_Mod(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        self._write_call("environment.remainder", "", (node.left, node.right), frame)

    def visit_Neg(self, node: nodes.UnaryExpr, frame: Frame) -> None:  # noqa: N802
        self._write_call("environment.negative", "", (node.node,), frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        (operand,) = node.ops
        left, right = node.expr, operand.expr
        if operand.op in ("eq", "ne"):
            bounds_time = isinstance(left, nodes.Const) or isinstance(right, nodes.Const)
        else:
            bounds_time = operand.op in ("in", "notin") and _is_list_of_constants(right)
        if bounds_time:
            self.write("(")
            self._visit_plain(left, frame)
            self.write(f" {operators[operand.op]} ")
        else:
            self.write(f"environment.comparisons[{operand.op!r}](budget, ")
            self._visit_plain(left, frame)
            self.write(", ")
        self._visit_plain(right, frame)
        self.write(")")

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:  # noqa: N802
        before, after = _INLINE_TESTS.get(node.name, (f"{self.tests[node.name]}(", ")"))
        self.write(before)
        self.visit(node.node, frame)
        self.write(after)

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802
        self.write(f"{self.filters[node.name]}(budget, ")
        if node.node is not None:
            self.visit(node.node, frame)
        self.signature(node, frame)
        self.write(")")

    def visit_Call(  # noqa: N802
        self, node: nodes.Call, frame: Frame, forward_caller: bool = False
    ) -> None:
        if not isinstance(node.node, nodes.Getattr):
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        self.write(f"methods[{node.node.attr!r}](budget, ")
        self.visit(node.node.node, frame)
        for argument in node.args:
            self.write(", ")
            is_sought = argument is node.args[0]  # the second one may become text of the output
            (self._visit_plain if is_sought else self.visit)(argument, frame)
        self.write(")")


def _summands(node: nodes.BinExpr) -> list[nodes.Expr]:
    """What is added up from left to right; neighbouring literals are joined."""
    parts: list[nodes.Expr] = []
    first: nodes.Expr = node
    while isinstance(first, nodes.Add):
        parts.append(first.right)
        first = first.left
    joined = [first]
    for part in reversed(parts):
        match joined[-1], part:
            case nodes.Const(value=str(text)), nodes.Const(value=str(more)):
                joined[-1] = nodes.Const(text + more, lineno=part.lineno)
            case _:
                joined.append(part)
    return joined


def _is_list_of_constants(node: nodes.Node) -> bool:
    return isinstance(node, nodes.List | nodes.Tuple) and all(
        isinstance(item, nodes.Const) for item in node.items
    )


class _Environment(TracingEnvironment):
    code_generator_class = _CodeGenerator
    add, add_all, concat_all = staticmethod(_add), staticmethod(_add_all), staticmethod(_concat)
    subtract, remainder = staticmethod(_subtract), staticmethod(_remainder)
    negative, cut = staticmethod(_negative), staticmethod(_cut)
    show, summand = staticmethod(_text_of), staticmethod(_summand)
    field, item = staticmethod(_field), staticmethod(_item)
    checked_item = staticmethod(_checked_item)
    comparisons, methods = _COMPARISONS, METHODS

    def __init__(self, **options: Any) -> None:
        super().__init__(optimized=False, **options)
        self.filters = dict(FILTERS)
        self.tests = {name: TESTS[name] for name in _TESTS}

    @staticmethod
    def iterate(budget: Budget, units_each: int, value: Any) -> Any:
        """As `_iterate`; the condition of the loop costs `units_each` for each value."""
        found = _iterate(budget, value)
        if units_each:
            budget.take(units_each * operator.length_hint(found, MOST_UNITS))
        return found

    def call(self, context: Context, function: Any, /, *values: Any, **named: Any) -> Any:
        """Call a macro, or one of the functions that every template has."""
        budget: Budget = vars(context)["budget"]
        budget.take(2 * _CALL_UNITS)
        is_tag = isinstance(function, MethodType) and function.__func__ is GenerationTag.mark
        if type(function) is Macro or is_tag:
            if budget.depth >= _MOST_CALLS:
                raise ElsewhereError
            budget.depth += 1
            result = context.call(function, *values, **named)
            budget.depth -= 1
            return result
        named.pop("_loop_vars", None)
        if function is TemplateNamespace and not values:
            return TemplateNamespace(**named)
        if function is self.globals["range"] and not named:
            return self.globals["range"](*map(_number, values))
        if function is strftime_now and _PLAIN_FORM.fullmatch(*values, **named):
            return strftime_now(*values)
        raise ElsewhereError


class InProcessTemplate(ChatTemplate):
    """A template that is rendered in this process."""

    def __init__(self, source: str, tree: nodes.Template) -> None:
        self._source = source
        self._compiled = make_environment(_Environment).from_string(tree)

    def render_within(self, request: dict[str, Any], units: int) -> tuple[str, Runs]:
        """As `ChatTemplate.render`; the text is a plain `str`.

        Raises:
            ElsewhereError: only the child process can say what the result is.
        """
        budget = Budget(units)
        try:
            for name in ("messages", "tools", "documents", "variables", "kwargs"):
                _take_plain(budget, request[name])
            # A template that never ends costs a small conversation little time.
            taken = units - budget.left
            budget.left = min(budget.left, _LEAST_UNITS + _UNITS_PER_UNIT * taken)
            _, final, variables = self._prepare(request)
            context = self._compiled.new_context(variables)
            vars(context)["budget"] = budget
            parts = list(self._compiled.root_render_func(context))
            runs = join_runs(map(runs_of, parts))
            text = "".join(parts)
            if final is not None:
                cut = cut_after_final_message(with_runs(text, runs), final)
                text, runs = "".join((cut,)), runs_of(cut)
        except Exception as error:
            raise ElsewhereError from error
        return text, runs
