"""The code of a template that runs in the calling process: that of `template.py`, with each
operation as a call of the function in `checked_operations.py` that checks it.

The syntax tree is changed first: an operation becomes a filter, which Jinja's compiler writes as a
call. Each block of statements takes what it costs by its size when it is entered.
"""

from __future__ import annotations

import re
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, cast

from jinja2 import nodes
from jinja2.compiler import operators
from jinja2.runtime import Context, Macro
from jinja2.tests import TESTS as ALL_TESTS
from jinja2.visitor import NodeTransformer

from tokenizer_core.chat.admission import TESTS, formatted_parts, is_text
from tokenizer_core.chat.checked_operations import (
    CALL_UNITS,
    LOOP_FIELDS,
    OBJECT_UNITS,
    OPERATIONS,
    TEXTS,
    Budget,
    ElsewhereError,
    get_field,
    get_item,
    join_printed,
)
from tokenizer_core.chat.template import (
    GenerationTag,
    TemplateNamespace,
    TracingCodeGenerator,
    TracingEnvironment,
    strftime_now,
)
from tokenizer_core.chat.traced_text import with_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jinja2.compiler import Frame

_NODE_UNITS: Final = 8
_MOST_CALLS: Final = 32
"""Macros within macros."""

_PLAIN_FORM: Final = re.compile(r"(?:%[A-Za-z]|[^%]){0,64}")
_INLINE_TESTS: Final = {
    "defined": ("(not isinstance(", ", Undefined))"),
    "none": ("(", " is None)"),
    "string": ("isinstance(", ", str)"),
    "undefined": ("isinstance(", ", Undefined)"),
}
"""What Jinja's functions do, in the code itself."""


def add_checks(tree: nodes.Template) -> nodes.Template:
    """Put the operations of an admitted template behind checks."""
    return cast("nodes.Template", _Checks().visit(tree))


class _Checks(NodeTransformer):
    def generic_visit(self, node: nodes.Node, *_: Any, **__: Any) -> nodes.Node:
        """Change what is inside the node, then the node."""
        return _checked(super().generic_visit(node))


def _checked(node: nodes.Node) -> nodes.Node:
    formatted = formatted_parts(node)
    if formatted is not None:
        return _operation("~", *formatted)
    match node:
        case nodes.Call(node=nodes.Getattr() as method):
            # What is sought is no text of the output; the second one may become it.
            sought = [_sought(argument) for argument in node.args[:1]]
            return _operation(f".{method.attr}", method.node, *sought, *node.args[1:])
        case nodes.Getitem(arg=nodes.Slice() as part):
            bounds = (part.start, part.stop, part.step)
            return _operation("[:]", node.node, *(each or nodes.Const(None) for each in bounds))
        case nodes.Getitem() if not is_text(node.arg):
            return _operation("[]", node.node, node.arg)
        case nodes.Concat():
            return _operation("~", *node.nodes)
        case nodes.Add():
            return _sum(node)
        case nodes.Sub() | nodes.Mod():
            return _operation(node.operator, node.left, node.right)
        case nodes.Neg():
            return _operation("-x", node.node)
        case nodes.Compare(expr=left, ops=[operand]):
            return _comparison(node, left, operand)
        case nodes.Output():
            node.nodes = [part for child in node.nodes for part in _printed(child)]
        case nodes.For():
            units_each = _own_units([node.test]) if node.test else 0
            values = cast("nodes.Expr", node.iter)
            node.iter = _operation("for each", values, nodes.Const(units_each))
            _charge(node.body)
        case nodes.Macro():
            _charge(node.body, node.defaults)
        case nodes.CallBlock() | nodes.Template():
            _charge(node.body)
    return node


