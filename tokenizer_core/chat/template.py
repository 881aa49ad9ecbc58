"""Compile and render a chat template as `transformers` does, and keep the origin of each character.

Jinja compiles a template to Python. `TracingCodeGenerator` changes three things in that code:
literals are `TracedText` of origin `TRUSTED`, `~` and the joining of output keep origins, and names
of fields stay plain strings. Everything else is Jinja's sandbox with what `transformers` adds.

This module runs in the child processes of `renderer.py`: it imports jinja2 and light parts of the
standard library only. A sandbox does not bound memory or time; the child process does.
"""

from __future__ import annotations

import itertools
import json
import string
import traceback
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

import jinja2
from jinja2 import ext, nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.exceptions import SecurityError, TemplateError, TemplateRuntimeError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from markupsafe import Markup

from tokenizer_core.chat.traced_text import (
    CALLED,
    FIELDS,
    FIRST_MESSAGE,
    GENERATED,
    LOST,
    REASONED,
    REASONING_FIELDS,
    ROLES,
    SOURCE,
    TRUSTED,
    Runs,
    TracedMarkup,
    TracedText,
    join_traced,
    mark_generated,
    origins_in,
    runs_of,
    trace_value,
    traced,
)
from tokenizer_core.errors import ChatInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jinja2.parser import Parser

Rendered: TypeAlias = "tuple[str, Runs]"

_DICT_ATTRIBUTES: Final = frozenset(dir(dict))
_TRACED_ROLES: Final = {role: traced(role, TRUSTED) for role in ROLES}
_REASONING_FIELDS: Final = frozenset(REASONING_FIELDS)
_CONTINUE_MARK: Final = "CONTINUE_FINAL_MESSAGE_TAG "


