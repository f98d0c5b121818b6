"""SVG plots from plain numbers; the page's style sheet sets the colours."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nunatak_spark.telemetry.markup import Markup, concat, tag

WIDTH, HEIGHT = 560, 200
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 26
MAX_LABELS = 8
Print = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """One line, or one layer of stacked bars; None is a gap."""

    name: str
    values: Sequence[float | None]
    colour: int = 1  # index into the style sheet's colours


def bars(labels: Sequence[str], layers: Sequence[Series], printed: Print, *, binary: bool = False) -> Markup:
    """Draws stacked bars by label; negative values count as 0. `binary`: ticks for bytes."""
    heights = [sum(max(layer.values[i] or 0, 0) for layer in layers) for i in range(len(labels))]
    axis = Axis.upto(max(heights, default=0), binary=binary)
    step = _step(labels)
    marks: list[Markup] = []
    for i, label in enumerate(labels):
        below = 0.0
        for layer in layers:
            value = max(layer.values[i] or 0, 0)
            if not value:
                continue
            title = tag("title", f"{label}: {printed(value)} {layer.name}")
            top, bottom = axis.y(below + value), axis.y(below)
            x, width = LEFT + i * step + step * 0.12, step * 0.76
            place = {"x": x, "y": top, "width": width, "height": max(bottom - top, 1.0), "rx": 1.5}
            marks.append(tag("rect", title, class_=f"c{layer.colour}", **place))
            below += value
    return _frame(labels, axis, printed, concat(*marks))


def lines(labels: Sequence[str], series: Sequence[Series], printed: Print, limit: float | None = None) -> Markup:
    """Draws a line per series; `limit` is drawn if it is close to the values."""
    highest = max((value for one in series for value in one.values if value is not None), default=0.0)
    axis = Axis.upto(max(highest, limit) if limit is not None and limit < 4 * highest else highest)
    step = _step(labels)
    marks: list[Markup] = []
    if limit is not None and limit <= axis.top:
        y = axis.y(limit)
        marks.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="limit"))
        marks.append(tag("text", f"limit {printed(limit)}", x=LEFT + 4, y=y - 4, class_="limit"))
    for one in series:
        points = [(LEFT + (i + 0.5) * step, axis.y(v), v, i) for i, v in enumerate(one.values) if v is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
        marks.append(tag("polyline", points=path, class_=f"l{one.colour}"))
        for x, y, value, i in points:
            title = tag("title", f"{labels[i]}: {printed(value)} {one.name}")
            marks.append(tag("circle", title, cx=x, cy=y, r=3, class_=f"c{one.colour}"))
    return _frame(labels, axis, printed, concat(*marks))


def rows(labels: Sequence[str], layers: Sequence[Series], printed: Print) -> Markup:
    """Draws horizontal bars, one row per label."""
    height, name_width = 24, 230
    totals = [sum(max(layer.values[i] or 0, 0) for layer in layers) for i in range(len(labels))]
    scale = (WIDTH - name_width - 80) / max([*totals, 1])
    marks: list[Markup] = []
    for i, label in enumerate(labels):
        y, x = i * height, float(name_width)
        shown = label if len(label) <= 34 else f"…{label[-33:]}"
        marks.append(tag("text", shown, tag("title", label), x=name_width - 8, y=y + 16, text_anchor="end"))
        for layer in layers:
            value = max(layer.values[i] or 0, 0)
            if value:
                title = tag("title", f"{label}: {printed(value)} {layer.name}")
                place = {"x": x, "y": y + 5, "width": max(value * scale, 1.0), "height": 14, "rx": 1.5}
                marks.append(tag("rect", title, class_=f"c{layer.colour}", **place))
                x += value * scale
        marks.append(tag("text", printed(totals[i]), x=x + 6, y=y + 16, class_="value"))
    return tag("svg", *marks, viewBox=f"0 0 {WIDTH} {max(len(labels), 1) * height}", role="img")


@dataclass(frozen=True)
class Axis:
    """An axis from 0 to a round number above all values."""

    top: float
    tick: float

    @classmethod
    def upto(cls, highest: float, *, binary: bool = False) -> "Axis":
        if highest <= 0:
            return cls(1, 1)
        unit = 1024.0 ** math.floor(math.log(max(highest, 1), 1024)) if binary else 1.0
        rough = highest / unit / 4
        power = 10.0 ** math.floor(math.log10(rough))
        tick = unit * next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= rough * 0.999)
        return cls(tick * math.ceil(highest / tick - 1e-9), tick)

    def ticks(self) -> list[float]:
        return [self.tick * n for n in range(round(self.top / self.tick) + 1)]

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.top)


def _step(labels: Sequence[str]) -> float:
    return (WIDTH - LEFT - RIGHT) / max(len(labels), 1)


def _frame(labels: Sequence[str], axis: Axis, printed: Print, marks: Markup) -> Markup:
    grid: list[Markup] = []
    for value in axis.ticks():
        y = axis.y(value)
        grid.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        grid.append(tag("text", printed(value), x=LEFT - 8, y=y + 4, text_anchor="end"))
    step, every = _step(labels), max(1, math.ceil(len(labels) / MAX_LABELS))
    for i in range(0, len(labels), every):
        x = LEFT + (i + 0.5) * step
        grid.append(tag("text", labels[i], x=x, y=HEIGHT - 8, text_anchor="middle"))
    return tag("svg", *grid, marks, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img")
