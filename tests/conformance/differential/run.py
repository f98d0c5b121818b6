"""Drives one sequence through both servers, explains what differs, and brings the two back together where they part."""

from collections import Counter
from dataclasses import dataclass, field

from tests.conformance.differential.differences import DIFFERENCES, Difference
from tests.conformance.differential.exchange import Comparison, Exchange, Finding, Request, Side
from tests.conformance.differential.sequence import Sequence, Step, namespace_path, path_of
from tests.conformance.differential.world import Name, Namespace


class PartedForGood(Exception):
    """The servers no longer hold the same things and cannot be made to; what follows would tell nothing."""


@dataclass
class Report:
    seed: int
    requests: int = 0
    succeeded: int = 0  # as the reference has it
    operations: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)  # by reason
    unexplained: list[tuple[int, Exchange, list[Finding]]] = field(default_factory=list)

    def never_seen(self) -> list[str]:
        return [difference.reason for difference in DIFFERENCES if difference.reason not in self.explained]

    def summary(self) -> str:
        share = 100 * self.succeeded // max(1, self.requests)
        return (
            f"differential: seed {self.seed}, {self.requests} requests ({share} % valid), "
            f"{sum(self.explained.values())} known differences of {len(self.explained)} kinds, "
            f"{len(self.unexplained)} unexplained"
        )


class Run:
    def __init__(self, seed: int, reference: Side, ours: Side) -> None:
        self._reference = reference
        self._ours = ours
        self._comparison = Comparison()
        self._sequence = Sequence(seed, self._comparison.now_ms)
        self.report = Report(seed)

    def run(self, requests: int) -> Report:
        for _ in range(requests):
            self._take(self._sequence.next())
        return self.report

    def _take(self, step: Step) -> None:
        exchange = self._exchange(step.request)
        self.report.requests += 1
        self.report.operations[step.request.operation] += 1
        self.report.succeeded += exchange.reference.succeeded
        reasons = [(finding, self._explain(exchange, finding)) for finding in exchange.findings]
        surprising = [finding for finding, reason in reasons if reason is None]
        if surprising:
            self.report.unexplained.append((self.report.requests, exchange, surprising))
        if exchange.reference.succeeded:
            step.effect(exchange.reference)
        # The reference may have changed something before it answered 500.
        parted = exchange.reference.succeeded != exchange.ours.succeeded or exchange.reference.status >= 500
        if parted or any(reason is None or reason.parts for _, reason in reasons):
            self._drop(step.touches)
        if parted:
            self._reunite(step.namespaces)

    def _exchange(self, request: Request) -> Exchange:
        return self._comparison.compare(request, self._reference.ask(request), self._ours.ask(request))

    def _explain(self, exchange: Exchange, finding: Finding) -> Difference | None:
        found = next((each for each in DIFFERENCES if each.explains(exchange, finding)), None)
        if found is not None:
            self.report.explained[found.reason] += 1
        return found

    def _drop(self, names: tuple[Name, ...]) -> None:
        """Tables and views the servers disagree about go, so that one difference is reported once."""
        for name in names:
            for kind in ("tables", "views"):
                self._exchange(Request("reunite", "DELETE", path_of(kind, name)))
            self._sequence.world.forget(name)

    def _reunite(self, namespaces: tuple[Namespace, ...]) -> None:
        """A namespace may not be empty, so it is dropped on both servers if that works, else created on both."""
        for namespace in namespaces:
            path = namespace_path(namespace)
            self._exchange(Request("reunite", "DELETE", path))
            if not self._both_or_neither(path):
                self._exchange(Request("reunite", "POST", "/namespaces", {"namespace": list(namespace)}))
            if not self._both_or_neither(path):
                raise PartedForGood(f"only one server has the namespace {namespace}\n{describe(self.report)}")
            known = self._reference.ask(Request("reunite", "GET", path))
            if known.succeeded:
                self._sequence.world.namespaces[namespace] = known.body.get("properties", {})
            else:
                self._sequence.world.namespaces.pop(namespace, None)

    def _both_or_neither(self, path: str) -> bool:
        request = Request("reunite", "HEAD", path)
        return self._reference.ask(request).succeeded == self._ours.ask(request).succeeded


def describe(report: Report, limit: int = 20) -> str:
    """The unexplained differences, the most instructive part of each first."""
    lines = []
    for number, exchange, findings in report.unexplained[:limit]:
        lines.append(f"request {number}, {exchange.request.operation}: {exchange.request}")
        lines += [f"    {finding}" for finding in findings[:8]]
    left = len(report.unexplained) - limit
    return "\n".join([*lines, f"and {left} more"] if left > 0 else lines)