class ChatTemplate:
    """A compiled template. Raises TemplateError: the source is not a template."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._compiled = make_environment().from_string(source)

    def render(self, request: dict[str, Any]) -> Rendered:
        """The text for a request and the origins of its characters.

        `request` has `messages`, `tools` and `documents` (or None), `variables` (of the tokenizer),
        `kwargs` (of the request; they win over variables), `add_generation_prompt` and
        `continue_final_message` (a bool, or the name of the field to continue).

        Raises:
            ChatInputError: `continue_final_message` does not fit the messages or the template.
            TemplateError, Exception: the template failed.
        """
        messages, final, variables = self._prepare(request)
        try:
            text = self._render(variables)
        except Exception as error:
            vars(error)["message_index"] = _message_at(error, messages)
            raise
        if final is not None:
            text = cut_after_final_message(text, final)
        return text, runs_of(text)

    def _prepare(
        self, request: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], str | None, dict[str, Any]]:
        """The messages with origins, the text to continue, and all variables of the template."""
        messages = [
            _trace_message(index, message) for index, message in enumerate(request["messages"])
        ]
        final = _mark_final_message(messages, request["continue_final_message"], self._source)
        variables = {
            **trace_value(request["variables"], TRUSTED),
            **request["kwargs"],
            "messages": messages,
            "tools": request["tools"],
            "documents": request["documents"],
            "add_generation_prompt": request["add_generation_prompt"],
        }
        return messages, final, variables

    def _render(self, variables: dict[str, Any]) -> str:
        context = self._compiled.new_context(variables)
        try:
            return join_traced("", self._compiled.root_render_func(context))
        except Exception:
            # Rewrites the traceback to lines of the template, and raises the exception again.
            self._compiled.environment.handle_exception()


def parse(source: str) -> nodes.Template:
    """The syntax tree of a template. Raises TemplateError: the source is not a template."""
    return make_environment().parse(source)


def make_environment(kind: type[TracingEnvironment] | None = None) -> TracingEnvironment:
    """An environment as every template has one."""
    return (kind or TracingEnvironment)(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, ext.loopcontrols]
    )


def _message_at(error: Exception, messages: list[dict[str, Any]]) -> int | None:
    """The message that a variable of the template held when it failed; the last of several."""
    indices = {id(message): index for index, message in enumerate(messages)}
    found = [
        indices[id(value)]
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for value in frame.f_locals.values()
        if id(value) in indices
    ]
    return max(found, default=None)


def _trace_message(index: int, message: dict[str, Any]) -> dict[str, Any]:
    # As `transformers`: a field without value counts as missing, and reasoning has two names.
    origin = FIRST_MESSAGE + index
    if None in message.values():
        message = {key: value for key, value in message.items() if value is not None}
    if not _REASONING_FIELDS.isdisjoint(message):
        reasoning = next(message[name] for name in REASONING_FIELDS if name in message)
        message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
    result: dict[str, Any] = {}
    for name, value in message.items():
        key = traced(name, origin)
        if name == "content" and type(value) is str:
            result[key] = traced(value, origin)
        elif name == "role" and isinstance(value, str) and value in _TRACED_ROLES:
            result[key] = _TRACED_ROLES[value]
        else:
            kind = CALLED if name == "tool_calls" else REASONED if name in REASONING_FIELDS else 0
            result[key] = trace_value(value, origin | kind)
    return result


def _mark_final_message(
    messages: list[dict[str, Any]], continued: bool | str, source: str
) -> str | None:
    """Append a mark to the text that the model shall continue; returns that text."""
    if continued is False:
        return None
    field = "content" if continued is True else continued
    final = messages[-1].get(field) if messages else None
    if final is None:
        raise ChatInputError(
            f"continue_final_message needs a last message with {field!r}: add it, or leave "
            f"continue_final_message out"
        )
    fields = [field]
    if field in REASONING_FIELDS:
        fields = [name for name in REASONING_FIELDS if messages[-1].get(name) == final]
    if not any(name in source for name in fields):
        raise ChatInputError(f"this chat template does not read the field {field!r}")
    if isinstance(final, list):
        for part in reversed(final):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                final = part["text"]
                part["text"] = final + _CONTINUE_MARK
                return cast("str", final)
        raise ChatInputError("continue_final_message: the last message has no text to continue")
    if not isinstance(final, str):
        raise ChatInputError(f"continue_final_message: {field!r} of the last message is no text")
    for name in fields:
        messages[-1][name] = final + _CONTINUE_MARK
    return final


def cut_after_final_message(text: str, final: str) -> str:
    """The text up to the mark after `final`; raises ChatInputError."""
    mark = _CONTINUE_MARK.strip()
    if final.strip() not in text or mark not in text:
        raise ChatInputError(
            "continue_final_message: the template changes or leaves out the end of the last "
            "message, so there is no place to continue at"
        )
    at = text.rindex(mark)
    kept_spaces = text[at : at + len(_CONTINUE_MARK)] == _CONTINUE_MARK
    return text[:at] if kept_spaces else text[:at].rstrip()


class TracingCodeGenerator(CodeGenerator):
    """Writes literals as `environment.literals[i]`, which are `TracedText`."""

    def _literal(self, value: Any) -> str:
        literals = cast("TracingEnvironment", self.environment).literals
        literals.append(trace_value(value, TRUSTED))
        return f"environment.literals[{len(literals) - 1}]"

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        if origins_in(node.value) and not isinstance(node.value, Markup):
            self.write(self._literal(node.value))
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:  # noqa: N802
        self.write(self._literal(node.data))

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return self._literal("".join(group))

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.arg, nodes.Const) and type(node.arg.value) is str:
            # A plain key finds its field faster, and is no text of the output.
            self.write("environment.getitem(")
            self.visit(node.node, frame)
            self.write(f", {node.arg.value!r})")
        else:
            super().visit_Getitem(node, frame)

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat(map(str, map(environment.finalize, (")
        for child in node.nodes:
            self.visit(child, frame)
            self.write(", ")
        self.write("))))")


def _refuse_addresses(value: Any) -> Any:
    """What a template prints; a function or an iterator has no text but its address in memory."""
    if isinstance(value, jinja2.Undefined):
        return value
    if callable(value):
        is_method = isinstance(value, MethodType | BuiltinMethodType)
        named = f"the method {value.__name__!r}" if is_method else "a function"
        raise TemplateRuntimeError(f"the template prints {named}; call it: write () after its name")
    if isinstance(value, Iterator):
        raise TemplateRuntimeError("the template prints an iterator; write |list after it")
    return value


class TracingEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one template, which owns its literals."""

    code_generator_class = TracingCodeGenerator
    concat = staticmethod(partial(join_traced, ""))

    def __init__(self, **options: Any) -> None:
        self.literals: list[Any] = []
        super().__init__(finalize=_refuse_addresses, **options)
        self.filters.update(join=_join, indent=indent, safe=TracedMarkup, tojson=to_json)
        self.globals.update(
            raise_exception=_raise_exception,
            strftime_now=strftime_now,
            dict=_Dict(),
            namespace=TemplateNamespace,
        )

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As the sandbox; a field of an object without the error that Jinja catches first, which
        takes a fifth of the time of a long conversation."""
        if type(obj) is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """As the sandbox; the result of formatting text of the template keeps its origins."""
        formatted = super().wrap_str_format(value)
        if formatted is None or value.__name__ != "format":
            return formatted
        if type(value.__self__) is not TracedText:
            return formatted

        def format_traced(*args: Any, **kwargs: Any) -> str:
            text = formatted(*args, **kwargs)
            traced_text = _trace_format(value.__self__, args, kwargs)
            return traced_text if traced_text == text else text

        return format_traced


def _trace_format(form: TracedText, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """`form.format(...)` with origins, or None where a field is more than a number or a name."""
    if {origin & SOURCE for _, origin in runs_of(form)} != {TRUSTED}:
        return None
    unnamed = itertools.count()
    parts: list[str] = []
    for literal, name, spec, conversion in string.Formatter().parse(form):
        parts.append(traced(literal, TRUSTED))
        if name is not None:
            key = name or str(next(unnamed))
            if spec or conversion:
                return None
            if key.isidentifier() and key in kwargs:
                parts.append(str(kwargs[key]))
            elif key in map(str, range(len(args))):
                parts.append(str(args[int(key)]))
            else:
                return None
    return join_traced("", parts)


class GenerationTag(ext.Extension):
    """`{% generation %}` ... `{% endgeneration %}`: what the model shall learn to write."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's interface

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the tag and its body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("mark")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def mark(self, caller: Callable[[], str]) -> str:
        """Mark the text between the tags."""
        return mark_generated(caller())


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message))


