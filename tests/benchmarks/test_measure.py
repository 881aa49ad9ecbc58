"""`benchmarks/measure.py` runs the command of a figure and writes what it returns."""

import importlib
import json
import sys

import pytest

from tests.conftest import REPOSITORY

SCRIPT = """
import sys
from figures import Table, report
from pathlib import Path
if "fail" in sys.argv:
    sys.exit(1)
report([Table(["peers", "MB/s"], [[sys.argv[1], 25.45001]])], Path(sys.argv[-1]), "One round")
"""


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """The module, with a page and figures of its own in `tmp_path`."""
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "benchmarks"))
    figures, module = map(importlib.import_module, ("figures", "measure"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    empty = {"date": None, "machine": {}, "note": "", "tables": []}
    entries = {
        "one": {
            "command": f"{script} {module.PEERS}", **empty,
            "peers": {"pytest": "0.1", "not-on-this-machine": None},
        },
        "broken": {"command": f"{script} fail", **empty, "peers": {}},
        "by-hand": {"command": None, **empty, "peers": {}},
        "elsewhere": {"command": f"{script} x", "only": "VAX", **empty, "peers": {}},
    }  # fmt: skip
    entries["by-hand"]["tables"] = [{"columns": ["a"], "rows": [[1]], "title": ""}]
    entries["by-hand"] |= {"date": "2026-11-25", "machine": {"processor": "Zen"}}
    (tmp_path / "figures.json").write_text(figures.render_figures(entries), encoding="utf-8")
    places = (f"<!-- figures: {name} -->\n<!-- end -->\n" for name in entries)
    (tmp_path / "page.md").write_text("".join(places), encoding="utf-8")
    for holder in (figures, module):
        monkeypatch.setattr(holder, "FIGURES", tmp_path / "figures.json")
        monkeypatch.setattr(holder, "PAGE", tmp_path / "page.md")
    return module


def run(measure, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["measure.py", "--peers", sys.executable, *arguments])
    return measure.main()


def test_a_figure_is_measured_and_rendered(measure, monkeypatch, tmp_path, capsys):
    assert run(measure, monkeypatch, "one") == 0
    one = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["one"]
    assert one["tables"][0]["rows"] == [[sys.executable, 25.45]]
    assert one["note"] == "One round"
    assert one["peers"] == {"pytest": pytest.__version__, "not-on-this-machine": None}
    assert {"processor", "instruction_set", "cores", "python", "load"} == set(one["machine"])
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert f"| {sys.executable} | 25.4 |" in page  # as the file has it, not 25.5
    assert "not-on-this-machine not installed" in page
    assert "benchmarks/peers.txt" in capsys.readouterr().err


def test_a_command_that_fails_leaves_the_figures(measure, monkeypatch, tmp_path, capsys):
    before = (tmp_path / "figures.json").read_text(encoding="utf-8")
    assert run(measure, monkeypatch, "broken") == 1
    assert (tmp_path / "figures.json").read_text(encoding="utf-8") == before
    assert "the old figures stay" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["by-hand", "unheard-of", "elsewhere"])
def test_what_cannot_be_measured_here_is_refused(measure, monkeypatch, name, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(measure, monkeypatch, name)
    assert name in capsys.readouterr().err


def test_without_a_name_the_page_is_rendered(measure, monkeypatch, tmp_path, capsys):
    assert run(measure, monkeypatch) == 0
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Not measured yet: `measure.py one`." in page
    assert "| 1 |\n\n*2026-11-25, Zen.*\n" in page
    assert "elsewhere" in capsys.readouterr().out
