"""The HTML of the evaluation pages: elements, the document, sections, tables and the style.

Elements are escaped by construction: `element` escapes everything that is not already `Markup`, so
a token `<script>` is always displayed and never becomes an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

_VOID: Final = frozenset({"meta", "br", "rect", "line", "polyline"})


class Markup(str):
    """Complete, escaped markup."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element with its children; strings and numbers are escaped.

    Attributes are named as in HTML, with `_` for `-` and a `_` after Python's keywords (`class_`).
    Attributes that are None are left out.

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
    """The parts joined; parts that are not markup are escaped."""
    return Markup("".join(p if isinstance(p, Markup) else escape(str(p)) for p in parts))


# The page has no scripts and no URLs; the policy enforces that.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def shorten(text: str, n_chars: int) -> str:
    """At most this many characters of a text."""
    return text if len(text) <= n_chars else text[: n_chars - 1] + "…"


def page(title: str, header: Markup, main: Markup) -> str:
    """An HTML document without scripts or requests, in the reader's light or dark theme."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    body = element("body", header, main)
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def section(title: str, *content: Markup) -> Markup:
    """A section with a heading."""
    return element("section", element("h2", title), *content)


def table(
    header: Sequence[str], rows: Sequence[Sequence[object] | str], n_left: int = 1, n_text: int = 0
) -> Markup:
    """A table. The first `n_left` columns are row headings, the last `n_text` are text, the others
    are numbers. A row given as a string is a heading for the rows below it."""
    end = len(header) - n_text

    def kind(index: int) -> str | None:
        return None if index < n_left or index >= end else "n"

    head = [element("th", text, scope="col", class_=kind(i)) for i, text in enumerate(header)]
    body = []
    for row in rows:
        if isinstance(row, str):
            cell = element("th", row, scope="rowgroup", colspan=len(header))
            body.append(element("tr", cell, class_="group"))
            continue
        cells = [element("th", cell, scope="row") for cell in row[:n_left]]
        cells += [element("td", row[i], class_=kind(i)) for i in range(n_left, len(row))]
        body.append(element("tr", *cells))
    return wide(head, body)


def wide(head: Sequence[Markup], body: Sequence[Markup]) -> Markup:
    """A table of these rows in a scrollable frame."""
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    # Focusable, so that the keyboard can scroll a table wider than the screen.
    return element("div", whole, class_="wide", tabindex=0)


STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1b1f24; --quiet: #5b6470; --rule: #d8dde3; --heat-ink: #2f7fc1;
  --c0: #0072b2; --c1: #d55e00; --c2: #008060; --c3: #b8548f; --c4: #8a6d00; --c5: #3a9bd9;
  --c6: #5b6470; --c7: #6a4fb3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e7eaee; --quiet: #9aa4b0; --rule: #333a43; --heat-ink: #3d8fd1;
    --c0: #56b0ec; --c1: #ff9350; --c2: #3cc79b; --c3: #e695c2; --c4: #dcbf4a; --c5: #9ad4f7;
    --c6: #b4bcc6; --c7: #b7a1ec;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.7rem; margin: 0; }
h2 {
  font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-top: 1rem;
  border-top: 1px solid var(--rule);
}
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; }
.names { font-weight: 600; margin-top: .25rem; }
.quiet { color: var(--quiet); }
.conclusion {
  margin: 1rem 0 0; padding: .75rem 1rem .75rem 2rem; border-left: 4px solid var(--c0);
  font-weight: 600;
}
.wide { overflow-x: auto; margin-bottom: .5rem; }
.wide:focus-visible { outline: 2px solid var(--c0); }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td {
  padding: .3rem .65rem; text-align: left; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--rule);
}
thead th { color: var(--quiet); font-weight: 600; }
tbody th { font-weight: 500; }
tbody th:first-child { position: sticky; left: 0; background: var(--page); }
.group th { font-weight: 700; padding-top: .9rem; }
@media (max-width: 30rem) { th, td { padding: .3rem .4rem; } }
.n { text-align: right; }
td.heat {
  background: color-mix(in srgb, var(--heat-ink) calc(var(--heat) * .6%), var(--page));
}
code { font: .8125rem/1.4 ui-monospace, monospace; white-space: pre-wrap; unicode-bidi: isolate; }
.pair { display: grid; gap: 1.5rem 2.5rem; grid-template-columns: minmax(0, 1fr); }
@media (min-width: 52rem) { .pair { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
figure { margin: 0; max-width: 30rem; }
figcaption { font-weight: 600; margin-bottom: .25rem; }
figure > svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif; }
svg .head { font-weight: 600; font-size: 12px; }
svg .end { text-anchor: end; }
svg .mid { text-anchor: middle; }
svg .small { font-size: 9.5px; }
svg .quiet { fill: var(--quiet); }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke: var(--c); stroke-width: 1.8; }
svg .thick { stroke-width: 3; }
svg .fill { fill: var(--c); }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
.legend {
  list-style: none; margin: .25rem 0 .5rem; padding: 0; font-size: .875rem;
  display: flex; flex-wrap: wrap; gap: .1rem 1.25rem;
}
summary { cursor: pointer; margin: .35rem 0; }
dt { font-weight: 600; } dd { margin: 0 0 .75rem; }
"""
