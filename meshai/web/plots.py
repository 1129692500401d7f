"""Plots as SVG, drawn from numbers only: no text of anybody's reaches the markup.

The drawing has no aspect ratio of its own (strokes do not scale), so that it fills any screen; its labels are HTML
around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 1000.0, 100.0
GAP = 0.01
"""Points further apart than this share of the width are not joined: the daemon was down, or the node silent."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named row of points: x from 0 (left) to 1 (right), y in the plot's unit, None where there is none."""

    name: str
    points: Sequence[tuple[float, float | None]]

    @property
    def last(self) -> float | None:
        """The newest value."""
        return next((y for _, y in reversed(self.points) if y is not None), None)


@dataclass(frozen=True, slots=True)
class Plot:
    """A finished plot; the template lays it out."""

    title: str
    unit: str
    top: float
    svg: Markup
    legend: tuple[tuple[str, float | None], ...]
    left: str
    right: str
    limits: tuple[tuple[str, float], ...] = ()
    is_empty: bool = False


def lines(
    title: str,
    unit: str,
    series: Sequence[Series],
    *,
    limits: Sequence[tuple[str, float]] = (),
    least_top: float = 1.0,
    left: str = "24 h ago",
    right: str = "now",
) -> Plot:
    """Lines over time; ``limits`` are named horizontal marks, drawn when they lie within reach of the values."""
    values = [y for row in series for _, y in row.points if y is not None]
    top = nice_top(max([*values, least_top]))
    shown = tuple(limit for limit in limits if limit[1] <= top)
    body = [_rule(value / top) for _, value in shown]
    for number, row in enumerate(series, start=1):
        body += [_line(stretch, top, number, filled=number == 1) for stretch in _stretches(row.points)]
    return Plot(
        title, unit, top, _svg(body), tuple((row.name, row.last) for row in series), left, right, shown, not values
    )


def bars(
    title: str,
    unit: str,
    names: Sequence[str],
    columns: Sequence[Sequence[float]],
    *,
    left: str = "24 h ago",
    right: str = "now",
    least_top: float = 1.0,
) -> Plot:
    """Stacked bars; ``columns`` hold one value per name, oldest first."""
    top = nice_top(max([*(sum(column) for column in columns), least_top]))
    step = WIDTH / max(1, len(columns))
    body = []
    for place, column in enumerate(columns):
        floor = 0.0
        for number, value in enumerate(column, start=1):
            if value > 0:
                height = HEIGHT * value / top
                body.append(
                    f'<rect class="s{number}" x="{place * step + step * 0.1:.1f}" y="{HEIGHT - floor - height:.1f}"'
                    f' width="{step * 0.8:.1f}" height="{height:.1f}"/>'
                )
                floor += height
    totals = tuple((name, float(sum(column[index] for column in columns))) for index, name in enumerate(names))
    return Plot(title, unit, top, _svg(body), totals, left, right, is_empty=not body)


def nice_top(value: float) -> float:
    """The next 1, 2, 2.5 or 5 times a power of ten."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= value * 0.999)


def _stretches(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    found: list[list[tuple[float, float]]] = []
    previous: float | None = None
    for x, y in points:
        if y is None:
            previous = None
            continue
        if previous is None or x - previous > GAP:
            found.append([])
        found[-1].append((x, y))
        previous = x
    return found


def _line(points: Sequence[tuple[float, float]], top: float, number: int, *, filled: bool) -> str:
    places = [(WIDTH * x, HEIGHT * (1 - min(1.0, y / top))) for x, y in points]
    if len(places) == 1:  # one sample is no line: a short dash
        places.append((places[0][0] + 1.5, places[0][1]))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    area = ""
    if filled:
        area = (
            f'<polygon class="a{number}" points="{places[0][0]:.1f},{HEIGHT:g} {path} {places[-1][0]:.1f},{HEIGHT:g}"/>'
        )
    return f'{area}<polyline class="s{number}" points="{path}"/>'


def _rule(share: float) -> str:
    y = HEIGHT * (1 - share)
    return f'<line class="limit" x1="0" x2="{WIDTH:g}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _svg(body: Sequence[str]) -> Markup:
    grid = "".join(
        f'<line class="grid" x1="0" x2="{WIDTH:g}" y1="{HEIGHT * share:g}" y2="{HEIGHT * share:g}"/>'
        for share in (0.0, 0.5, 1.0)
    )
    return Markup(  # noqa: S704 - numbers and our own words
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" aria-hidden="true">'
        f"{grid}{''.join(body)}</svg>"
    )
