"""Plots as inline SVG: bars, lines and columns, without a library or a script.

A plot is 380 units wide, so a phone displays its text at nominal size. It uses the colours of the
page (`.s0` to `.s7`), for light and dark themes. Each plot has a text description, and the page
also shows its data as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tokenizer_core.evaluation.markup import STYLE, Markup, element, shorten

WIDTH: Final = 380
N_COLOURS: Final = 8

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 22, 36
_HEIGHT: Final = 240
_LETTERS: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_DASHES: Final = (None, "7 3", "2 3", "9 3 2 3")

Series = tuple[str, Sequence[tuple[float, float]]]


def bars(groups: Sequence[tuple[str, Sequence[tuple[str, float]]]], title: str) -> Markup:
    """Groups of horizontal bars on one scale from zero, each with its name on the left and its
    value on the right. The index of a bar in its group determines its colour."""
    names = [name for _, group in groups for name, _ in group]
    label = min(8 + 6.6 * max(map(len, names), default=0), 130)
    largest = max((value for _, group in groups for _, value in group), default=0) or 1
    room = WIDTH - label - 52
    drawn: list[Markup] = []
    y = 4.0
    for heading, group in groups:
        drawn.append(element("text", shorten(heading, 50), x=0, y=y + 12, class_="head"))
        y += 20
        for index, (name, value) in enumerate(group):
            width = max(room * value / largest, 1)
            drawn += [
                element("text", shorten(name, 18), x=label - 6, y=y + 11, class_="end"),
                _rect(label, y + 1, width, 13, index),
                element("text", f"{value:.2f}", x=label + width + 5, y=y + 11),
            ]
            y += 17
        y += 8
    return _svg(drawn, title, y)


def lines(
    series: Sequence[Series], title: str, x_title: str, y_title: str, *, y_is_linear: bool = False
) -> Markup:
    """Lines over two logarithmic axes; with `y_is_linear`, over a logarithmic x axis that ends with
    the data and a linear y axis. All values are above zero. Each series has its own colour and
    dashes, in order; the page has the legend."""
    points = [point for _, line in series for point in line]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_axis = _log_axis(xs, _LEFT, WIDTH - _RIGHT, is_snug=y_is_linear)
    y_axis = (_linear_axis if y_is_linear else _log_axis)(ys, _HEIGHT - _BOTTOM, _TOP)
    drawn = [*_grid(x_axis, y_axis), *_axis_titles(x_title, y_title)]
    for index, (_, line) in enumerate(series):
        path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in line)
        drawn.append(element("polyline", points=path, **_stroke(index)))
    return _svg(drawn, title, _HEIGHT)


def columns(
    labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], title: str, x_title: str
) -> Markup:
    """Columns of fractions (0 to 1) over labelled positions, those of the series side by side."""
    largest = max((share for _, shares in series for share in shares), default=1)
    step = _round_step(max(largest / 4, 0.01))  # the labels are whole percentages
    top = step * max(math.ceil(largest / step - 1e-9), 1)
    floor, height = _HEIGHT - _BOTTOM, _HEIGHT - _BOTTOM - _TOP
    drawn = []
    for tick in range(round(top / step) + 1):
        y = floor - height * tick * step / top
        drawn += _y_tick(f"{y:.1f}", f"{tick * step:.0%}")
    place_width = (WIDTH - _LEFT - _RIGHT) / max(len(labels), 1)
    width = place_width * 0.8 / max(len(series), 1)
    for index, name in enumerate(labels):
        x = _LEFT + place_width * (index + 0.1)
        middle = f"{x + place_width * 0.4:.1f}"
        drawn.append(element("text", name, x=middle, y=floor + 15, class_="mid small"))
        for number, (_, shares) in enumerate(series):
            tall = height * shares[index] / top
            drawn.append(_rect(x + number * width, floor - tall, width, tall, number))
    drawn += _axis_titles(x_title, "")
    return _svg(drawn, title, _HEIGHT)


def swatch(index: int, *, is_line: bool) -> Markup:
    """The colour (and dashes) of the series with index `index`, shown before its name."""
    if not is_line:
        square = _rect(0, 0, 12, 12, index)
        return element("svg", square, viewBox="0 0 12 12", width=12, height=12, aria_hidden="true")
    line = element("line", x1=0, x2=26, y1=6, y2=6, **_stroke(index, "line thick"))
    return element("svg", line, viewBox="0 0 26 12", width=26, height=12, aria_hidden="true")


def picture(plot: Markup, names: Sequence[str] = ()) -> str:
    """A plot of lines as a complete SVG file, with the names of its series above it."""
    legend: list[Markup] = []
    for index, name in enumerate(names):
        x = _LEFT + index * (WIDTH - _LEFT) / len(names)
        legend += [
            element("line", x1=x, x2=x + 26, y1=-12, y2=-12, **_stroke(index, "line thick")),
            element("text", name, x=x + 32, y=-8),
        ]
    height = _HEIGHT + 30
    return (
        element(
            "svg",
            element("style", Markup(STYLE + "svg { background: var(--page); }")),
            *legend,
            plot,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"-4 -30 {WIDTH + 8} {height}",
            width=2 * WIDTH,
            height=2 * height,
        )
        + "\n"
    )


class _Axis(NamedTuple):
    """An axis from one coordinate to another: the ends and the ticks of its values."""

    ends: tuple[float, float]
    ticks: list[float]
    start: float
    end: float
    scale: Callable[[float], float] = float

    def at(self, value: float) -> float:
        """The coordinate of a value."""
        low, high = self.ends
        return self.start + (self.scale(value) - low) / (high - low) * (self.end - self.start)


def _log_axis(values: Sequence[float], start: float, end: float, *, is_snug: bool = False) -> _Axis:
    """A logarithmic axis, extended to whole powers of ten, which are its ticks; or just as long as
    its values need, with their doubles and halves too."""
    low, high = (math.log10(value) for value in (min(values, default=1), max(values, default=10)))
    is_snug = is_snug and high > low
    if not is_snug:
        low = math.floor(low + 1e-9)
        high = max(math.ceil(high - 1e-9), low + 1)
    ticks = [10.0**power for power in range(math.floor(low), math.ceil(high) + 1)]
    if is_snug:
        fine = [power * n for power in ticks for n in (1, 2, 5)]
        ticks = [tick for tick in fine if low <= math.log10(tick) <= high]
    return _Axis((low, high), ticks, start, end, math.log10)


def _linear_axis(values: Sequence[float], start: float, end: float) -> _Axis:
    """A linear axis, which begins and ends at a tick; ticks are round numbers."""
    low, high = min(values, default=0), max(values, default=1)
    # Values that differ by less would have the same labels at every tick.
    step = _round_step((max(high - low, high / 100) or 1) / 5)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    ticks = [round(tick * step, 9) for tick in range(first, last + 1)]
    return _Axis((first * step, last * step), ticks, start, end)


def _grid(x_axis: _Axis, y_axis: _Axis) -> list[Markup]:
    drawn = []
    for tick in y_axis.ticks:
        drawn += _y_tick(f"{y_axis.at(tick):.1f}", _power(tick))
    for tick in x_axis.ticks:
        x = f"{x_axis.at(tick):.1f}"
        drawn += [
            element("line", x1=x, x2=x, y1=_TOP, y2=_HEIGHT - _BOTTOM, class_="grid"),
            element("text", _power(tick), x=x, y=_HEIGHT - _BOTTOM + 15, class_="mid"),
        ]
    return drawn


def _y_tick(y: str, label: str) -> list[Markup]:
    return [
        element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"),
        element("text", label, x=_LEFT - 5, y=f"{float(y) + 4:.1f}", class_="end"),
    ]


def _stroke(index: int, kind: str = "line") -> dict[str, str | None]:
    """The colour and the dashes of a series."""
    dashes = _DASHES[index % len(_DASHES)]
    return {"class_": f"{kind} s{index % N_COLOURS}", "stroke_dasharray": dashes}


def _axis_titles(x_title: str, y_title: str) -> list[Markup]:
    titles = [
        element("text", x_title, x=(_LEFT + WIDTH - _RIGHT) / 2, y=_HEIGHT - 4, class_="mid quiet")
    ]
    if y_title:
        titles.append(element("text", y_title, x=0, y=10, class_="quiet"))
    return titles


def _power(value: float) -> str:
    """A short form of a tick, from thousandths to 1e18."""
    for size, letter in _LETTERS:
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _round_step(least: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= least * (1 - 1e-9))


def _rect(x: float, y: float, width: float, height: float, index: int) -> Markup:
    sizes = {"x": x, "y": y, "width": width, "height": height}
    rounded = {name: f"{size:.1f}" for name, size in sizes.items()}
    return element("rect", **rounded, class_=f"fill s{index % N_COLOURS}")


def _svg(drawn: Sequence[Markup], title: str, height: float) -> Markup:
    box = f"0 0 {WIDTH} {height:.0f}"
    return element("svg", *drawn, viewBox=box, role="img", aria_label=title)
