"""The worker: takes one maintenance job after the other from the catalog, does it on Spark, says what became of it."""

import contextlib
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import msgspec

from nunatak.client import Client, Json, ServerUnreachable
from nunatak.errors import CatalogError
from nunatak.maintenance.job_spec import JobSpec
from nunatak_spark.console import PrintEvent, WorkerEvent, format_gains
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.installation import import_pyspark
from nunatak_spark.job_lease import JobLease, LeaseTerms, StopReason, is_final
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused, MaintenanceFunction
from nunatak_spark.redaction import redact, redact_text
from nunatak_spark.shutdown import ShutdownSignal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["done", "failed", "cancelled", "handed-back", "lost"]

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0  # while the catalog does not answer
ONCE_TRIES = 6  # about half a minute, for a worker that is to end when nothing is due
LONGEST_RESULT = 200 << 10  # bytes; the server keeps 256 KiB of JSON
LONGEST_ERROR = 1000

STATE_AFTER_STOP: dict[StopReason, State] = {"cancelled": "cancelled", "leaving": "handed-back", "lost": "lost"}
REMARKS: dict[State, str] = {
    "handed-back": "another worker may go on at once",
    "lost": "the lease ran out; nothing further was changed, and another worker goes on",
}


class SharedSession:
    """The session that jobs share: started for the first of them, and anew after it was stopped."""

    def __init__(self, start: Callable[[], "SparkSession"]) -> None:
        self._start = start
        self._spark: SparkSession | None = None

    @property
    def started(self) -> bool:
        return self._spark is not None

    def get(self) -> "SparkSession":
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def interrupt(self) -> None:
        """End every statement that the session works on; whoever waits for one gets an exception."""
        spark = self._spark
        if spark is None:
            return
        if import_pyspark("pyspark.sql.utils").is_remote():
            spark.interruptAll()
        else:
            spark.sparkContext.cancelAllJobs()

    def stop(self) -> None:
        spark, self._spark = self._spark, None
        if spark is not None:
            with contextlib.suppress(Exception):  # what is gone needs no stopping
                spark.stop()

    def require_alive(self) -> None:
        """CannotRun if Spark itself is gone: a JVM that died is not started a second time in one process."""
        if self._spark is None:
            return
        try:
            self._spark.range(1).count()
        except Exception as error:
            raise CannotRun(
                f"Spark is gone: {failure_reason(error)}",
                fix="Start the worker again, with more memory if it ran out of it: --conf spark.driver.memory=4g.",
            ) from error


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker is to do; `securable` is the place whose jobs it takes."""

    securable: str
    name: str
    catalog: str = "lake"
    once: bool = False
    max_jobs: int | None = None
    poll_seconds: float = 30.0
    plan: bool = False
    idle_stop_seconds: float | None = None


@dataclass(frozen=True)
class LeasedJob:
    """A job as the server gave it away, and since when, on the monotonic clock."""

    job: Json
    terms: LeaseTerms
    since: float


@dataclass(frozen=True)
class JobResult:
    """What became of a job."""

    state: State
    outcome: JobOutcome | None = None
    error: str | None = None


def unique_worker_name(name: str) -> str:
    """A lease is held under it; of two processes with one name, the one that lost a job must not keep it alive."""
    return f"{name[:80]}-{uuid4().hex[:8]}"


class Worker:
    """`beats` is a second connection, for the thread that keeps a job alive while the first waits for an answer."""

    def __init__(
        self,
        wishes: WorkerOptions,
        client: Client,
        beats: Client,
        session: SharedSession,
        maintain: MaintenanceFunction,
        leaving: ShutdownSignal,
        tell: PrintEvent,
    ) -> None:
        self._wishes, self._client, self._beats, self._session = wishes, client, beats, session
        self._maintain, self._tell = maintain, tell
        self.leaving = leaving
        self.ended: list[JobResult] = []

    @property
    def name(self) -> str:
        return self._wishes.name

    # Job after job

    def run(self) -> None:
        """Until somebody wants it to end; or, if so wished, until nothing is due or enough was done."""
        wishes, idle_since = self._wishes, None
        self._tell(WorkerEvent(event="started", text=f"worker {wishes.name} takes jobs of {wishes.securable}"))
        while not self.leaving.wanted and len(self.ended) != wishes.max_jobs:
            leased = self._answered(self._lease_next)
            if leased is not None:
                idle_since = None
                self._do(leased)
                continue
            if wishes.once or self.leaving.wanted:
                break
            if idle_since is None:
                idle_since = time.monotonic()
                text = f"nothing to do; looking again every {wishes.poll_seconds:g} s"
                self._tell(WorkerEvent(event="waiting", text=text))
            self._stop_if_idle(idle_since)
            self.leaving.sleep(wishes.poll_seconds * random.uniform(0.8, 1.2))  # many workers, not all at once
        self._tell(WorkerEvent(event="stopped", text=f"the worker ends; it took {len(self.ended)} jobs"))

    def run_one(self, job_id: int) -> None:
        """This job and no other; Conflict says who has it."""
        leased = self._lease(job_id)
        assert leased is not None  # the server gives a certain job, or refuses
        self._do(leased)

    def _lease_next(self) -> LeasedJob | None:
        if self._wishes.plan:
            self._plan()
        return self._lease()

    def _lease(self, job_id: int | None = None) -> LeasedJob | None:
        body = {"securable": self._wishes.securable, "worker": self._wishes.name, "job-id": job_id}
        since = time.monotonic()  # before it is asked for: the server begins to count at some time after that
        answer = self._client.manage("POST", ("maintenance", "lease"), body)
        if answer["job"] is None:
            return None
        return LeasedJob(answer["job"], LeaseTerms(answer["lease-seconds"], answer["heartbeat-seconds"]), since)

    def _plan(self) -> None:
        body: Json = {"securable": self._wishes.securable}
        added = 0
        while True:
            page = self._client.manage("POST", ("maintenance", "jobs"), body)
            added += len(page["jobs"])
            if not page.get("next-page-token"):
                break
            body["page-token"] = page["next-page-token"]
        if added:
            self._tell(WorkerEvent(event="planned", text=f"{added} jobs are due by policy"))

    def _answered(self, ask: Callable[[], LeasedJob | None]) -> LeasedJob | None:
        """The answer, if it comes before somebody wants to leave.

        What the catalog refuses is raised; and what nobody answers, if the worker is not to stay.
        """
        wait = FIRST_WAIT_SECONDS
        for tries in itertools.count(1):
            try:
                return ask()
            except (CatalogError, ConnectionError) as error:
                if is_final(error) or (self._wishes.once and tries == ONCE_TRIES):
                    raise
                pause = wait * random.uniform(0.5, 1.0)
                text = f"the catalog does not answer ({failure_reason(error)}); asking again in {pause:.0f} s"
                self._tell(WorkerEvent(event="unreachable", text=text, error=failure_reason(error)))
                self.leaving.sleep(pause)
                wait = min(LONGEST_WAIT_SECONDS, 2 * wait)
            if self.leaving.wanted:
                break
        return None

    def _stop_if_idle(self, idle_since: float) -> None:
        after = self._wishes.idle_stop_seconds
        if after is not None and self._session.started and time.monotonic() >= idle_since + after:
            self._session.stop()

    # One job

    def _do(self, leased: LeasedJob) -> None:
        """To its end, whatever that is."""
        job = leased.job
        lease = JobLease(
            leased.terms,
            lambda progress: self._beat(job, progress),
            self._session,
            self._wants_to_leave,
            leased.since,
        )
        began = time.monotonic()
        with lease.kept():
            try:
                ended = self._work(job, lease)
            except CannotRun:  # this machine's fault and not the job's
                lease.work_ended()
                self._settle(job, lease, JobResult("handed-back"))
                raise
            lease.work_ended()
            ended = self._settle(job, lease, ended)
        self.ended.append(ended)
        self._tell(_ended_event(job, ended, time.monotonic() - began))
        if ended.error is not None:
            self._session.require_alive()
            self.leaving.sleep(FIRST_WAIT_SECONDS)  # what was handed back is due again at once

    def _wants_to_leave(self) -> bool:
        return self.leaving.wanted

    def _beat(self, job: Json, progress: Json | None) -> bool:
        body = {"worker": self._wishes.name, "progress": redact(progress)}
        return bool(self._beats.manage("POST", _job_path(job, "heartbeat"), body)["cancelled"])

    def _work(self, job: Json, lease: JobLease) -> JobResult:
        try:
            spec = msgspec.convert(job["job"], JobSpec)
        except msgspec.ValidationError as error:
            return JobResult("failed", error=f"this worker does not understand the job: {error}")
        self._tell(_begun_event(job, spec))
        try:
            return JobResult("done", self._maintain(self._work_of(job, spec, lease)))
        except CannotRun:
            raise
        except JobRefused as error:
            return JobResult(
                "failed", error=redact_text(str(error))[:LONGEST_ERROR]
            )  # cut afterwards: half a secret is one
        except Exception as error:
            if lease.why is not None:  # what was interrupted fails in its own way
                return JobResult(STATE_AFTER_STOP[lease.why])
            # The catalog went away under the job: that is not the job's fault, and it is begun again when it is back.
            state: State = "handed-back" if isinstance(error, ServerUnreachable) else "failed"
            return JobResult(state, error=failure_reason(error))

    def _work_of(self, job: Json, spec: JobSpec, lease: JobLease) -> JobContext:
        def progress(step: ProgressStep) -> None:
            lease.tell(step)
            self._tell(progress_event(job["job-id"], step))

        lease.check()
        if not self._session.started:
            self._tell(WorkerEvent(event="starting", text="starting Spark", job_id=job["job-id"]))
        spark = self._session.get()
        lease.check()
        return JobContext(
            spark=spark,
            client=self._client,
            catalog=self._wishes.catalog,
            spec=spec,
            job=f"job-{job['job-id']}",
            progress=progress,
            check=lease.check,
        )

    def _settle(self, job: Json, lease: JobLease, ended: JobResult) -> JobResult:
        """Tell the server, for as long as the job is ours; what it does not take from us any more is lost."""
        if ended.state == "lost":
            return ended
        action, body = ("hand-back", {}) if ended.state == "handed-back" else ("finish", _result_body(ended))
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                self._client.manage("POST", _job_path(job, action), {"worker": self._wishes.name, **body})
                return ended
            except (CatalogError, ConnectionError) as error:
                if is_final(error) or lease.why == "lost":
                    return JobResult("lost", ended.outcome, failure_reason(error))
                time.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(10.0, 2 * wait)


def _job_path(job: Json, action: str) -> tuple[str, ...]:
    return ("maintenance", "jobs", str(job["job-id"]), action)


def _result_body(ended: JobResult) -> Json:
    """What the server is told, and shows to whoever may read the table: no secret of this worker is in it."""
    body: Json = {"state": ended.state, "error": redact(ended.error)}
    if ended.outcome is not None:
        outcome = ended.outcome
        if len(msgspec.json.encode(outcome)) > LONGEST_RESULT:
            outcome = msgspec.structs.replace(outcome, detail={"left-out": "more than the server keeps"})
        body |= {
            "changed": outcome.changed,
            "size-bytes": outcome.size_bytes,
            "result": redact(msgspec.to_builtins(outcome)),
        }
    return body


# What is told


def progress_event(job_id: int | None, step: ProgressStep) -> WorkerEvent:
    whose = "" if job_id is None else f"job {job_id}: "
    return WorkerEvent(
        event="progress", text=f"{whose}[{step.done}/{step.total}] {step.text}", job_id=job_id, step=step
    )


def dry_run_event(spec: JobSpec, ended: JobResult) -> WorkerEvent:
    """What a dry run found."""
    return _with_outcome(
        WorkerEvent(event="tried", text=f"{spec.type} of {_table_name(spec)}: ", type=spec.type), ended
    )


def _begun_event(job: Json, spec: JobSpec) -> WorkerEvent:
    again = f", attempt {job['attempts']}" if job["attempts"] > 1 else ""
    return WorkerEvent(
        event="begun",
        text=f"job {job['job-id']}: {spec.type} of {_table_name(spec)}{again}",
        job_id=job["job-id"],
        type=spec.type,
        table=_table_name(spec),
        attempt=job["attempts"],
    )


def _ended_event(job: Json, ended: JobResult, seconds: float) -> WorkerEvent:
    text = f"job {job['job-id']}: {ended.state} in {seconds:.1f} s: "
    told = WorkerEvent(event="ended", text=text, job_id=job["job-id"], seconds=round(seconds, 1))
    return _with_outcome(told, ended)


def _with_outcome(event: WorkerEvent, ended: JobResult) -> WorkerEvent:
    """The same, and what became of it, which its text goes on with."""
    outcome = ended.outcome
    remarks = [REMARKS.get(ended.state, ""), ended.error or ""]
    if outcome is not None:
        remarks.append(format_gains(outcome.gains) or ("changed" if outcome.changed else "there was nothing to change"))
    return msgspec.structs.replace(
        event,
        text=(event.text + "; ".join(each for each in remarks if each)).removesuffix(": "),
        state=ended.state,
        changed=None if outcome is None else outcome.changed,
        gains=[] if outcome is None else outcome.gains,
        detail=None if outcome is None else outcome.detail,
        error=ended.error,
    )


def _table_name(spec: JobSpec) -> str:
    return ".".join((*spec.namespace, spec.table))
