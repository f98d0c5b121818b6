"""Table maintenance in the demo: creates many small files, shows the table's health, and runs maintenance jobs."""

from dataclasses import dataclass
from typing import Any

from nunatak.client import Client
from nunatak_spark.console import WorkerEvent
from nunatak_spark.demo import sample_data
from nunatak_spark.demo.demo_context import DemoContext, measure_seconds
from nunatak_spark.fingerprint import Fingerprint, fingerprint
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.shutdown import ShutdownSignal
from nunatak_spark.worker import SharedSession, Worker, WorkerOptions, unique_worker_name

TABLE = "bronze.clicks"
CLICKS = """(id BIGINT, at TIMESTAMP, customer BIGINT, page STRING, wait_ms INT) USING iceberg PARTITIONED BY (days(at))
    TBLPROPERTIES ('write.distribution-mode' = 'none', 'write.delete.mode' = 'merge-on-read',
    'write.delete.distribution-mode' = 'none')"""
QUERY = "SELECT page, count(*), sum(wait_ms), count(DISTINCT customer) FROM {table} GROUP BY page ORDER BY page"
TRIES = 2  # the faster one counts
# Triggers that make every job due at once.
POLICIES: tuple[dict[str, Any], ...] = (
    {"type": "data-compaction", "trigger": {"small-file-percent": 30}},
    {"type": "manifest-rewrite", "trigger": {"commits-since-last": 5}},
    {"type": "statistics", "trigger": {"commits-since-last": 5}},
    {"type": "snapshot-expiry", "trigger": {"snapshots": 3}, "max-snapshot-age-seconds": 1},
)


@dataclass(frozen=True)
class HealthFinding:
    """A health check that costs points."""

    check: str
    points: int
    reason: str
    fix: str


@dataclass(frozen=True)
class TableHealth:
    """The catalog's health report of a table."""

    score: int
    data_files: int
    delete_files: int
    size_bytes: int
    snapshots: int
    findings: tuple[HealthFinding, ...]

    @property
    def files(self) -> int:
        """All files that a scan opens."""
        return self.data_files + self.delete_files


@dataclass(frozen=True)
class TableCondition:
    """A table at one moment: health, contents, and the duration of a query."""

    health: TableHealth
    content: Fingerprint
    query_seconds: float


@dataclass(frozen=True)
class JobDone:
    type: str
    state: str
    seconds: float
    remark: str


def create_small_files(context: DemoContext) -> None:
    """Commits tiny files, then deletes rows, which adds delete files."""
    table, size = context.name(TABLE), context.size
    context.spark.sql(f"CREATE TABLE {table} {CLICKS}")
    for commit in range(size.commits):
        context.run(f"commit {commit + 1} of {size.commits}", f"INSERT INTO {table} {sample_data.clicks(commit, size)}")
    context.run("forgetting customers", f"DELETE FROM {table} WHERE customer % {sample_data.FORGOTTEN} = 7")


def inspect_table(context: DemoContext) -> TableCondition:
    table = context.name(TABLE)
    health = load_health(context.client, context.securable(TABLE))
    taken = []
    for _ in range(TRIES):
        with measure_seconds() as seconds:
            context.run("asking the same question", QUERY.format(table=table))
        taken += seconds
    return TableCondition(health, fingerprint(context.spark, table), min(taken))


def load_health(client: Client, securable: str) -> TableHealth:
    """Returns what `nunatak health --deep` shows."""
    (table,) = client.manage("GET", ("health",), query={"securable": securable, "deep": "true"})["tables"]
    facts = table["facts"]
    findings = [
        HealthFinding(each["check"], each["points"], each["reason"], each["fix"] or "")
        for each in table["checks"]
        if each["points"]
    ]
    return TableHealth(
        table["score"],
        facts["data-files"],
        facts["delete-files"],
        facts["data-bytes"],
        facts["snapshots"],
        tuple(findings),
    )


def run_due_jobs(context: DemoContext) -> tuple[JobDone, ...]:
    """Sets policies and runs a worker until nothing is due."""
    securable = context.securable(TABLE)
    for policy in POLICIES:
        context.client.manage("POST", ("policies",), {"securable": securable, "policy": policy})
    done: list[JobDone] = []
    types: dict[int | None, str] = {}

    def print_event(event: WorkerEvent) -> None:
        if event.step is not None:
            context.narrator.progress(event.step)
        elif event.event == "begun" and event.type is not None:
            types[event.job_id] = event.type
        elif event.event == "ended":
            job = JobDone(types[event.job_id], event.state or "", event.seconds or 0.0, _remark(event))
            done.append(job)
            context.narrator.say(f"{job.type}: {job.state} in {job.seconds:.1f} s, {job.remark}")

    wishes = WorkerOptions(securable, unique_worker_name("demo"), context.catalog, once=True, plan=True)
    with Client(context.uri) as beats:
        session = SharedSession(lambda: context.spark)
        Worker(wishes, context.client, beats, session, maintain, ShutdownSignal(), print_event).run()
    return tuple(done)


def _remark(event: WorkerEvent) -> str:
    if event.error:
        return event.error
    if not event.changed:
        return "there was nothing to change"
    return ", ".join(f"{gain.of} {gain.before} → {gain.after}" for gain in event.gains) or "the table has new ones"