def _operation(name: str, first: nodes.Expr, *others: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(first, name, list(others), [], None, None, lineno=first.lineno)


def _sought(node: nodes.Expr) -> nodes.Expr:
    """A part that is compared or sought, and is no text of the output."""
    vars(node)["is_sought"] = True
    return node


def _sum(node: nodes.Add) -> nodes.Expr:
    """What is added up from left to right; neighbouring literals are joined."""
    right = node.right
    parts = _summands(node.left) or [node.left]
    match parts[-1], right:
        case nodes.Const(value=str(text)), nodes.Const(value=str(more)):
            parts[-1] = nodes.Const(text + more, lineno=right.lineno)
        case _:
            parts.append(right)
    return _operation("+", *parts) if len(parts) > 1 else parts[0]


def _summands(node: nodes.Expr) -> list[nodes.Expr]:
    match node:
        case nodes.Filter(name="+", node=nodes.Expr() as first):
            return [first, *node.args]
    return []


def _printed(node: nodes.Expr) -> list[nodes.Expr]:
    """The parts of a text that is only written, which need not be joined first."""
    parts = _summands(node)
    if not any(isinstance(part, nodes.Const) and type(part.value) is str for part in parts):
        return [node]
    return [
        part if isinstance(part, nodes.Const) else _operation("is text", part) for part in parts
    ]


def _comparison(node: nodes.Compare, left: nodes.Expr, operand: nodes.Operand) -> nodes.Expr:
    right, symbol = operand.expr, operators[operand.op]
    constants = [isinstance(side, nodes.Const) for side in (left, right)]
    if operand.op in ("in", "notin"):
        symbol = "x in"
        is_list = isinstance(right, nodes.List | nodes.Tuple)
        constants = [is_list and all(isinstance(e, nodes.Const) for e in right.iter_child_nodes())]
    sides = _sought(left), _sought(right)
    if any(constants) and symbol in ("==", "!=", "x in"):
        return node  # the literal is the bound
    if operand.op in ("ne", "notin"):
        return nodes.Not(_operation(symbol.replace("!=", "=="), *sides), lineno=node.lineno)
    return _operation(symbol, *sides)


def _charge(body: list[nodes.Node], more: Sequence[nodes.Node] = ()) -> None:
    units = nodes.Const(_own_units([*body, *more]))
    body.insert(0, nodes.ExprStmt(_operation("take units", units)))


def _own_units(statements: Iterable[nodes.Node]) -> int:
    """The units of a block, each statement once: its nodes and its literals."""
    units = OBJECT_UNITS
    for statement in statements:
        for node in (statement, *statement.find_all(nodes.Node)):
            units += _NODE_UNITS
            match node:
                case nodes.Const(value=str(text)) | nodes.TemplateData(data=text):
                    units += len(text)
    return units


class _CodeGenerator(TracingCodeGenerator):
    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("budget = context.budget")
        self.writeline("field, item = environment.get_field, environment.get_item")
        self.writeline("concat = environment.join_within(budget)")
        self.writeline("literals = environment.literals")

    def _literal(self, value: Any) -> str:
        return super()._literal(value).removeprefix("environment.")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if isinstance(node, nodes.TemplateData | nodes.Const):
            return super()._output_child_to_const(node, frame, finalize)
        raise nodes.Impossible  # nothing is computed while a template is compiled

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        """Write nothing around what is printed: `join_printed` makes it a text."""

    _output_child_post = _output_child_pre

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        if "is_sought" in vars(node):
            self.write(repr(node.value))
        else:
            super().visit_Const(node, frame)

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        if node.attr in LOOP_FIELDS and getattr(node.node, "name", None) == "loop":
            self._write_field(node, f"o.{node.attr}", "is LoopContext", frame)
        else:
            self._write_field(node, f"o[{node.attr!r}]", f"is dict and {node.attr!r} in o", frame)
        self.write(f"field(o, {node.attr!r}))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        key = repr(cast("nodes.Const", node.arg).value)
        self._write_field(node, f"o[{key}]", f"is dict and {key} in o", frame)
        self.write(f"item(o, {key}))")

    def _write_field(
        self, node: nodes.Getattr | nodes.Getitem, quick: str, condition: str, frame: Frame
    ) -> None:
        self.write(f"({quick} if type(o := ")
        self.visit(node.node, frame)
        self.write(f") {condition} else ")

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:  # noqa: N802
        before, after = _INLINE_TESTS.get(node.name, (f"{self.tests[node.name]}(", ")"))
        self.write(before)
        self.visit(node.node, frame)
        self.write(after)

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802
        assert node.node is not None  # noqa: S101 - that is a block, which is not admitted
        self.write(f"{self.filters[node.name]}(budget, ")
        self.visit(node.node, frame)
        self.signature(node, frame)
        self.write(")")


class CheckedContext(Context):
    """The context of a rendering, with its budget."""

    budget: Budget


class CheckedEnvironment(TracingEnvironment):
    """An environment whose templates run in this process."""

    code_generator_class = _CodeGenerator
    context_class = CheckedContext
    get_field, get_item = staticmethod(get_field), staticmethod(get_item)

    def __init__(self, **options: Any) -> None:
        super().__init__(optimized=False, **options)
        self.filters = dict(OPERATIONS)
        self.tests = {name: ALL_TESTS[name] for name in TESTS}

    @staticmethod
    def join_within(budget: Budget) -> Callable[[Iterable[Any]], str]:
        """What joins the output of a macro."""
        return lambda values: with_runs(*join_printed(budget, values))

    def call(self, context: Context, function: Any, /, *values: Any, **named: Any) -> Any:
        """Call a macro, or one of the functions that every template has."""
        budget = cast("CheckedContext", context).budget
        budget.take(2 * CALL_UNITS)
        is_tag = isinstance(function, MethodType) and function.__func__ is GenerationTag.mark
        if type(function) is Macro or is_tag:
            if budget.depth >= _MOST_CALLS:
                raise ElsewhereError
            budget.depth += 1
            result = context.call(function, *values, **named)
            budget.depth -= 1
            return result
        named.pop("_loop_vars", None)
        match values:
            case () if function is TemplateNamespace:
                return TemplateNamespace(**named)
            case (form,) if function is strftime_now and type(form) in TEXTS and not named:
                if _PLAIN_FORM.fullmatch(form):
                    return strftime_now(form)
            case _ if function is self.globals["range"] and not named:
                return range(*values)
        raise ElsewhereError
