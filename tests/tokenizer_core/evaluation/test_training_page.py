"""The page of a training run: its figures, its curve, and nothing executable."""

import json
import re
from typing import Any

import pytest

from tokenizer_core.evaluation.training_page import render_training_page
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import PretokenCounts, VocabularyOptions, train_from_counts

COUNTS = PretokenCounts(
    {f"{i * 7919 % 977:x}<b>&": 1 + i % 9 for i in range(900)}, PATTERNS["gpt2"], n_bytes=123_456
)


def reports(**options: Any) -> dict[str, dict[str, Any]]:
    run = train_from_counts(COUNTS, 700, options=VocabularyOptions(**options))
    made = {f"a-{size}": run.at_size(size).report.to_dict() for size in (300, 700)}
    read: dict[str, dict[str, Any]] = json.loads(json.dumps(made))  # as from a manifest
    return read


def test_the_figures_of_every_size_and_the_curve_are_there():
    runs = reports(min_frequency=2, seed_tokens=("zz",))
    page = render_training_page(runs)
    for name, run in runs.items():
        row = re.search(f'<tr><th scope="row">{name}</th>.*?</tr>', page)
        assert row is not None
        for figure in (f"{run['n_tokens']:,}", f"{run['bytes_per_token']:.3f}"):
            assert f">{figure}</td>" in row.group()
    curve = runs["a-700"]["curve"]
    points = re.search(r'<polyline points="([^"]*)"', page)
    assert points is not None
    assert len(points.group(1).split()) == len(curve)
    every = page[page.index("<details>") : page.index("</details>")]
    assert every.count("<tr>") == len(curve) + 1
    assert "123,456 bytes" in page
    assert "least frequency of a pair" in page
    assert "merges of seed tokens" in page
    assert "most bytes of a token" not in page


def test_what_a_larger_size_brings_is_counted_from_the_row_above():
    page = render_training_page(reports())
    table = page[page.rindex("<table>", 0, page.index("What was made")) :]
    rows = re.findall(r"<tr><th scope=\"row\">([\d,]+)</th>(.*?)</tr>", table)
    tokens = [
        int(re.findall(r">([\d,]+)</td>", cells)[0].replace(",", "")) for _, cells in rows[:3]
    ]
    shares = [re.findall(r">([\d.]+)%</td>", cells) for _, cells in rows[:3]]
    assert shares[0] == []
    assert shares[1] == [f"{100 * (1 - tokens[1] / tokens[0]):.1f}"]


def test_it_has_no_script_and_escapes_what_was_learned():
    page = render_training_page(reports())
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    assert "default-src &#x27;none&#x27;" in page


def test_an_early_end_is_said():
    page = render_training_page(reports(min_frequency=10_000))
    assert "a-700 ended early: no pair is left to merge that occurs at least 10000 times" in page


def test_without_a_curve_there_is_no_page():
    for runs in ({}, {"a": {"curve": []}}, {"a": {}}):
        with pytest.raises(ValueError, match="no curve"):
            render_training_page(runs)