def strftime_now(form: str) -> str:
    """The time now, as a template writes it."""
    return datetime.now().strftime(form)


class _Dict:
    """The global `dict`, without the attributes of the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """As `dict.fromkeys`."""
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(Namespace):
    """`namespace()` without names that begin with an underscore. Python itself finds an attribute
    in a quarter of the time."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be a name of the template
        self, given = args[0], dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        vars(self).update(given)

    __getattribute__: Any = object.__getattribute__

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        vars(self)[name] = value

    def __repr__(self) -> str:
        return f"<Namespace {vars(self)!r}>"


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no name {name!r}: names begin with a letter")


@jinja2.pass_environment
def _join(
    environment: jinja2.Environment,
    value: Iterable[Any],
    d: str = "",
    attribute: str | int | None = None,
) -> str:
    """Jinja's `join`, with origins."""
    if attribute is not None:
        get = jinja2.filters.make_attrgetter(environment, attribute)
        value = map(get, value)
    return join_traced(str(d), map(str, value))


def indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja's `indent`, with origins: that of a line break is that of the one it replaces."""
    if isinstance(s, Markup):
        return jinja2.filters.do_indent(s, width, first, blank)
    margin = width if isinstance(width, str) else traced(" " * width, TRUSTED)
    s = s + traced("\n", TRUSTED)  # so that a last line break has a line after it
    parts: list[str] = [margin] if first else []
    line_break = ""
    for line, whole in zip(s.splitlines(), s.splitlines(True), strict=True):
        parts += [line_break, margin if line_break and (line or blank) else "", line]
        line_break = traced("\n", runs_of(whole[len(line) :])[0][1])
    return join_traced("", parts)


def to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as `transformers` writes it. If all strings but the template's are of one message, so is
    the result; it is never trusted, because quotes around a value are not the template's text."""
    text = json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    origins = {origin & ~GENERATED for origin in origins_in(x)} - {TRUSTED}
    sources = {origin & SOURCE for origin in origins}
    if len(sources) != 1:
        return traced(text, LOST)
    return traced(text, origins.pop() if len(origins) == 1 else sources.pop() | FIELDS)
