"""The measured figures: what a benchmark returns, `figures.json`, and their places in documents.

A script calls `make_parser` and ends with `report`: people see its tables, and `measure.py`
reads them as JSON. `figures.json` has an entry for each name on docs/benchmarks.md:

- `command`: what `measure.py NAME` runs; null where no script repeats the figures
- `only`: where there, the instruction set of the processors that measure it
- `date`, `machine`, `peers`, `note`: when, where, beside which versions, under which conditions
- `tables`: see `Table`; none before the first measurement

Other documents show single cells: `<!-- figure: NAME; ROW; COLUMN -->335<!-- end -->`. Of several
numbers in a cell they show the first.
"""

import argparse
import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

REPOSITORY = Path(__file__).resolve().parent.parent
FIGURES = REPOSITORY / "benchmarks" / "figures.json"
PAGE = REPOSITORY / "docs" / "benchmarks.md"

Cell: TypeAlias = "str | float | Sequence[Cell] | None"
"""A word, a number, nothing, or several of these: `[321.0, 577.0]` is shown as `321 / 577`."""

CELL_PLACE = re.compile(r"(<!-- figure: ([^>]+?) -->)[^<]*(<!-- end -->)")
PLACE = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class Table:
    """A result; each row has a cell for each column."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{row} does not have {len(self.columns)} cells")


# ------------------------------------------------------------------------------------ to people


def render_cell(cell):
    """Numbers keep three digits or two decimals."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Sequence):
        return " / ".join(map(render_cell, cell))
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    if abs(cell) >= 10:
        return f"{cell:.1f}"
    return f"{cell:.2f}" if abs(cell) >= 0.1 or not cell else f"{cell:.2g}"


def render_row(cells):
    """A line of a table in Markdown."""
    return f"| {' | '.join(map(render_cell, cells))} |\n"


def render_table(table):
    """The table in Markdown."""
    text = "".join(map(render_row, [table.columns, ["---"] * len(table.columns), *table.rows]))
    return f"{table.title}\n\n{text}" if table.title else text


def render_entry(name, entry):
    """The tables, then a line that says when and where they were measured."""
    repeat = [f"`measure.py {name}`"] if entry["command"] else []
    if not entry["tables"]:
        return f"Not measured yet: {repeat[0]}.\n"
    told = [entry["date"], entry["machine"]["processor"]]
    if entry["machine"].get("instruction_set"):
        told.append(entry["machine"]["instruction_set"])
    if entry["machine"].get("cores"):
        told.append(f"{entry['machine']['cores']} cores")
    if entry["machine"].get("load"):
        told.append("load {} to {}".format(*entry["machine"]["load"]))
    parts = [", ".join(told)]
    if entry["peers"]:
        told = [
            f"{peer} {NOT_INSTALLED if version is None else version}".rstrip()
            for peer, version in entry["peers"].items()
        ]
        parts.append(", ".join(told))
    if entry["note"]:
        parts.append(entry["note"].rstrip("."))
    tables = "\n".join(render_table(Table(**table)) for table in entry["tables"])
    return f"{tables}\n*{'. '.join([*parts, *repeat])}.*\n"


def render_page(page, entries):
    """The page with the figures of `entries` in its places; raises ValueError for a name without
    an entry, an entry without a place, and a name that is there twice."""
    names = [name for _, name, _ in PLACE.findall(page)]
    if sorted(names) != sorted(entries):
        wrong = set(names) ^ set(entries) or {name for name in names if names.count(name) > 1}
        raise ValueError(f"the page and figures.json do not have the same names: {sorted(wrong)}")
    return PLACE.sub(
        lambda found: f"{found[1]}\n{render_entry(found[2], entries[found[2]])}\n{found[3]}", page
    )


def render_cells(text, entries):
    """The document with the cells of `entries` in its places; raises ValueError for a place that
    names no cell."""
    return CELL_PLACE.sub(
        lambda found: f"{found[1]}{render_cell(_cell(found[2], entries))}{found[3]}", text
    )


def _cell(place, entries):
    name, row, column = place.split("; ")
    for table in entries.get(name, {}).get("tables", ()):
        for cells in table["rows"]:
            if cells[0] == row and column in table["columns"]:
                cell = cells[table["columns"].index(column)]
                return cell[0] if isinstance(cell, list) else cell
    raise ValueError(f"figures.json has no cell {place!r}")


def documents():
    """The documents that may show cells."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


# -------------------------------------------------------------------------------- from the scripts


def make_parser(description, rounds=3):
    """A parser with the options of all scripts: `--json`, and `--rounds` unless `rounds` is 0."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the tables there")
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def report(tables, json_path, note=""):
    """Print the tables, and write them to the file of `--json`; `note` tells the conditions."""
    for table in tables:
        print(f"\n{render_table(table)}", flush=True)
    if note:
        print(note)
    if json_path:
        told = {"tables": [asdict(table) for table in tables], "note": note}
        json_path.write_text(json.dumps(told), encoding="utf-8")


def machine():
    """The machine on which this process runs."""
    told = {"model name": platform.processor() or platform.machine(), "flags": ""}
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            told[key.strip()] = value.strip()
    names = {"avx512bw": "AVX-512", "avx2": "AVX2"}
    known = (names[flag] for flag in names if flag in told["flags"].split())
    return {
        "processor": told["model name"],
        "instruction_set": next(known, platform.machine()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def load_average():
    """The mean number of running and waiting processes of the last minute."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


# -------------------------------------------------------------------------------------- the file


def load_figures():
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def render_figures(entries):
    """JSON with a line for each row, so that a diff shows what changed."""
    return _render_json(entries, "\n") + "\n"


def _render_json(value, line_end, key=""):
    deeper = line_end + "  "
    if isinstance(value, dict) and value:
        items = [
            f"{json.dumps(name)}: {_render_json(part, deeper, name)}"
            for name, part in value.items()
        ]
        return f"{{{deeper}{f',{deeper}'.join(items)}{line_end}}}"
    if key in ("tables", "rows") and value:
        items = [_render_json(part, deeper) for part in value]
        return f"[{deeper}{f',{deeper}'.join(items)}{line_end}]"
    return json.dumps(_rounded(value), ensure_ascii=False)


def _rounded(value):
    """Numbers with four digits."""
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
