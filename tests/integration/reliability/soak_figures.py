"""The samples of a soak, whether they grew, and the table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MAX_MORE = {
    "memory": 8 << 20,
    "files": 4,
    "threads": 4,
    "processes": 0,
    "disk_files": 12,
    "blocks": 20_000,
}
"""How much more the last third may hold than the middle one; all processes together.

- memory: allocators keep some of what they had, and a thread that a pool starts late brings its
  share, once: 7 MB in six minutes with three such threads. In the two hundred seconds between
  the thirds of ten minutes, 8 MB are some 400 bytes for each of 20,000 requests.
- blocks: those of Python's allocator. A tokenizer that a client named last is 7,000 a process,
  and comes and goes. A leak of one object for each request shows within ten minutes.
- files, threads: pools start a thread, or keep the database open, when they first need it.
- disk_files: two more versions of what was trained may be in use, so not removed yet.
"""


@dataclass(frozen=True)
class Account:
    """What one serving process holds at rest: figures by name, objects of Python by type."""

    figures: Mapping[str, int]
    types: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """What the processes hold together at rest. `memory` is private, in bytes; `highest` is the
    largest resident memory under the load before; `accounts` are by pid."""

    seconds: float
    memory: int
    highest: int
    files: int
    threads: int
    processes: int
    disk_files: int
    blocks: int
    done: Counter[str] = field(default_factory=Counter)
    accounts: Mapping[int, Account] = field(default_factory=dict)


def growths(samples: Sequence[Sample]) -> dict[str, int]:
    """How much more the last third held than the middle one, at the least moment of each.

    The first third is the warm-up. Temporary resources are absent at some moment; of a leak that
    loses a little at each request, a third shows between the two.

    Raises:
        ValueError: fewer than six samples say nothing.
    """
    third = len(samples) // 3
    if third < 2:
        raise ValueError(f"{len(samples)} samples are too few to compare two thirds of them")
    middle, last = samples[-2 * third : -third], samples[-third:]

    def least(part: Sequence[Sample], name: str) -> int:
        return min(int(getattr(sample, name)) for sample in part)

    return {name: least(last, name) - least(middle, name) for name in MAX_MORE}


def leaks(samples: Sequence[Sample], max_more: Mapping[str, int] = MAX_MORE) -> list[str]:
    """One line for each figure that grew more than allowed."""
    return [
        f"{name} grew by {growth:,}, and may by {max_more[name]:,}"
        for name, growth in growths(samples).items()
        if growth > max_more[name]
    ]


def what_grew(samples: Sequence[Sample], *, n_types: int = 15) -> Iterator[str]:
    """For each serving process, a line for each figure, and for the types that grew most, from the
    first sample after the warm-up to the last one."""
    before, after = samples[len(samples) - 2 * (len(samples) // 3)], samples[-1]
    for pid in sorted(before.accounts.keys() & after.accounts.keys()):
        yield f"process {pid}, from {before.seconds / 60:.1f} to {after.seconds / 60:.1f} min:"
        earlier, later = before.accounts[pid], after.accounts[pid]
        for name in sorted({*earlier.figures, *later.figures}):
            yield _change(name, earlier.figures.get(name, 0), later.figures.get(name, 0))
        grown = sorted(later.types, key=lambda name: earlier.types.get(name, 0) - later.types[name])
        for name in grown[:n_types]:
            was, now = earlier.types.get(name, 0), later.types[name]
            if now > was:
                yield _change(f"objects of {name}", was, now)


def _change(name: str, was: int, now: int) -> str:
    return f"    {name}: {was:,} -> {now:,} ({now - was:+,})"


_COLUMNS: dict[str, Callable[[Sequence[Sample]], str]] = {
    "min": lambda row: f"{row[-1].seconds / 60:.1f}",
    "requests": lambda row: f"{_done(row, 'requests'):,}",
    "MB": lambda row: f"{_done(row, 'bytes') / 1e6:,.0f}",
    "checked": lambda row: f"{_done(row, 'checked'):,}",
    "swaps": lambda row: f"{_done(row, 'swaps'):,}",
    "jobs": lambda row: f"{_done(row, 'jobs'):,}",
    "hung up": lambda row: f"{_done(row, 'hung up'):,}",
    "highest MB": lambda row: f"{max(sample.highest for sample in row) / 1e6:,.1f}",
    "at rest MB": lambda row: f"{min(sample.memory for sample in row) / 1e6:,.1f}",
    "files": lambda row: f"{row[-1].files:,}",
    "threads": lambda row: f"{row[-1].threads:,}",
    "processes": lambda row: f"{row[-1].processes:,}",
    "blocks": lambda row: f"{min(sample.blocks for sample in row):,}",
    "on disk": lambda row: f"{row[-1].disk_files:,}",
}


def header() -> str:
    """The head of the table, in Markdown, so that it can be pasted."""
    names = [f"{name:>10}" for name in _COLUMNS]
    return f"|{'|'.join(names)}|\n|{'|'.join(['---------:'] * len(names))}|"


def row_of(samples: Sequence[Sample]) -> str:
    """One row for the samples of one minute."""
    return "|" + "|".join(f"{render(samples):>10}" for render in _COLUMNS.values()) + "|"


def summary(samples: Sequence[Sample]) -> Iterator[str]:
    """The totals, and how the thirds compare."""
    total: Counter[str] = sum((sample.done for sample in samples), Counter())
    yield ", ".join(f"{count:,} {what}" for what, count in sorted(total.items()))
    told = (f"{name} {growth:+,}" for name, growth in growths(samples).items())
    yield f"the last third against the middle one: {', '.join(told)}"


def _done(row: Sequence[Sample], what: str) -> int:
    return sum(sample.done[what] for sample in row)
