"""The documents show the figures of benchmarks/figures.json, which scripts measured."""

import importlib
import re

import pytest

from tests.conftest import REPOSITORY

HOW = "no figure is written by hand: see `Measure` in CONTRIBUTING.md"
TABLE = {"columns": ["text", "MB/s"], "rows": [["news", [321.4, 5.678]]], "title": ""}
ONE = {
    "command": "some.py",
    "date": "2026-11-25",
    "peers": {"fast": "1.2"},
    "note": "Two rounds",
    "machine": {"processor": "Zen", "cores": 2, "load": [0.5, 3.25]},
    "tables": [TABLE],
}
PAGE = "A\n<!-- figures: one -->\nold\n<!-- end -->\nB\n"


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    return importlib.import_module("figures")


def test_documents_show_what_the_file_of_figures_holds(figures):
    entries = figures.load_figures()
    page = figures.PAGE.read_text(encoding="utf-8")
    assert page == figures.render_page(page, entries), HOW
    for document in figures.documents():
        text = document.read_text(encoding="utf-8")
        assert text == figures.render_cells(text, entries), HOW
    text = figures.FIGURES.read_text(encoding="utf-8")
    assert text == figures.render_figures(entries)


def test_no_speed_is_written_by_hand(figures):
    prose = figures.PLACE.sub("", figures.PAGE.read_text(encoding="utf-8"))
    assert [line for line in prose.splitlines() if line.startswith("|")] == [], HOW
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    left = figures.CELL_PLACE.sub("", readme)
    assert re.findall(r"[\d.,]+ (?:MB/s|requests/s|times|s \|)", left) == [], HOW


def test_page_and_cells_are_rendered(figures):
    assert figures.render_page(PAGE, {"one": ONE}) == (
        "A\n<!-- figures: one -->\n\n"
        "| text | MB/s |\n| --- | --- |\n| news | 321 / 5.68 |\n\n"
        "*2026-11-25, Zen, 2 cores, load 0.5 to 3.25. fast 1.2. Two rounds. `measure.py one`.*\n"
        "\n<!-- end -->\nB\n"
    )
    place = "<!-- figure: one; news; MB/s -->{}<!-- end -->"
    assert figures.render_cells(place.format("9"), {"one": ONE}) == place.format("321")
