"""docs/benchmarks.md shows the figures of benchmarks/figures.json, which scripts measured."""

import importlib
import json
import re
import shlex

import pytest

from tests.conftest import REPOSITORY

HOW = "no figure is written by hand: see `Measure` in CONTRIBUTING.md"


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    return importlib.import_module("figures")


def entry(tables, **more):
    return {
        "command": "benchmarks/some.py", "date": "2026-11-25", "peers": {}, "note": "",
        "machine": {"processor": "Zen", "cores": 2, "load": [0.5, 3.25]}, "tables": tables, **more,
    }  # fmt: skip


TABLE = {"columns": ["text", "MB/s"], "rows": [["news", [321.4, 5.678]]], "title": ""}


def test_the_page_shows_what_the_file_of_figures_holds(figures):
    page = figures.PAGE.read_text(encoding="utf-8")
    assert page == figures.render_page(page, figures.load_figures()), HOW


def test_the_file_of_figures_is_as_the_command_writes_it(figures):
    text = figures.FIGURES.read_text(encoding="utf-8")
    assert text == figures.render_figures(json.loads(text))


def test_every_table_stands_in_a_place(figures):
    prose = figures.PLACE.sub("", figures.PAGE.read_text(encoding="utf-8"))
    assert [line for line in prose.splitlines() if line.startswith("|")] == [], HOW


def test_every_command_runs_a_script_of_the_repository(figures):
    scripts = [
        shlex.split(entry["command"])[0]
        for entry in figures.load_figures().values()
        if entry["command"]
    ]
    for script in set(scripts):
        source = (REPOSITORY / script).read_text(encoding="utf-8")
        assert re.search(r"^ +(figures\.)?report\(", source, re.MULTILINE), script


def test_a_page_is_rendered_with_machine_date_versions_and_command(figures):
    page = "A\n<!-- figures: one -->\nold\n<!-- end -->\nB\n"
    one = entry([TABLE], peers={"fast": "1.2", "slow": None}, note="Two rounds")
    rendered = figures.render_page(page, {"one": one})
    assert rendered == (
        "A\n<!-- figures: one -->\n\n"
        "| text | MB/s |\n| --- | --- |\n| news | 321 / 5.68 |\n\n"
        "*2026-11-25, Zen, 2 cores, load 0.5 to 3.25. fast 1.2, slow not installed. Two rounds. "
        "`measure.py one`.*\n\n<!-- end -->\nB\n"
    )
    assert figures.render_page(rendered, {"one": one}) == rendered


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("<!-- figures: one -->\n<!-- end -->\n", ["one", "two"]),
        ("<!-- figures: one -->\n<!-- end -->\n<!-- figures: two -->\n<!-- end -->\n", ["one"]),
        ("<!-- figures: one -->\n<!-- end -->\n" * 2, ["one"]),
    ],
    ids=["no place", "no entry", "two places"],
)
def test_each_entry_has_one_place(figures, page, names):
    with pytest.raises(ValueError, match=r"two|one"):
        figures.render_page(page, {name: entry([TABLE]) for name in names})


def test_a_row_has_a_cell_for_each_column(figures):
    with pytest.raises(ValueError, match="2 cells"):
        figures.Table(["a", "b"], [["x"]])


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, ""), ("word", "word"), (1234567, "1,234,567"), (1234.5, "1,234"), (45.67, "45.7"),
        (1.236, "1.24"), (0.0123, "0.012"), (0.0, "0.00"), ([1.0, [2, "x"]], "1.00 / 2 / x"),
    ],
)  # fmt: skip
def test_cells_keep_the_digits_that_matter(figures, cell, text):
    assert figures.render_cell(cell) == text


def test_a_script_writes_the_tables_that_it_prints(figures, tmp_path, capsys):
    figures.report([figures.Table(["a"], [[1.5]])], tmp_path / "out.json", "Two rounds")
    assert capsys.readouterr().out == "\n| a |\n| --- |\n| 1.50 |\n\nTwo rounds\n"
    told = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert told == {
        "tables": [{"columns": ["a"], "rows": [[1.5]], "title": ""}], "note": "Two rounds",
    }  # fmt: skip
