"""Evaluates the part of PromQL that the alert rules of our documents use, over metrics pages with their times.

A rate is the growth between the first and the last page of its range; Prometheus also extrapolates to the ends of it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_TOKEN = re.compile(r'\s*("[^"]*"|[0-9.]+[smhd]?|\w+|=~|[-+*/>(){}\[\],=])')
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Scrape:
    at_seconds: float
    page: str


def evaluate(expression: str, scrapes: Sequence[Scrape], now_seconds: float) -> Vector:
    """The samples for which the expression holds; an alert fires for each."""
    found = _Evaluation(_TOKEN.findall(expression), scrapes, now_seconds).conjunction()
    assert isinstance(found, dict)
    return found


class _Evaluation:
    """A recursive descent over the tokens of one expression."""

    def __init__(self, tokens: list[str], scrapes: Sequence[Scrape], now_seconds: float) -> None:
        self._tokens = tokens
        self._scrapes = scrapes
        self._now = now_seconds

    def conjunction(self) -> Vector | float:
        left = self._comparison()
        while self._take("and"):
            right = self._comparison()
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            left = {labels: value for labels, value in left.items() if labels in right}
        return left

    def _comparison(self) -> Vector | float:
        left = self._product()
        if not self._take(">"):
            return left
        right = self._product()
        return {labels: value for labels, value, other in _matched(left, right) if value > other}

    def _product(self) -> Vector | float:
        left = self._operand()
        while self._tokens and self._tokens[0] in "*/":
            divides, right = self._tokens.pop(0) == "/", self._operand()
            if isinstance(left, float) and isinstance(right, float):
                left = left / right if divides else left * right
            elif isinstance(left, float):
                assert isinstance(right, dict)
                left = {labels: left / value if divides else left * value for labels, value in right.items()}
            else:
                left = {
                    labels: (value / other if other else float("nan")) if divides else value * other
                    for labels, value, other in _matched(left, right)
                }
        return left

    def _operand(self) -> Vector | float:
        word = self._tokens.pop(0)
        if word[0].isdigit():
            return float(word)
        if word == "sum":
            names = self._names() if self._take("by") else ()
            return _sum(self._in_parentheses(), names)
        if word == "histogram_quantile":
            self._expect("(")
            share = float(self._tokens.pop(0))
            self._expect(",")
            buckets = self.conjunction()
            self._expect(")")
            assert isinstance(buckets, dict)
            return _quantile(share, buckets)
        if word == "rate":
            self._expect("(")
            rate = self._rate(self._tokens.pop(0))
            self._expect(")")
            return rate
        name, wanted = word, self._matchers()
        return _samples([each for each in self._scrapes if each.at_seconds <= self._now][-1].page, name, wanted)

    def _in_parentheses(self) -> Vector:
        self._expect("(")
        inner = self.conjunction()
        self._expect(")")
        assert isinstance(inner, dict)
        return inner

    def _rate(self, name: str) -> Vector:
        wanted = self._matchers()
        self._expect("[")
        end, length = self._now, _seconds(self._tokens.pop(0))
        self._expect("]")
        if self._take("offset"):
            end -= _seconds(self._tokens.pop(0))
        inside = [each for each in self._scrapes if end - length <= each.at_seconds <= end]
        if len(inside) < 2:
            return {}
        first, last = (_samples(each.page, name, wanted) for each in (inside[0], inside[-1]))
        elapsed = inside[-1].at_seconds - inside[0].at_seconds
        return {labels: (value - first.get(labels, 0)) / elapsed for labels, value in last.items()}

    def _matchers(self) -> dict[str, re.Pattern[str]]:
        wanted: dict[str, re.Pattern[str]] = {}
        if self._take("{"):
            while not self._take("}"):
                label, kind, value = (self._tokens.pop(0) for _ in range(3))
                text = value.strip('"')
                wanted[label] = re.compile(text if kind == "=~" else re.escape(text))
                self._take(",")
        return wanted

    def _names(self) -> tuple[str, ...]:
        self._expect("(")
        end = self._tokens.index(")")
        names = tuple(each for each in self._tokens[:end] if each != ",")
        del self._tokens[: end + 1]
        return names

    def _take(self, token: str) -> bool:
        if self._tokens and self._tokens[0] == token:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        assert self._take(token), (token, self._tokens)


def _seconds(text: str) -> float:
    return float(text[:-1]) * _SECONDS[text[-1]]


def _samples(page: str, name: str, wanted: Mapping[str, re.Pattern[str]]) -> Vector:
    return {
        frozenset(sample.labels.items()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
        and all(pattern.fullmatch(sample.labels.get(label, "")) for label, pattern in wanted.items())
    }


def _sum(vector: Vector, names: Sequence[str]) -> Vector:
    summed: Vector = {}
    for labels, value in vector.items():
        kept = frozenset(each for each in labels if each[0] in names)
        summed[kept] = summed.get(kept, 0) + value
    return summed


def _matched(left: Vector | float, right: Vector | float) -> list[tuple[Labels, float, float]]:
    """The samples of the left side, each with the value of the right side that has the same labels."""
    assert isinstance(left, dict)
    if isinstance(right, float):
        return [(labels, value, right) for labels, value in left.items()]
    return [(labels, value, right[labels]) for labels, value in left.items() if labels in right]


def _quantile(share: float, buckets: Vector) -> Vector:
    """By linear interpolation inside the bucket, as Prometheus does."""
    counts = sorted((float(dict(labels)["le"]), value) for labels, value in buckets.items())
    if not counts or counts[-1][1] == 0:
        return {}
    rank = share * counts[-1][1]
    for (below, fewer), (bound, count) in pairwise([(0.0, 0.0), *counts]):
        if count >= rank:
            value = below if bound == float("inf") else below + (bound - below) * (rank - fewer) / (count - fewer)
            return {frozenset(): value}
    raise AssertionError("the buckets do not grow")
