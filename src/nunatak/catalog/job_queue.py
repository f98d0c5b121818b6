"""The queue of all jobs: those that servers run themselves, and those that Spark workers pull over HTTP.

A lease gives a job to one owner at a time, and of the worker jobs of one table to one worker. If the owner dies, its
lease expires and another gets the job: jobs are idempotent. A server retries its failed jobs; a failed worker job is
finished, and the planner adds a new one when the backoff allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from nunatak.access import securables
from nunatak.access.administration import Actor, audit_change
from nunatak.database.records import Change, Write
from nunatak.database.store import Store
from nunatak.errors import BadRequest, Conflict, NotFound

OWNER_SEPARATOR = "\x1f"  # names of principals and workers contain no control characters
HEARTBEATS = 3  # that a worker may miss before it loses its job
LEASE_MS = 90_000  # the default; a setting of the server overrides it
MAX_ATTEMPTS = 5  # a job that so many workers lost is probably the cause itself
CANDIDATES = 50  # due jobs that one lease request tries
KEPT_MS = 90 * 86_400_000  # how long finished worker jobs are stored
MAX_PROGRESS_BYTES, MAX_RESULT_BYTES = 4 << 10, 256 << 10  # bytes of JSON; details belong in a table
MAX_WORKER_LENGTH = 100
NEWEST = 1 << 62  # greater than every job id

RunsOn = Literal["server", "worker"]
Outcome = Literal["done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A stored job. The texts about a table are empty for a server job, whose `payload` says what it is about.

    `policy` is the securable on which the policy is set, None if a principal requested the job.
    """

    job_id: int
    kind: str
    securable: str
    table_uuid: str
    policy: str | None
    payload: bytes
    state: str
    created_by: str
    created_ms: int
    due_ms: int
    attempts: int
    leased_by: str | None
    cancelled: bool
    progress: str | None
    finished_ms: int | None
    changed: bool
    size_bytes: int
    result: str | None
    error: str | None


async def find_job(store: Store, runs_on: RunsOn, job_id: int) -> QueuedJob | None:
    rows = await store.rows("find_job", {"runs_on": runs_on, "job_id": job_id})
    return _job(rows[0]) if rows else None


async def list_jobs(store: Store, securable: str, before: int, limit: int) -> list[QueuedJob]:
    """Returns the worker jobs on the securable and inside it, newest first."""
    behind = securables.behind(securable)
    values = {"securable": securable, "behind": behind, "before": before, "limit": limit}
    return [_job(row) for row in await store.rows("list_jobs", values)]


async def lease(
    store: Store,
    runs_on: RunsOn,
    owner: str,
    now_ms: int,
    lease_ms: int = LEASE_MS,
    *,
    securable: str = securables.SERVER,
) -> QueuedJob | None:
    """Leases the job inside `securable` that has been due longest and whose table is free; None if there is none."""
    behind = securables.behind(securable)
    values = {"runs_on": runs_on, "securable": securable, "behind": behind, "now_ms": now_ms, "limit": CANDIDATES}
    for job_id, table_uuid in await store.rows("due_jobs", values):
        try:
            await store.apply(take(job_id, table_uuid, owner, now_ms, lease_ms))
        except Conflict:  # another owner was faster, or works on the table
            continue
        job = await find_job(store, runs_on, job_id)
        if job is None or job.leased_by != owner:
            continue
        if runs_on == "server" or (job.attempts <= MAX_ATTEMPTS and not job.cancelled):
            return job
        # Cancelled while its worker was dead, or lost by too many workers: finish it and try the next job.
        over: Outcome = "cancelled" if job.cancelled else "failed"
        told = None if job.cancelled else f"given up: {MAX_ATTEMPTS} workers began it and were not heard of again"
        await store.apply(finish(job_id, owner, over, now_ms=now_ms, error=told))
    return None


async def lease_this(store: Store, owner: str, job: QueuedJob, now_ms: int, lease_ms: int = LEASE_MS) -> QueuedJob:
    """Leases a worker job by its id; raises Conflict that names the job which occupies the table."""
    if job.state not in ("waiting", "running") or job.cancelled:
        raise Conflict(f"Job {job.job_id} is {'cancelled' if job.cancelled else job.state}")
    try:
        await store.apply(take(job.job_id, job.table_uuid, owner, now_ms, lease_ms))
    except Conflict as error:
        raise await _in_the_way(store, job, now_ms) or error from error
    leased = await find_job(store, "worker", job.job_id)
    if leased is None or leased.leased_by != owner:
        raise _lease_lost(job.job_id)
    return leased


async def _in_the_way(store: Store, job: QueuedJob, now_ms: int) -> Conflict | None:
    for each in await list_jobs(store, job.securable, NEWEST, CANDIDATES):
        if each.table_uuid == job.table_uuid and each.state == "running" and each.due_ms > now_ms:
            return Conflict(
                f"Job {each.job_id}, {each.kind} of {securables.format_securable(each.securable)}, is being done by "
                f"{format_owner(each.leased_by)}",
                hint=f"`nunatak job show {each.job_id}` tells how far it is; one job works on a table at a time.",
            )
    return None


