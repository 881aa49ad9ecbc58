"""Plots: each mark is at the position of its value."""

from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenizer_core.evaluation.markup import Markup, element, joined
from tokenizer_core.evaluation.plots import bars, columns, lines, picture

values = st.floats(1e-9, 1e9)


def drawn(plot, name):
    return [node for node in ElementTree.fromstring(plot).iter() if node.tag == name]


def places_of(plot):
    """The points of the only line."""
    (line,) = drawn(plot, "polyline")
    places = [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
    assert all(0 <= x <= 380 and 0 <= y <= 240 for x, y in places)
    return places


@given(st.lists(st.tuples(st.text("ab<&\"'", max_size=30), values), min_size=1, max_size=6))
def test_bars_are_as_long_as_their_values(group):
    widths = [float(node.get("width")) for node in drawn(bars([("g", group)], "t"), "rect")]
    largest = max(value for _, value in group)
    for (_, value), width in zip(group, widths, strict=True):
        assert width == pytest.approx(max(max(widths) * value / largest, 1), abs=0.2)


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(1, 50)), min_size=1, max_size=20),
)
@example([(1, 1.0), (2, 1.0000000000000002)])
def test_points_on_a_linear_axis_agree_with_its_labels(points):
    points = sorted(dict(points).items())
    plot = lines([("a", points)], "t", "x", "y", y_is_linear=True)
    places = places_of(plot)
    labels = [node for node in drawn(plot, "text") if node.get("class") == "end"]
    ticks = [(float(node.text), float(node.get("y")) - 4) for node in labels]
    (low, low_y), (high, high_y) = ticks[0], ticks[-1]
    assert low <= min(y for _, y in points) + 1e-6
    assert high >= max(y for _, y in points) - 1e-6
    for (_, value), (_, y) in zip(points, places, strict=True):
        assert y == pytest.approx(low_y + (value - low) / (high - low) * (high_y - low_y), abs=0.2)
    if len(points) > 1:  # the horizontal axis ends with its values
        assert (places[0][0], places[-1][0]) == (52, 364)


def test_a_plot_without_data_has_its_description():
    for plot in (bars([], "t"), lines([], "t", "x", "y"), columns([], [], "t", "x")):
        assert drawn(plot, "svg")[0].get("aria-label") == "t"


def test_marks_are_escaped_and_voids_closed():
    assert element("p", '<&"', title='"<') == '<p title="&quot;&lt;">&lt;&amp;&quot;</p>'
    assert element("rect", x=1, stroke_width=2, class_="a", role=None) == (
        '<rect x="1" stroke-width="2" class="a"/>'
    )
    assert joined(Markup("<b></b>"), "<") == "<b></b>&lt;"
    assert isinstance(joined("a"), Markup)
    # Adding a str to markup gives a str: the addition is not escaped, so the result is not trusted.
    assert not isinstance(Markup("<b>") + "x", Markup)


def test_a_picture_has_a_legend_of_its_series():
    plot = lines([("a", [(1, 2)]), ("b", [(1, 3)])], "t", "x", "y")
    svg = picture(plot, ["training", "<b>"])
    assert [text for text in ("training", "&lt;b&gt;", "polyline") if text not in svg] == []
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
