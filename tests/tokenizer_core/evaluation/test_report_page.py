"""The page: well formed, loads nothing, and shows a hostile token as text."""

import re
from html.parser import HTMLParser

import pytest

from tests.tokenizer_core.evaluation.small_tokenizers import THE, merging
from tokenizer_core.evaluation import TextFile, build_report
from tokenizer_core.evaluation.report_page import render_page
from tokenizer_core.evaluation.tables import render_report

HOSTILE = b"<script>alert('x')</script>\"&amp;"
VOID = {"meta", "br", "rect", "line", "polyline", "circle"}
FETCHING = {"script", "link", "img", "iframe", "object", "embed", "audio", "video", "source",
            "use", "image", "base", "form", "a"}  # fmt: skip


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


@pytest.fixture
def report(tmp_path):
    (tmp_path / "a.txt").write_text("the other the\n" * 20)
    (tmp_path / "b.txt").write_text("世界，breathe\n" * 20, encoding="utf-8")
    tokenizers = {
        "<b>hostile</b>": merging(THE, extra=[HOSTILE, "\u202eevil".encode()], engine="python"),
        "bytes": merging([], engine="python"),
    }
    corpora = {"<i>a": TextFile(tmp_path / "a.txt"), "b": TextFile(tmp_path / "b.txt")}
    return build_report(tokenizers, corpora)


def test_the_page_is_whole_and_fetches_nothing(report):
    page = Page(render_page(report))
    assert not FETCHING & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "href", "action", "data", "xlink:href"), (tag, name)
        assert "url(" not in value
    text = render_page(report)
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search(r"(?:https?:)?//", text)
    assert "prefers-color-scheme: dark" in text
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes


def test_a_token_and_a_name_that_are_markup_are_text(report):
    page = Page(render_page(report))
    assert "script" not in page.tags
    assert not {"b", "i"} & set(page.tags)
    shown = "".join(page.text)
    assert "<script>alert(\\'x\\')</script>\"&amp;" in shown
    assert "<b>hostile</b>" in shown
    assert "\\u202eevil" in shown
    assert "\u202e" not in shown


def test_every_plot_says_in_words_what_it_shows_and_has_a_table(report):
    page = Page(render_page(report))
    plots = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "role")]
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert plots == ["img"] * 4
    assert len(set(labels)) == 4
    assert page.tags.count("table") >= 7
    assert page.tags.count("figure") == 4


def test_the_figures_of_the_page_are_those_of_the_report(report):
    shown = "".join(Page(render_page(report)).text)
    for measured in report.measurements:
        assert f"{measured.bytes_per_token:.3f}" in shown
    assert "No text" not in shown
    assert f"{report.tokenizers[0].vocab_size:,}" in shown


def test_a_page_of_one_tokenizer_on_one_corpus(report, tmp_path):
    (tmp_path / "one.txt").write_text("x")
    one = build_report({"one": merging([])}, {"one": TextFile(tmp_path / "one.txt")})
    assert "Parity" not in "".join(Page(render_page(one)).text)
    assert "bytes/token" in render_report(one)


def test_the_table_for_a_terminal(report):
    shown = render_report(report)
    lines = shown.splitlines()
    header = next(line for line in lines if line.startswith("corpus"))
    assert header.split()[:4] == ["corpus", "tokenizer", "bytes/token", "tokens/word"]
    rows = [line for line in lines if line.split()[:2] == ["<i>a", "<b>hostile</b>"]]
    assert rows[0].split()[2] == f"{report.measurements[0].bytes_per_token:.3f}"
    assert max(map(len, lines)) <= 130
    assert "\u202e" not in shown
    assert "this machine" in shown
