"""Which added tokens are control tokens: no user may write them.

They are the special tokens, those that a chat template writes, and those that the import names.
What a template writes follows from its syntax tree, without running it: its string constants, its
plain text and the tokenizer's variables, also where literals are joined with each other or with a
role (`'<|' + message.role + '|>'`), and forms with a role or nothing in their fields (`'<|%s|>' %
message.role`, `'<|end{}|>'.format(suffix)`). A token that a template joins in another way (from
arguments of a macro, in a loop) is one in the conversations in which the template writes it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from string import Formatter
from typing import TYPE_CHECKING

from tokenizer_core.chat.traced_text import PERCENT_FIELD, ROLES
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER
from tokenizer_core.specials.matchers import matcher_of_strings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2 import nodes

    from tokenizer_core.spec import AddedToken, TokenizerSpec


def find_control_tokens(
    spec: TokenizerSpec, source: str | None = None, written: Iterable[str] = ()
) -> frozenset[str]:
    """The control tokens of `spec` and of its chat templates. `source` is that of one more
    template, and `written` is what it wrote.

    White space and single letters in a literal are no control tokens: many vocabularies have added
    tokens of spaces, which all text contains.
    """
    chat = spec.chat
    sources = tuple(chat.sources.values())
    if source is not None and source not in sources:
        sources += (source,)
    variables = tuple((chat.variables or {}).values())
    control, others = _find(spec.added_token_set, chat.control_tokens, variables, sources)
    found = _tokens_in(written, others)
    return control | found if found else control  # the same set: its hash and matcher are known


@lru_cache(maxsize=64)
def _find(
    added_tokens: frozenset[AddedToken],
    named: tuple[str, ...],
    texts: tuple[str, ...],
    sources: tuple[str, ...],
) -> tuple[frozenset[str], frozenset[str]]:
    """The control tokens, and the other added tokens that a template may write."""
    contents = {token.content for token in added_tokens}
    control = {token.content for token in added_tokens if token.special}
    control |= contents.intersection(named)
    others = frozenset(
        token
        for token in contents - control
        if not token.replace(METASPACE_CHARACTER, " ").isspace()
        and not (len(token) == 1 and token.isalpha())
    )
    literals = (literal for source in sources for literal in _literals_of(source))
    found = _tokens_in({*texts, *literals}, others)
    return found | control, others - found


def _tokens_in(texts: Iterable[str], contents: frozenset[str]) -> frozenset[str]:
    """All of the strings in the texts, also those that overlap."""
    if not contents:
        return contents
    longest, matcher = set[str](), matcher_of_strings(contents)
    for text in set(texts):  # a template writes the same around each message
        position = 0
        while match := next(matcher.matches(text, position), None):
            longest.add(match.group())
            position = match.start() + 1
    beginnings = (token[:end] for token in longest for end in range(1, len(token) + 1))
    return contents.intersection(beginnings)


@lru_cache(maxsize=64)
def _literals_of(source: str) -> frozenset[str]:
    """The texts in a template, also joined; none if it is no template."""
    from jinja2 import TemplateError, nodes  # here: a process without chats does not load Jinja

    from tokenizer_core.chat.template import parse

    try:
        tree = parse(source)
        joined = [
            list(_parts(node))
            for node in tree.find_all(
                (nodes.Output, nodes.Add, nodes.Concat, nodes.Mod, nodes.Call, nodes.Filter)
            )
        ]
    except TemplateError:
        return frozenset()
    except RecursionError:  # the process that renders may have a deeper stack
        return frozenset([source])
    found = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    found.update(node.data for node in tree.find_all(nodes.TemplateData))
    roles = {word for role in ROLES for word in (role, role.capitalize(), role.upper())}
    for parts in joined:
        for value in {*roles, ""}:
            found.add("".join(value if part is None else part for part in parts))
    return frozenset(found)


def _parts(node: nodes.Node) -> Iterator[str | None]:
    """The literals that an expression joins, and None for each other value."""
    from jinja2 import nodes

    match node:
        case nodes.Output() | nodes.Concat():
            for child in node.nodes:
                yield from _parts(child)
        case nodes.Add():
            yield from _parts(node.left)
            yield from _parts(node.right)
        case nodes.Const(value=str(text)) | nodes.TemplateData(data=text):
            yield text
        case nodes.Call(node=nodes.Getattr(node=nodes.Const(value=str(form)), attr="format")):
            with suppress(ValueError):  # no such form: the template fails
                for text, field, _, _ in Formatter().parse(form):
                    yield from (text,) if field is None else (text, None)
        case (
            nodes.Mod(left=nodes.Const(value=str(form)))
            | nodes.Filter(node=nodes.Const(value=str(form)), name="format")
        ):
            at = 0
            for match in PERCENT_FIELD.finditer(form):
                yield from (form[at : match.start()], "%" if match[0] == "%%" else None)
                at = match.end()
            yield form[at:]
        case _:
            yield None
