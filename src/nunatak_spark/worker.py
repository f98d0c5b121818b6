"""The worker: leases maintenance jobs from the catalog, runs them on Spark, and reports the results."""

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

FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0  # between retries while the catalog does not answer
ONCE_TRIES = 6  # about half a minute, for a worker that is to end when nothing is due
MAX_RESULT_LENGTH = 200 << 10  # bytes; the server keeps 256 KiB of JSON
MAX_ERROR_LENGTH = 1000

STATE_AFTER_STOP: dict[StopReason, State] = {"cancelled": "cancelled", "shutdown": "handed-back", "lost": "lost"}
REMARKS: dict[State, str] = {
    "handed-back": "another worker may go on at once",
    "lost": "the lease ran out; nothing further was changed, and another worker goes on",
}


class SharedSession:
    """The Spark session that all jobs of a worker use: started for the first job, and again after a stop."""

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
        """Cancels every running statement of the session; its caller gets an exception."""
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
            with contextlib.suppress(Exception):  # the JVM may be gone already
                spark.stop()

    def require_alive(self) -> None:
        """Raises CannotRun if the JVM died: one process cannot start a second JVM."""
        if self._spark is None:
            return
        try:
            self._spark.range(1).count()
        except Exception as error:
            raise CannotRun(
                f"The Spark session ended: {failure_reason(error)}",
                fix="Start the worker again, with more memory if it ran out of it: --conf spark.driver.memory=4g.",
            ) from error


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker does; `securable` is the object whose jobs it takes."""

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
    """A job as the server leased it, and the monotonic time of the request."""

    job: Json
    terms: LeaseTerms
    since: float


@dataclass(frozen=True)
class JobResult:
    """The result of a job."""

    state: State
    outcome: JobOutcome | None = None
    error: str | None = None


def unique_worker_name(name: str) -> str:
    """Returns a unique lease holder name: of two processes with one name, the one that lost a job must not
    renew its lease.
    """
    return f"{name[:80]}-{uuid4().hex[:8]}"


class Worker:
    """Leases jobs and runs them. `heartbeat_client` is a second connection for the heartbeat thread."""

    def __init__(
        self,
        options: WorkerOptions,
        client: Client,
        heartbeat_client: Client,
        session: SharedSession,
        maintain: MaintenanceFunction,
        shutdown: ShutdownSignal,
        print_event: PrintEvent,
    ) -> None:
        self._options, self._client, self._heartbeat_client, self._session = options, client, heartbeat_client, session
        self._maintain, self._print_event = maintain, print_event
        self.shutdown = shutdown
        self.results: list[JobResult] = []

    @property
    def name(self) -> str:
        return self._options.name

    # Job after job

    def run(self) -> None:
        """Runs jobs until a shutdown; with `once` until nothing is due, with `max_jobs` until so many jobs ran."""
        options, idle_since = self._options, None
        self._print_event(WorkerEvent(event="started", text=f"worker {options.name} takes jobs of {options.securable}"))
        while not self.shutdown.requested and len(self.results) != options.max_jobs:
            leased = self._retry_until_answered(self._lease_next)
            if leased is not None:
                idle_since = None
                self._run_job(leased)
                continue
            if options.once or self.shutdown.requested:
                break
            if idle_since is None:
                idle_since = time.monotonic()
                text = f"nothing to do; looking again every {options.poll_seconds:g} s"
                self._print_event(WorkerEvent(event="waiting", text=text))
            self._stop_if_idle(idle_since)
            self.shutdown.sleep(
                options.poll_seconds * random.uniform(0.8, 1.2)
            )  # jitter, so that workers do not poll at the same time
        self._print_event(WorkerEvent(event="stopped", text=f"the worker ends; it took {len(self.results)} jobs"))

    def run_one(self, job_id: int) -> None:
        """Runs this job only; raises Conflict if another worker holds it."""
        leased = self._lease(job_id)
        assert leased is not None  # the server gives a certain job, or refuses
        self._run_job(leased)

    def _lease_next(self) -> LeasedJob | None:
        if self._options.plan:
            self._plan()
        return self._lease()

    def _lease(self, job_id: int | None = None) -> LeasedJob | None:
        body = {"securable": self._options.securable, "worker": self._options.name, "job-id": job_id}
        since = time.monotonic()  # taken before the request: the server's lease starts later, so ours expires first
        answer = self._client.manage("POST", ("maintenance", "lease"), body)
        if answer["job"] is None:
            return None
        return LeasedJob(answer["job"], LeaseTerms(answer["lease-seconds"], answer["heartbeat-seconds"]), since)

    def _plan(self) -> None:
        body: Json = {"securable": self._options.securable}
        added = 0
        while True:
            page = self._client.manage("POST", ("maintenance", "jobs"), body)
            added += len(page["jobs"])
            if not page.get("next-page-token"):
                break
            body["page-token"] = page["next-page-token"]
        if added:
            self._print_event(WorkerEvent(event="planned", text=f"{added} jobs are due by policy"))

    def _retry_until_answered(self, ask: Callable[[], LeasedJob | None]) -> LeasedJob | None:
        """Repeats the request until the catalog answers or a shutdown is requested.

        Raises what the catalog refuses; with `once` also a ConnectionError after ONCE_TRIES tries.
        """
        wait = FIRST_WAIT_SECONDS
        for tries in itertools.count(1):
            try:
                return ask()
            except (CatalogError, ConnectionError) as error:
                if is_final(error) or (self._options.once and tries == ONCE_TRIES):
                    raise
                pause = wait * random.uniform(0.5, 1.0)
                text = f"the catalog does not answer ({failure_reason(error)}); asking again in {pause:.0f} s"
                self._print_event(WorkerEvent(event="unreachable", text=text, error=failure_reason(error)))
                self.shutdown.sleep(pause)
                wait = min(MAX_WAIT_SECONDS, 2 * wait)
            if self.shutdown.requested:
                break
        return None

    def _stop_if_idle(self, idle_since: float) -> None:
        after = self._options.idle_stop_seconds
        if after is not None and self._session.started and time.monotonic() >= idle_since + after:
            self._session.stop()

    # One job

    def _run_job(self, leased: LeasedJob) -> None:
        """Runs a leased job and reports its result."""
        job = leased.job
        lease = JobLease(
            leased.terms,
            lambda progress: self._beat(job, progress),
            self._session,
            self._is_shutdown_requested,
            leased.since,
        )
        began = time.monotonic()
        with lease.send_heartbeats():
            try:
                ended = self._execute(job, lease)
            except CannotRun:  # a problem of this machine, not of the job
                lease.mark_work_ended()
                self._report_result(job, lease, JobResult("handed-back"))
                raise
            lease.mark_work_ended()
            ended = self._report_result(job, lease, ended)
        self.results.append(ended)
        self._print_event(_ended_event(job, ended, time.monotonic() - began))
        if ended.error is not None:
            self._session.require_alive()
            self.shutdown.sleep(FIRST_WAIT_SECONDS)  # a job that was handed back is due again at once

    def _is_shutdown_requested(self) -> bool:
        return self.shutdown.requested

    def _beat(self, job: Json, progress: Json | None) -> bool:
        body = {"worker": self._options.name, "progress": redact(progress)}
        return bool(self._heartbeat_client.manage("POST", _job_path(job, "heartbeat"), body)["cancelled"])

    def _execute(self, job: Json, lease: JobLease) -> JobResult:
        try:
            spec = msgspec.convert(job["job"], JobSpec)
        except msgspec.ValidationError as error:
            return JobResult("failed", error=f"this worker does not understand the job: {error}")
        self._print_event(_begun_event(job, spec))
        try:
            return JobResult("done", self._maintain(self._job_context(job, spec, lease)))
        except CannotRun:
            raise
        except JobRefused as error:
            return JobResult(
                "failed", error=redact_text(str(error))[:MAX_ERROR_LENGTH]
            )  # cut afterwards: half a secret is one
        except Exception as error:
            if lease.stop_reason is not None:  # an interrupted statement raises any error
                return JobResult(STATE_AFTER_STOP[lease.stop_reason])
            # The catalog became unreachable: hand the job back, so that it is retried once the catalog answers.
            state: State = "handed-back" if isinstance(error, ServerUnreachable) else "failed"
            return JobResult(state, error=failure_reason(error))

    def _job_context(self, job: Json, spec: JobSpec, lease: JobLease) -> JobContext:
        def progress(step: ProgressStep) -> None:
            lease.set_progress(step)
            self._print_event(progress_event(job["job-id"], step))

        lease.check()
        if not self._session.started:
            self._print_event(WorkerEvent(event="starting", text="starting Spark", job_id=job["job-id"]))
        spark = self._session.get()
        lease.check()
        return JobContext(
            spark=spark,
            client=self._client,
            catalog=self._options.catalog,
            spec=spec,
            job=f"job-{job['job-id']}",
            progress=progress,
            check=lease.check,
        )

    def _report_result(self, job: Json, lease: JobLease, ended: JobResult) -> JobResult:
        """Reports the result while the lease holds; the job is lost if the server refuses it."""
        if ended.state == "lost":
            return ended
        action, body = ("hand-back", {}) if ended.state == "handed-back" else ("finish", _result_body(ended))
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                self._client.manage("POST", _job_path(job, action), {"worker": self._options.name, **body})
                return ended
            except (CatalogError, ConnectionError) as error:
                if is_final(error) or lease.stop_reason == "lost":
                    return JobResult("lost", ended.outcome, failure_reason(error))
                time.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(10.0, 2 * wait)


def _job_path(job: Json, action: str) -> tuple[str, ...]:
    return ("maintenance", "jobs", str(job["job-id"]), action)


def _result_body(ended: JobResult) -> Json:
    """Returns the request body of a result, redacted: everybody who may read the table sees it."""
    body: Json = {"state": ended.state, "error": redact(ended.error)}
    if ended.outcome is not None:
        outcome = ended.outcome
        if len(msgspec.json.encode(outcome)) > MAX_RESULT_LENGTH:
            outcome = msgspec.structs.replace(outcome, detail={"left-out": "more than the server keeps"})
        body |= {
            "changed": outcome.changed,
            "size-bytes": outcome.size_bytes,
            "result": redact(msgspec.to_builtins(outcome)),
        }
    return body


# Events


def progress_event(job_id: int | None, step: ProgressStep) -> WorkerEvent:
    whose = "" if job_id is None else f"job {job_id}: "
    return WorkerEvent(
        event="progress", text=f"{whose}[{step.done}/{step.total}] {step.text}", job_id=job_id, step=step
    )


def dry_run_event(spec: JobSpec, ended: JobResult) -> WorkerEvent:
    """Returns the event of a dry run."""
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
    """Returns the event with the result added to its text and fields."""
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
