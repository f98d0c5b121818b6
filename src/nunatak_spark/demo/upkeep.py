"""A mess of small files, how the catalog sees it, and the maintenance jobs that clear it up."""

from dataclasses import dataclass
from typing import Any

from nunatak.client import Client
from nunatak_spark.console import WorkerEvent
from nunatak_spark.demo import sample_data
from nunatak_spark.demo.demo_context import Stage, timed
from nunatak_spark.fingerprint import Fingerprint, fingerprint
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.shutdown import ShutdownSignal
from nunatak_spark.worker import SharedSession, Worker, WorkerOptions, unique_worker_name

TABLE = "bronze.clicks"
CLICKS = """(id BIGINT, at TIMESTAMP, customer BIGINT, page STRING, wait_ms INT) USING iceberg PARTITIONED BY (days(at))
    TBLPROPERTIES ('write.distribution-mode' = 'none', 'write.delete.mode' = 'merge-on-read',
    'write.delete.distribution-mode' = 'none')"""
QUERY = "SELECT page, count(*), sum(wait_ms), count(DISTINCT customer) FROM {table} GROUP BY page ORDER BY page"
TRIES = 2  # the better one counts
# Everything is due at once: an audience does not wait for a day to pass.
POLICIES: tuple[dict[str, Any], ...] = (
    {"type": "data-compaction", "trigger": {"small-file-percent": 30}},
    {"type": "manifest-rewrite", "trigger": {"commits-since-last": 5}},
    {"type": "statistics", "trigger": {"commits-since-last": 5}},
    {"type": "snapshot-expiry", "trigger": {"snapshots": 3}, "max-snapshot-age-seconds": 1},
)


@dataclass(frozen=True)
class Finding:
    """A check of the catalog that costs points."""

    check: str
    points: int
    reason: str
    fix: str


@dataclass(frozen=True)
class Health:
    score: int
    data_files: int
    delete_files: int
    size_bytes: int
    snapshots: int
    findings: tuple[Finding, ...]

    @property
    def files(self) -> int:
        """All that a scan opens."""
        return self.data_files + self.delete_files


@dataclass(frozen=True)
class Condition:
    """The table at one moment: its health, what it holds, and how long a query takes."""

    health: Health
    content: Fingerprint
    query_seconds: float


@dataclass(frozen=True)
class JobDone:
    type: str
    state: str
    seconds: float
    remark: str


def make_mess(stage: Stage) -> None:
    """Small commits of tiny files, and then deletes that leave a delete file beside them."""
    table, size = stage.name(TABLE), stage.size
    stage.spark.sql(f"CREATE TABLE {table} {CLICKS}")
    for commit in range(size.commits):
        stage.run(f"commit {commit + 1} of {size.commits}", f"INSERT INTO {table} {sample_data.clicks(commit, size)}")
    stage.run("forgetting customers", f"DELETE FROM {table} WHERE customer % {sample_data.FORGOTTEN} = 7")


def look(stage: Stage) -> Condition:
    table = stage.name(TABLE)
    health = health_of(stage.client, stage.securable(TABLE))
    taken = []
    for _ in range(TRIES):
        with timed() as seconds:
            stage.run("asking the same question", QUERY.format(table=table))
        taken += seconds
    return Condition(health, fingerprint(stage.spark, table), min(taken))


def health_of(client: Client, securable: str) -> Health:
    """What `nunatak health --deep` shows."""
    (table,) = client.manage("GET", ("health",), query={"securable": securable, "deep": "true"})["tables"]
    facts = table["facts"]
    findings = [
        Finding(each["check"], each["points"], each["reason"], each["fix"] or "")
        for each in table["checks"]
        if each["points"]
    ]
    return Health(
        table["score"],
        facts["data-files"],
        facts["delete-files"],
        facts["data-bytes"],
        facts["snapshots"],
        tuple(findings),
    )


def tidy(stage: Stage) -> tuple[JobDone, ...]:
    """Set policies, and let a worker do what is due by them, until nothing is."""
    securable = stage.securable(TABLE)
    for policy in POLICIES:
        stage.client.manage("POST", ("policies",), {"securable": securable, "policy": policy})
    done: list[JobDone] = []
    types: dict[int | None, str] = {}

    def tell(event: WorkerEvent) -> None:
        if event.step is not None:
            stage.narrator.progress(event.step)
        elif event.event == "begun" and event.type is not None:
            types[event.job_id] = event.type
        elif event.event == "ended":
            job = JobDone(types[event.job_id], event.state or "", event.seconds or 0.0, _remark(event))
            done.append(job)
            stage.narrator.say(f"{job.type}: {job.state} in {job.seconds:.1f} s, {job.remark}")

    wishes = WorkerOptions(securable, unique_worker_name("demo"), stage.catalog, once=True, plan=True)
    with Client(stage.uri) as beats:
        session = SharedSession(lambda: stage.spark)
        Worker(wishes, stage.client, beats, session, maintain, ShutdownSignal(), tell).run()
    return tuple(done)


def _remark(event: WorkerEvent) -> str:
    if event.error:
        return event.error
    if not event.changed:
        return "there was nothing to change"
    return ", ".join(f"{gain.of} {gain.before} → {gain.after}" for gain in event.gains) or "the table has new ones"
