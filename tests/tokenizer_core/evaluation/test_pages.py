"""Pages are whole and escaped, and each mark of a plot is at the position of its value."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tokenizer_core.evaluation.small_tokenizers import THE, merging
from tokenizer_core.evaluation import TextFiles, build_report
from tokenizer_core.evaluation.pages import render_report_page, render_training_page
from tokenizer_core.evaluation.plots import bars, columns, lines, picture
from tokenizer_core.evaluation.tables import render_report
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.training import PretokenCounts, VocabularyOptions, train_from_counts

HOSTILE = b"<script>alert('x')</script>\"&amp;"
VOID = {"meta", "br", "rect", "line", "polyline"}
FETCHING = {"script", "link", "img", "iframe", "object", "embed", "audio", "video", "source",
            "use", "image", "base", "form", "a"}  # fmt: skip
COUNTS = PretokenCounts(
    {f"{i * 7919 % 977:x}<b>&": 1 + i % 9 for i in range(900)}, PATTERNS["gpt2"], n_bytes=123_456
)


class Page(HTMLParser):
    """Checks that every element is closed, and records the tags, attributes and text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "a.txt").write_text("the other the\n" * 20)
    (folder / "b.txt").write_text("世界，breathe\n" * 20, encoding="utf-8")
    tokenizers = {
        "<b>hostile</b>": merging(THE, extra=[HOSTILE, "\u202eevil".encode()], engine="python"),
        "bytes": merging([], engine="python"),
    }
    return build_report(
        tokenizers, {"<i>a": TextFiles(folder / "a.txt"), "b": TextFiles(folder / "b.txt")}
    )


def training_runs(**options):
    run = train_from_counts(COUNTS, 700, options=VocabularyOptions(**options))
    made = {f"a-{size}": run.at_size(size).report.to_dict() for size in (300, 700)}
    return json.loads(json.dumps(made))  # as from a manifest


@pytest.mark.parametrize("kind", ["report", "training"])
def test_a_page_is_whole_and_fetches_nothing(report, kind):
    text = render_report_page(report) if kind == "report" else render_training_page(training_runs())
    page = Page(text)
    assert not (FETCHING | {"b", "i"}) & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "href", "action", "data", "xlink:href"), (tag, name)
        assert "url(" not in value
    assert not re.search(r"url\(|@import|(?:https?:)?//", text)
    assert "default-src &#x27;none&#x27;" in text
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes


def test_a_token_and_a_name_that_are_markup_are_text(report):
    shown = "".join(Page(render_report_page(report)).text)
    assert "<script>alert(\\'x\\')</script>\"&amp;" in shown
    assert "<b>hostile</b>" in shown
    assert "\\u202eevil" in shown
    assert "\u202e" not in shown + render_report(report)


def test_the_page_of_a_training_run_has_every_size_and_the_curve():
    runs = training_runs(min_frequency=2, seed_tokens=("zz",))
    page = render_training_page(runs)
    for name, run in runs.items():
        row = re.search(f'<tr><th scope="row">{name}</th>.*?</tr>', page).group()
        for figure in (f"{run['n_tokens']:,}", f"{run['bytes_per_token']:.3f}"):
            assert f">{figure}</td>" in row
    curve = runs["a-700"]["curve"]
    points = re.search(r'<polyline points="([^"]*)"', page)
    assert len(points.group(1).split()) == len(curve)
    every = page[page.index("<details>") : page.index("</details>")]
    assert every.count("<tr>") == len(curve) + 1
    pruning = {"n_distinct": 5, "n_pre_tokens": 70, "n_bytes": 900, "min_count": 3, "bound": 12}
    pruned = render_training_page({"a": runs["a-700"] | {"pruning": pruning}})
    figures = "5 distinct, 70 pre-tokens, 900 bytes"
    assert [figures in text for text in (page, pruned)] == [False, True]
    ended = render_training_page(training_runs(min_frequency=10_000))
    assert ["ended early" in text for text in (page, ended)] == [False, True]


def test_without_a_curve_there_is_no_page():
    for runs in ({}, {"a": {"curve": []}}, {"a": {}}):
        with pytest.raises(ValueError, match="no curve"):
            render_training_page(runs)


def drawn(plot, name):
    return [node for node in ElementTree.fromstring(plot).iter() if node.tag == name]


values = st.floats(1e-9, 1e9)


@given(st.lists(st.tuples(st.text("ab<&\"'", max_size=30), values), min_size=1, max_size=6))
def test_bars_are_as_long_as_their_values(group):
    widths = [float(node.get("width")) for node in drawn(bars([("g", group)], "t"), "rect")]
    largest = max(value for _, value in group)
    for (_, value), width in zip(group, widths, strict=True):
        assert width == pytest.approx(max(max(widths) * value / largest, 1), abs=0.2)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(1, 50)), min_size=1, max_size=20))
@example([(1, 1.0), (2, 1.0000000000000002)])
def test_points_on_a_linear_axis_agree_with_its_labels(points):
    points = sorted(dict(points).items())
    plot = lines([("a", points)], "t", "x", "y", y_is_linear=True)
    (line,) = drawn(plot, "polyline")
    places = [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
    assert all(0 <= x <= 380 and 0 <= y <= 240 for x, y in places)
    labels = [node for node in drawn(plot, "text") if node.get("class") == "end"]
    ticks = [(float(node.text), float(node.get("y")) - 4) for node in labels]
    (low, low_y), (high, high_y) = ticks[0], ticks[-1]
    assert low <= min(y for _, y in points) + 1e-6
    assert high >= max(y for _, y in points) - 1e-6
    for (_, value), (_, y) in zip(points, places, strict=True):
        assert y == pytest.approx(low_y + (value - low) / (high - low) * (high_y - low_y), abs=0.2)
    if len(points) > 1:  # the horizontal axis ends with its values
        assert (places[0][0], places[-1][0]) == (52, 364)


def test_a_plot_without_data_has_its_description_and_a_picture_its_legend():
    for plot in (bars([], "t"), lines([], "t", "x", "y"), columns([], [], "t", "x")):
        assert drawn(plot, "svg")[0].get("aria-label") == "t"
    svg = picture(lines([("a", [(1, 2)]), ("b", [(1, 3)])], "t", "x", "y"), ["training", "<b>"])
    assert [text for text in ("training", "&lt;b&gt;", "polyline") if text not in svg] == []
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
