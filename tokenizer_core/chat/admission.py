"""Which templates may run in the calling process: every part of them is in a list, with a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jinja2 import nodes

from tokenizer_core.chat.checked_operations import MOST_DEPTH, OPERATIONS, SCALARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_NODES: Final = 10_000

TESTS: Final = frozenset(
    {
        "boolean", "defined", "false", "float", "integer", "iterable", "mapping", "none", "number",
        "sequence", "string", "true", "undefined",
    }
)  # fmt: skip
"""All look at the type of a value only."""


def is_admitted(root: nodes.Template) -> bool:
    """Whether each operation of a template has a bound."""
    n_left = _MOST_NODES
    level: list[nodes.Node] = [root]
    for _ in range(MOST_DEPTH):
        if not level:
            return True
        n_left -= len(level)
        if n_left < 0 or not all(map(_is_known, level)):
            return False
        level = [child for node in level for child in _children(node)]
    return False


def _is_known(node: nodes.Node) -> bool:
    has_bound = _NODES.get(type(node))
    return has_bound is not None and bool(has_bound(node)) and not _is_folded(node)


def _children(node: nodes.Node) -> Iterator[nodes.Node]:
    """The nodes inside this one; of a call of a method the object, not the method."""
    for child in node.iter_child_nodes():
        if isinstance(node, nodes.Call) and isinstance(child, nodes.Getattr):
            yield from child.iter_child_nodes() if child is node.node else (child,)
        else:
            yield child


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
                if not isinstance(child, nodes.Const | nodes.TemplateData) and not is_text(child)
            )
    return isinstance(node, _FOLDED) and _is_constant(node) and not is_text(node)


def _is_constant(node: nodes.Node) -> bool:
    parts = (nodes.Name, nodes.Call)
    return not isinstance(node, parts) and next(node.find_all(parts), None) is None


def is_text(node: nodes.Node) -> bool:
    """Whether it joins nothing but literals."""
    match node:
        case nodes.Add():
            return is_text(node.left) and is_text(node.right)
        case nodes.Concat():
            return all(map(is_text, node.nodes))
    return isinstance(node, nodes.Const) and type(node.value) is str


def formatted_parts(node: nodes.Node) -> list[nodes.Expr] | None:
    """The parts that a literal form joins, if it has no fields but `{}` or `%s`."""
    match node:
        case nodes.Call(node=nodes.Getattr(node=nodes.Const(value=str(form)), attr="format")):
            field, values, has_names = "{}", node.args, bool(node.kwargs)
        case nodes.Filter(node=nodes.Const(value=str(form)), name="format"):
            field, values, has_names = "%s", node.args, bool(node.kwargs)
        case nodes.Mod(left=nodes.Const(value=str(form)), right=right):
            field, has_names = "%s", False
            values = right.items if isinstance(right, nodes.Tuple) else [right]
        case _:
            return None
    literals = form.split(field)
    if has_names or len(literals) != len(values) + 1 or not values:
        return None
    if any(mark in literal for literal in literals for mark in field.removesuffix("s")):
        return None
    parts: list[nodes.Expr] = [nodes.Const(literals[0], lineno=node.lineno)]
    for value, literal in zip(values, literals[1:], strict=True):
        parts += [value, nodes.Const(literal, lineno=node.lineno)]
    return parts


def _is_known_call(node: nodes.Call) -> bool:
    match node.node:
        case nodes.Getattr(attr="format"):
            return not _is_spread(node) and formatted_parts(node) is not None
        case nodes.Getattr(attr=name):
            return not _is_spread(node) and f".{name}" in OPERATIONS and not node.kwargs
        case nodes.Name():
            return not _is_spread(node) and all(_is_public(each.key) for each in node.kwargs)
    return isinstance(node.node, nodes.ExtensionAttribute)


def _is_known_filter(node: nodes.Filter) -> bool:
    is_filter = node.name.isidentifier() and node.name in OPERATIONS
    is_filter = is_filter or formatted_parts(node) is not None
    return is_filter and node.node is not None and not _is_spread(node)


def _is_spread(node: nodes.Call | nodes.Filter) -> bool:
    return node.dyn_args is not None or node.dyn_kwargs is not None


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _has_characters(text: object) -> bool:
    return type(text) is str and not any("\ud800" <= c <= "\udfff" for c in text)


_FOLDED: Final = (
    nodes.Add, nodes.Concat, nodes.Filter, nodes.Getattr, nodes.Getitem, nodes.Mod, nodes.Sub,
)  # fmt: skip
_NODES: Final[dict[type[nodes.Node], Callable[[Any], bool]]] = {
    **dict.fromkeys(
        (
            nodes.Add, nodes.And, nodes.Assign, nodes.Break, nodes.Concat, nodes.CondExpr,
            nodes.Continue, nodes.ExtensionAttribute, nodes.Getitem, nodes.If, nodes.Keyword,
            nodes.List, nodes.Macro, nodes.Mod, nodes.Name, nodes.Neg, nodes.Not, nodes.Operand,
            nodes.Or, nodes.Output, nodes.Pair, nodes.Slice, nodes.Sub, nodes.Template, nodes.Tuple,
        ),
        lambda _: True,
    ),
    nodes.AssignBlock: lambda node: node.filter is None,
    nodes.Call: _is_known_call,
    # Of the tag `generation`.
    nodes.CallBlock: lambda node: (
        isinstance(node.call.node, nodes.ExtensionAttribute) and not (node.args or node.defaults)
    ),
    nodes.Compare: lambda node: len(node.ops) == 1,
    nodes.Const: lambda node: type(node.value) in SCALARS or _has_characters(node.value),
    nodes.Dict: lambda node: all(type(pair.key) is nodes.Const for pair in node.items),
    nodes.Filter: _is_known_filter,
    nodes.For: lambda node: not node.recursive,
    nodes.Getattr: lambda node: _is_public(node.attr) and not hasattr(dict, node.attr),
    nodes.NSRef: lambda node: _is_public(node.attr),
    nodes.TemplateData: lambda node: _has_characters(node.data),
    nodes.Test: lambda node: node.name in TESTS and not node.args and not node.kwargs,
}  # fmt: skip
"""The nodes of a syntax tree that a template may use, and what must hold for each."""