def take(job_id: int, table_uuid: str | None, owner: str, now_ms: int, lease_ms: int = LEASE_MS) -> list[Change]:
    """Returns the changes that lease a job; Conflict unless it is due and no other worker has its table."""
    values = {"job_id": job_id, "table_uuid": table_uuid, "owner": owner, "now_ms": now_ms}
    refusal = Conflict(f"Job {job_id} is not due, or its table is taken")
    leased = Write("lease_job", {**values, "until_ms": now_ms + lease_ms}, refusal)
    if table_uuid is None:
        return [leased]
    # Locks all open jobs of the table first: two workers must not lease different jobs of one table.
    return [Write("lock_jobs_of_table", {"table_uuid": table_uuid}), leased]


def extend(job_id: int, owner: str, now_ms: int, progress: object | None, lease_ms: int = LEASE_MS) -> list[Change]:
    """Returns the changes of a heartbeat; Conflict if the owner lost its lease."""
    text = _json("progress", progress, MAX_PROGRESS_BYTES)
    values = {"job_id": job_id, "owner": owner, "now_ms": now_ms, "until_ms": now_ms + lease_ms, "progress": text}
    return [Write("extend_lease", values, _lease_lost(job_id))]


def finish(
    job_id: int,
    owner: str,
    outcome: Outcome,
    *,
    now_ms: int,
    changed: bool = False,
    size_bytes: int = 0,
    result: object | None = None,
    error: str | None = None,
) -> list[Change]:
    """Returns the changes that store the outcome of a job; Conflict if the owner lost its lease."""
    values = {
        "job_id": job_id,
        "owner": owner,
        "state": outcome,
        "finished_ms": now_ms,
        "changed": int(changed),
        "size_bytes": size_bytes,
        "result": _json("result", result, MAX_RESULT_BYTES),
        "error": None if error is None else error[:1000],
    }
    return [Write("finish_job", values, _lease_lost(job_id))]


def forget_finished(job_id: int) -> Write:
    """Deletes a finished job; for jobs of the server, one of which may follow every commit."""
    return Write("forget_finished_job", {"job_id": job_id})


def release(job_id: int, owner: str, due_ms: int, error: str | None = None) -> list[Change]:
    """Returns the changes that give a job back, due again at `due_ms`; Conflict if the owner lost its lease.

    Without an `error` the owner shuts down, and the attempt is not counted.
    """
    values = {"job_id": job_id, "owner": owner, "not_before_ms": due_ms, "error": error}
    return [Write("release_job", {**values, "uncounted": int(error is None)}, _lease_lost(job_id))]


def cancel(actor: Actor, job: QueuedJob) -> list[Change]:
    """Returns the changes that cancel a job. A waiting job ends at once; a running worker learns it with its next
    heartbeat. Raises Conflict if the job is finished."""
    row = audit_change(actor, "cancel-job", job.securable, {"job": job.job_id, "type": job.kind})
    moved = Conflict(f"Job {job.job_id} is not {job.state} any more", hint="Look again.")
    if job.state == "waiting":
        return [Write("cancel_waiting_job", {"job_id": job.job_id, "now_ms": actor.at_ms}, moved), row]
    if job.state == "running":
        return [Write("cancel_running_job", {"job_id": job.job_id}, moved), row]
    raise Conflict(f"Job {job.job_id} is over: it is {job.state}")


def owner_of(principal: str, worker: str) -> str:
    """Returns the owner of a lease, unique to the principal; raises BadRequest for an invalid worker name."""
    if not 1 <= len(worker) <= MAX_WORKER_LENGTH or not worker.isprintable():
        raise BadRequest(f"Invalid worker: use 1 to {MAX_WORKER_LENGTH} printable characters")
    return f"{principal}{OWNER_SEPARATOR}{worker}"


def format_owner(owner: str | None) -> str | None:
    """Returns the owner in readable form: principal/worker."""
    return None if owner is None else owner.replace(OWNER_SEPARATOR, "/")


def no_such_job(job_id: object) -> NotFound:
    return NotFound(f"Job does not exist: {job_id}")


def _lease_lost(job_id: int) -> Conflict:
    return Conflict(
        f"Job {job_id} is not this worker's any more",
        hint="Its lease ran out: stop, and change nothing further. Another worker goes on.",
    )


def _json(name: str, value: object | None, longest: int) -> str | None:
    if value is None:
        return None
    text = msgspec.json.encode(value).decode()
    if len(text.encode()) > longest:
        raise BadRequest(f"The {name} is longer than {longest} bytes of JSON")
    return text


def _job(row: Sequence[Any]) -> QueuedJob:
    values = list(row)
    for column in (2, 3, 7):  # securable, table_uuid and created_by, which are null for server jobs
        values[column] = values[column] or ""
    values[8] = values[8] or 0  # created_ms
    # `cancelled` and `changed`, which the databases store as integers.
    values[12], values[15] = bool(values[12]), bool(values[15])
    return QueuedJob(*values)
