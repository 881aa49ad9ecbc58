"""HTML and SVG elements from Python, escaped by construction.

Everything that is not `Markup` already is text and is escaped, so a token `<script>` can only ever
be shown. Imports nothing of the package.
"""

from __future__ import annotations

from html import escape
from typing import Final

_VOID: Final = frozenset({"meta", "br", "rect", "line", "polyline", "circle"})


class Markup(str):
    """Markup that is whole and escaped."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """The element with its children, one after the other; strings and numbers are escaped.

    Attributes are named as in HTML, with `_` for `-` and a `_` behind what Python keeps for itself
    (`class_`); one that is None is left out.

    Example:
        >>> element("td", "<script>", class_="a", colspan=None)
        '<td class="a">&lt;script&gt;</td>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*parts: object) -> Markup:
    """The parts one after the other, escaped where they are no markup.

    Example:
        >>> joined(element("b", "a"), "<", 1)
        '<b>a</b>&lt;1'
    """
    return Markup("".join(p if isinstance(p, Markup) else escape(str(p)) for p in parts))
