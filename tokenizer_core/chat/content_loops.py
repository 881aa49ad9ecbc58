"""Whether a chat template reads the parts of a message's content, as vLLM decides it.

OpenAI's clients may send the content of a message as a list of parts. A template that loops over
the content gets the list; any other gets one text. The answer comes from the template's syntax
tree, without running the template.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from jinja2 import TemplateError, nodes

from tokenizer_core.chat.template import parse

_CONTENT: Final = "content"


@lru_cache(maxsize=64)
def loops_over_content(source: str) -> bool:
    """Whether the template with this source has a loop over the content of a message.

    A template that cannot be parsed has none.
    """
    try:
        return _has_loop(parse(source))
    except (TemplateError, RecursionError):
        return False


def _has_loop(root: nodes.Template) -> bool:
    loops = list(root.find_all(nodes.For))
    conversations = _aliases(root, "messages")
    messages = {
        loop.target.name
        for loop in loops
        if isinstance(loop.target, nodes.Name) and _reads(loop.iter, conversations)
    }
    in_macros: set[int] = set()
    for macro in root.find_all(nodes.Macro):
        given = _parameters_with_content(root, macro, messages)
        for loop in macro.find_all(nodes.For):
            in_macros.add(id(loop))
            if isinstance(loop.iter, nodes.Name) and loop.iter.name in given:
                return True
    return any(
        _reads(loop.iter, messages, _CONTENT)
        or (
            id(loop) not in in_macros
            and isinstance(loop.iter, nodes.Name)
            and loop.iter.name == _CONTENT
        )
        for loop in loops
    )


def _aliases(root: nodes.Template, name: str) -> set[str]:
    """`name` and all variables that are set from it."""
    assignments = [
        (node.target.name, node.node)
        for node in root.find_all(nodes.Assign)
        if isinstance(node.target, nodes.Name)
    ]
    found = {name}
    while True:
        more = {target for target, value in assignments if _reads(value, found)} - found
        if not more:
            return found
        found |= more


def _parameters_with_content(
    root: nodes.Template, macro: nodes.Macro, messages: set[str]
) -> set[str]:
    """The parameters of a macro that some call gives the content of a message."""
    names = [argument.name for argument in macro.args]
    given: set[str] = set()
    for call in root.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            named = [(keyword.key, keyword.value) for keyword in call.kwargs]
            given |= {
                name
                for name, value in [*zip(names, call.args, strict=False), *named]
                if name in names and _reads(value, messages, _CONTENT)
            }
    return given


def _reads(node: nodes.Node | None, names: set[str], field: str | None = None) -> bool:
    """Whether an expression is one of the variables, or this field of one, through filters, tests
    and slices."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    if field is not None:
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            found = node.arg.value
        elif isinstance(node, nodes.Getattr):
            found = node.attr
        else:
            return False
        if found != field:
            return False
        node = node.node
    return isinstance(node, nodes.Name) and node.name in names
