"""Measure the page: its first paint, and the longest task on 1 MB of text.

    .venv/bin/python benchmarks/page_speed.py
    .venv/bin/python benchmarks/page_speed.py --text news.txt --text chinese.txt

The script starts the service with the starter tokenizer and opens the page with Playwright in the
Chromium on the PATH. The first paint is the browser's `first-contentful-paint`, the median of five
loads with an empty cache; `pieces` is the time of the first token on screen. Each text, cut at 1
MB, is pasted from the clipboard, scrolled, clicked and shown in two panes. The longest task is
what `PerformanceObserver` reports (`longtask`: from 50 ms on, including waits for a busy
processor), the median of three rounds. The exit status is 1 if one took 200 ms or more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from corpora import label
from figures import Table, add_json_option, report
from playwright.sync_api import Browser, Page, sync_playwright

REPOSITORY = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TEXT_BYTES = 1_000_000
LIMIT_MS = 200
N_LOADS = 5
N_ROUNDS = 3
OBSERVE = """
window.tasks = [];
new PerformanceObserver(list => tasks.push(...list.getEntries().map(entry => entry.duration)))
    .observe({type: "longtask", buffered: true});
"""
SCROLL = """async () => {
    const flow = document.querySelector("#panes .pieces");
    for (let step = 0; step < 40; step++) {
        flow.scrollTop += flow.scrollHeight / 40;
        await new Promise(resolve => setTimeout(resolve, 50));
    }
}"""


@contextmanager
def serve() -> Iterator[str]:
    """Serve a copy of the starter tokenizer; yield the address."""
    with tempfile.TemporaryDirectory() as folder:
        artifacts = Path(folder) / "artifacts"
        shutil.copytree(REPOSITORY / "artifacts" / "tokenizers", artifacts / "tokenizers")
        port = 8700 + os.getpid() % 1000
        environment = {
            **{name: value for name, value in os.environ.items() if "TOKENIZER" not in name},
            "TOKENIZER_PORT": str(port),
            "TOKENIZER_ARTIFACTS_DIR": str(artifacts),
        }
        command = [sys.executable, "-m", "tokenizer_service.cli", "serve", "--exit-with-parent"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=quiet, stderr=quiet
        )
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(300):
                with suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5):
                    break
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def first_paint(browser: Browser, url: str) -> tuple[float, float]:
    """Milliseconds to the first paint and to the first token on screen."""
    paints, pieces = [], []
    for _ in range(N_LOADS):
        page = browser.new_page()
        page.goto(url)
        page.locator("#panes .piece").first.wait_for()
        pieces.append(page.evaluate("performance.now()"))
        entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        paints.append(page.evaluate(entry))
        page.close()
    return statistics.median(paints), statistics.median(pieces)


def longest_tasks(browser: Browser, url: str, text: str) -> dict[str, float]:
    """User action -> milliseconds of its longest task."""
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page = context.new_page()
    page.add_init_script(OBSERVE)
    page.goto(url)
    page.locator("#panes .piece").first.wait_for()
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    actions: dict[str, Callable[[Page], Any]] = {
        "paste": _paste,
        "scroll": lambda page: page.evaluate(SCROLL),
        "click": lambda page: page.locator("#panes .piece").last.click(),
        "compare": lambda page: page.click("#compare"),
    }
    found = {}
    for name, action in actions.items():
        page.wait_for_timeout(1000)
        page.evaluate("tasks.length = 0")
        action(page)
        page.wait_for_timeout(2000)
        found[name] = max([0.0, *page.evaluate("tasks")])
    context.close()
    return found


def _paste(page: Page) -> None:
    page.focus("#text")
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+v")
    page.locator("#held").wait_for()


def own_text() -> str:
    """1 MB of English and code from the repository."""
    files = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("**/*.py")]
    return "".join(path.read_text(encoding="utf-8") for path in sorted(files))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", action="append", type=Path, default=[], help="a UTF-8 file")
    add_json_option(parser)
    arguments = parser.parse_args()
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        parser.error(f"none of {', '.join(BROWSERS)} is on the PATH; install one")
    texts = {label(path): path.read_text(encoding="utf-8") for path in arguments.text}
    rows = []
    with serve() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        paint, pieces = first_paint(browser, url)
        note = f"Chromium {browser.version}: first paint {paint:.0f} ms, pieces {pieces:.0f} ms"
        for name, text in (texts or {"this repository": own_text()}).items():
            cut = text.encode()[:TEXT_BYTES].decode(errors="ignore")
            rounds = [longest_tasks(browser, url, cut) for _ in range(N_ROUNDS)]
            found = [statistics.median(one[action] for one in rounds) for action in rounds[0]]
            rows.append([f"{name}, {len(cut.encode()) / 1e6:.0f} MB", *found])
        browser.close()
    report([Table(["longest task, ms", *rounds[0]], rows)], arguments.json, note)
    return int(max(ms for _, *found in rows for ms in found) >= LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
