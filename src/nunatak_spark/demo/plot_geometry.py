"""The geometry of plots: numbers in, SVG paths and positions out; the page styles them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """One layer of a stacked area."""

    name: str
    path: str
    total: float


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Slot:
    """The strip above one place of the x axis, to point at."""

    left: float
    width: float
    label: str
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class StackedArea:
    width: float
    height: float
    layers: tuple[Layer, ...]
    y_ticks: tuple[Tick, ...]
    x_ticks: tuple[Tick, ...]
    slots: tuple[Slot, ...]


def stacked_area(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    width: float = 960,
    height: float = 260,
    every: int = 7,
) -> StackedArea:
    """Series on top of each other, the first at the bottom; every so many labels get a tick."""
    count = len(labels)
    totals = [sum(values[i] for values in series.values()) for i in range(count)]
    steps = nice_steps(max(totals, default=0))
    top = steps[-1]
    step = width / max(1, count - 1)

    def y(value: float) -> float:
        return height * (1 - value / top)

    layers = []
    below = [0.0] * count
    for name, values in series.items():
        above = [low + value for low, value in zip(below, values, strict=True)]
        there = [f"{i * step:.1f},{y(value):.1f}" for i, value in enumerate(above)]
        back = [f"{i * step:.1f},{y(below[i]):.1f}" for i in reversed(range(count))]
        layers.append(Layer(name, f"M{' L'.join(there + back)}Z" if count else "", sum(values)))
        below = above
    slots = tuple(
        Slot(max(0.0, (i - 0.5) * step), step, label, tuple((name, values[i]) for name, values in series.items()))
        for i, label in enumerate(labels)
    )
    return StackedArea(
        width,
        height,
        tuple(layers),
        tuple(Tick(y(value), short_number(value)) for value in steps),
        tuple(Tick(i * step, labels[i]) for i in range(0, count, every)),
        slots,
    )


def nice_steps(highest: float, wanted: int = 4) -> list[float]:
    """0 and about so many round numbers above it, the last not below the highest."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / wanted
    unit = 10 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough)
    return [i * step for i in range(math.ceil(highest / step) + 1)]


def short_number(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@dataclass(frozen=True)
class Bar:
    name: str
    text: str
    percent: float


def bars(values: Mapping[str, float], texts: Mapping[str, str] | None = None) -> tuple[Bar, ...]:
    """Each against the largest; what is not nothing stays visible."""
    most = max(values.values(), default=0) or 1
    return tuple(
        Bar(name, (texts or {}).get(name, f"{value:,}"), max(100 * value / most, 0.4 if value else 0.0))
        for name, value in values.items()
    )


@dataclass(frozen=True)
class Span:
    """A piece of a line from 0 to 100."""

    name: str
    start: float
    length: float
    text: str


def spans(seconds: Mapping[str, float]) -> tuple[Span, ...]:
    """One after the other, as parts of the whole time."""
    whole = sum(seconds.values()) or 1
    begun, found = 0.0, []
    for name, length in seconds.items():
        found.append(Span(name, 100 * begun / whole, 100 * length / whole, f"{length:.1f} s"))
        begun += length
    return tuple(found)


def arc(percent: float, radius: float) -> str:
    """The dashes of a circle's line so that this much of it is drawn."""
    around = 2 * math.pi * radius
    return f"{around * percent / 100:.1f} {around:.1f}"
