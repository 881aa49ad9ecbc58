"""Measure figures again; write them to `figures.json`, docs/benchmarks.md and other documents.

    .venv/bin/python benchmarks/measure.py                    # list the figures; render the page
    .venv/bin/python benchmarks/measure.py encode one-thread  # measure these

Each name has a command in `figures.json`. A figure that was not measured again keeps its date and
machine. Other libraries need an environment of their own:

    python3 -m venv peers && peers/bin/pip install -r benchmarks/peers.txt

`--peers` names the Python of another one. A table says which library was missing.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from figures import (
    FIGURES,
    PAGE,
    REPOSITORY,
    documents,
    load_average,
    load_figures,
    machine,
    render_cells,
    render_figures,
    render_page,
)  # fmt: skip

PEERS = "peers/bin/python"
"""How the commands write the Python of the peers."""

REMEDY = "python3 -m venv peers && peers/bin/pip install -r benchmarks/peers.txt"
VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


def versions(python, names):
    """The installed versions of these distributions; None for one that is missing."""
    command = [python, "-c", VERSIONS, *names]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return dict.fromkeys(names)
    return json.loads(done.stdout)


def measure(name, entry, peers_python):
    """Run the command of an entry; return the entry with the new figures."""
    command = shlex.split(entry["command"])
    python = peers_python if PEERS in command else sys.executable
    peers = versions(python, list(entry["peers"]))
    missing = [peer for peer, version in peers.items() if version is None]
    if missing:
        print(f"{name}: {python} lacks {', '.join(missing)}: {REMEDY}", file=sys.stderr)
    command = [peers_python if word == PEERS else word for word in command]
    before = load_average()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run(
            [sys.executable, *command, "--json", str(result)], check=True, cwd=REPOSITORY
        )
        told = json.loads(result.read_text(encoding="utf-8"))
    return entry | {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine() | {"load": [before, load_average()]},
        "peers": peers,
        **told,
    }


def write(entries):
    """Write `figures.json` and the documents."""
    text = render_figures(entries)
    rounded = json.loads(text)
    page = render_page(PAGE.read_text(encoding="utf-8"), rounded)
    FIGURES.write_text(text, encoding="utf-8")
    PAGE.write_text(page, encoding="utf-8")
    for document in documents():
        document.write_text(
            render_cells(document.read_text(encoding="utf-8"), rounded), encoding="utf-8"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--peers", type=Path, default=REPOSITORY / PEERS, help="their Python")
    arguments = parser.parse_args()
    entries = load_figures()
    unknown = [name for name in arguments.names if not entries.get(name, {}).get("command")]
    if unknown:
        parser.error(f"no command for {', '.join(unknown)}; without a name I list them")
    peers_python = str(arguments.peers.absolute())
    failed = []
    for name in arguments.names:
        only, here = entries[name].get("only"), machine()["instruction_set"]
        if only not in (None, here):
            parser.error(f"{name} is of a processor with {only}; this one has {here}")
        print(f"\n{name}: {entries[name]['command']}", flush=True)
        try:
            found = measure(name, entries[name], peers_python)
            write(load_figures() | {name: found})  # another run may have written meanwhile
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name}: exit status {error.returncode}; the old figures stay", file=sys.stderr)
    if not arguments.names:
        write(entries)
        for name, entry in entries.items():
            print(f"{name:24} {entry['date'] or 'never':12} {entry['command'] or 'no command'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
