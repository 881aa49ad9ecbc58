"""What the HTML pages share: the document around them, sections, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenizer_core.evaluation.markup import Markup, element
from tokenizer_core.evaluation.page_style import STYLE

# Belt and braces: the page has no script and no address in it, and this keeps it so.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, header: Markup, main: Markup) -> str:
    """A whole HTML document: no script, nothing fetched, light or dark as the reader has it."""
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
    """A section with its heading."""
    return element("section", element("h2", title), *content)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[object] | str],
    n_left: int = 1,
    n_text: int = 0,
) -> Markup:
    """A table whose first `n_left` columns are headings of rows and whose last `n_text` are text;
    the others are numbers. A row that is a string is a heading of those below it."""
    end = len(header) - n_text

    def kind(place: int) -> str | None:
        return None if place < n_left or place >= end else "n"

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
    """A table of these rows, in a frame of its own that scrolls."""
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    # Focusable, so that what is wider than the screen can be scrolled with the keyboard.
    return element("div", whole, class_="wide", tabindex=0)
