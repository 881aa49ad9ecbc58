"""The rows of bad inputs and the promises, and the tests of each: `make reliability`.

A test names its row or promise in a mark: `@pytest.mark.row(7)`, `@pytest.mark.promise(13)`. The
mark selects it by name: `-k row_07`, `-k promise_13`, `-m "row or promise"`.
"""

from collections import Counter, defaultdict

import pytest

ROWS = {
    1: "a lone surrogate",
    2: "NaN and Infinity as ids",
    3: "ids that are none",
    4: "deep nesting",
    5: "20,000 wrong ids",
    6: "duplicate keys, UTF-16, invalid UTF-8",
    7: "an empty body, null, an array",
    8: "other media types and encodings",
    9: "one byte over the limit of a body",
    10: "one megabyte as one pre-token",
    11: "NUL, U+FFFF, unassigned, astral",
    12: "the empty text",
    13: "the text of special tokens",
    14: "unknown ids, no UTF-8, too much output",
    15: "streams cut anywhere",
    16: "a client that vanishes or never reads",
    17: "slow headers, slow bodies",
    18: "headers too large, too many",
    19: "ambiguous requests",
    20: "forms",
    21: "10,000 connections",
    22: "health beside heavy work",
    23: "keys",
    24: "corpus paths",
    25: "corpus URLs",
    26: "corpora that change, are empty, do not fit",
    27: "an expression of the user's own",
    28: "versions that are none",
    29: "pickle bombs",
    30: "damaged artifacts",
    31: "a damaged pointer",
    32: "two training requests",
    33: "cancelling in every state",
    34: "log lines and metric labels",
    35: "500 distinct pre-tokens of a megabyte",
    36: "disks that fail",
    37: "the active version is damaged, then a restart",
    38: "control tokens that a user types",
    39: "100 clients of a route",
    40: "compiled tokenizers that are cut, changed, replaced",
    42: "changed and foreign states of derender",
    44: "unknown and contradictory models",
    45: "unknown fields on other servers' routes",
    46: "bad rows in a corpus of any format",
}
PROMISES = {
    1: "a published version is whole or absent",
    2: "kill -9 of the trainer",
    3: "kill -9 of a worker costs what it had in hand",
    4: "kill -9 of everything inside a swap",
    5: "kill -9 of the supervisor leaves nobody",
    6: "no mixed answer",
    7: "after live, nobody answers old",
    8: "a stream keeps its snapshot",
    9: "SIGTERM",
    10: "SIGTERM during training",
    11: "a gigabyte is streamed in little memory",
    12: "a slow reader stops the sender",
    13: "overload",
    14: "a full disk leaves serving alone",
    15: "one trainer",
    16: "clock jumps",
    17: "the job database",
    18: "the same digest",
    19: "untrusted bytes crash nothing",
    20: "no leak",
}
NAMED = {"row": ROWS, "promise": PROMISES}

ALL_NAMES = {
    f"{kind}_{number:02}": title
    for kind, titles in NAMED.items()
    for number, title in titles.items()
}


def pytest_itemcollected(item):
    """`@pytest.mark.row(7)` gives the name `row_07`, to `-k` and to the reports."""
    for kind, titles in NAMED.items():
        for marker in item.iter_markers(kind):
            for number in marker.args:
                if number not in titles:
                    raise pytest.UsageError(f"{item.nodeid}: there is no {kind} {number}")
                name = f"{kind}_{number:02}"
                item.extra_keyword_matches.add(name)
                item.keywords[name] = name


def pytest_terminal_summary(terminalreporter):
    """The outcome of the tests of each name; only with `-p tests.reliability.names`."""
    outcomes = defaultdict(Counter)
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for name in ALL_NAMES.keys() & report.keywords:
                outcomes[name][outcome] += 1
    terminalreporter.section("rows and promises")
    for name, title in ALL_NAMES.items():
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes[name].items())
        terminalreporter.line(f"{name:<10} {title:<44} {counts or 'not run'}")
