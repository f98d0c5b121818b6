"""What is measured, and in which order: the servers take turns, so that a busy moment meets them all."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tests.bench.generator import Driver, Limits, Slice, append, contend, generator_process, replay
from tests.bench.measure import cpu_seconds, pss_bytes
from tests.bench.prepare import Subject, Verdict, clean_up, judge, prepare
from tests.bench.servers import Candidate, cold_start_seconds

# Tables grow with every append, and a quick server would be punished with large ones if only the time were bounded.
MOST_APPENDS_PER_SECOND = 600
MOST_READS_PER_SECOND = 100_000


@dataclass(frozen=True)
class Workload:
    kind: str
    clients: int

    @property
    def name(self) -> str:
        return f"{self.kind} c={self.clients}"


WORKLOADS = (
    *(Workload("load", clients) for clients in (1, 8, 32)),
    Workload("304", 8),
    Workload("large", 1),
    Workload("large-304", 1),
    Workload("list", 8),
    *(Workload("commit", clients) for clients in (1, 8, 32)),
    Workload("hot", 64),
)
KINDS = tuple(dict.fromkeys(workload.kind for workload in WORKLOADS))


@dataclass(frozen=True)
class Plan:
    rounds: int = 3
    warm_up: int = 1
    seconds: float = 2.0
    tables: int = 1000
    snapshots: int = 10_000
    kinds: tuple[str, ...] = KINDS

    @property
    def workloads(self) -> list[Workload]:
        return [workload for workload in WORKLOADS if workload.kind in self.kinds]


@dataclass(frozen=True)
class Reading:
    """One workload on one server in one round; CPU is the server's, None if its process is not known."""

    server: str
    workload: str
    round: int
    operations: int
    failed: int
    seconds: float
    p50_ms: float
    p99_ms: float
    tries: int
    cpu_seconds: float | None
    generator_busy: float  # 1.0 is one core: then the generator was the limit, not the server

    @property
    def per_second(self) -> float:
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms_per_operation(self) -> float | None:
        """None also if the kernel's clock, which ticks a hundred times a second, noticed nothing."""
        return 1000 * self.cpu_seconds / self.operations if self.cpu_seconds and self.operations else None


@dataclass(frozen=True)
class Standing:
    """What is found once for a server: before the rounds, and after them."""

    server: str
    idle_bytes: int | None
    after_bytes: int | None
    cold_start_seconds: tuple[float, ...]
    verdict: Verdict


@dataclass(frozen=True)
class Result:
    plan: Plan
    readings: tuple[Reading, ...]
    standings: tuple[Standing, ...]


def measure(plan: Plan, candidates: Sequence[Candidate], progress: Callable[[str], None]) -> Result:
    """`progress` is told before each of the `steps`."""
    readings: list[Reading] = []
    with generator_process() as drive, ExitStack() as running:
        subjects: list[Subject] = []
        idle: list[int | None] = []
        for candidate in candidates:
            progress(f"preparing {candidate.name}")
            server = running.enter_context(candidate.start())
            idle.append(_memory(server.pid))
            subjects.append(
                prepare(
                    drive,
                    server,
                    tables=plan.tables,
                    hot_tables=plan.warm_up + plan.rounds,
                    snapshots=plan.snapshots,
                )
            )
            if not candidate.is_ours:
                running.callback(clean_up, drive, subjects[-1])
        for number in range(-plan.warm_up, plan.rounds):
            title = f"round {number + 1} of {plan.rounds}" if number >= 0 else "warming up"
            for workload in plan.workloads:
                for subject in subjects:
                    progress(f"{title}: {workload.name} on {subject.server.name}")
                    reading = _read(drive, plan, workload, subject, number)
                    if reading is not None and number >= 0:
                        readings.append(reading)
        after = [_memory(subject.server.pid) for subject in subjects]
        verdicts = []
        for candidate, subject in zip(candidates, subjects, strict=True):
            progress(f"checking {candidate.name}")
            verdicts.append(judge(drive, subject))
    # All are stopped now: each starts again on the data of the run, alone.
    starts: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for _ in range(plan.rounds):
        for candidate in candidates:
            progress(f"starting {candidate.name}")
            if candidate.is_ours:
                starts[candidate.name].append(cold_start_seconds(candidate))
    standings = tuple(
        Standing(candidate.name, before, later, tuple(starts[candidate.name]), verdict)
        for candidate, before, later, verdict in zip(candidates, idle, after, verdicts, strict=True)
    )
    return Result(plan, tuple(readings), standings)


def steps(plan: Plan, servers: int) -> int:
    return servers * (2 + (plan.warm_up + plan.rounds) * len(plan.workloads) + plan.rounds)


def _read(drive: Driver, plan: Plan, workload: Workload, subject: Subject, number: int) -> Reading | None:
    """None if this server cannot do it."""
    if workload.kind not in {*subject.requests, "commit", "hot"}:
        return None
    pid = subject.server.pid
    before = None if pid is None else cpu_seconds(pid)
    measured = _load(drive, plan, workload, subject, number)
    spent = None if pid is None or before is None else cpu_seconds(pid) - before
    subject.note(measured)
    return Reading(
        server=subject.server.name,
        workload=workload.name,
        round=number,
        operations=measured.operations,
        failed=measured.failed,
        seconds=measured.seconds,
        p50_ms=measured.p50_ms,
        p99_ms=measured.p99_ms,
        tries=measured.tries,
        cpu_seconds=spent,
        generator_busy=measured.generator_cpu_seconds / measured.seconds if measured.seconds else 0.0,
    )


def _load(drive: Driver, plan: Plan, workload: Workload, subject: Subject, number: int) -> Slice:
    appends = Limits(workload.clients, plan.seconds, max(workload.clients, int(plan.seconds * MOST_APPENDS_PER_SECOND)))
    match workload.kind:
        case "commit":
            return drive(append, subject.address, subject.namespace, subject.heads, appends)
        case "hot":
            return drive(contend, subject.address, subject.namespace, subject.hot[number + plan.warm_up], appends)
        case kind:
            reads = Limits(workload.clients, plan.seconds, int(plan.seconds * MOST_READS_PER_SECOND))
            status = 304 if kind.endswith("304") else 200
            return drive(replay, subject.address, subject.requests[kind], status, reads)


def _memory(pid: int | None) -> int | None:
    return None if pid is None else pss_bytes(pid)
