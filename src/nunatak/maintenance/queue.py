"""The queue of maintenance jobs that workers pull: waiting, leased, finished. One worker at a time works on a table.

If a worker dies, its lease expires and another worker gets the job; jobs are idempotent. A failed job is not retried;
the planner adds a new one when the backoff allows.
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
from nunatak.maintenance.job_spec import JobSpec

OWNER_SEPARATOR = "\x1f"  # names of principals and workers contain no control characters
HEARTBEATS = 3  # that a worker may miss before it loses its job
LEASE_MS = 90_000  # the default; a setting of the server overrides it
MAX_ATTEMPTS = 5  # a job that so many workers lost is probably the cause itself
CANDIDATES = 50  # due jobs that one lease request tries
KEPT_MS = 90 * 86_400_000  # how long finished jobs are stored
MAX_PROGRESS_BYTES, MAX_RESULT_BYTES = 4 << 10, 256 << 10  # bytes of JSON; details belong in a table
MAX_WORKER_LENGTH = 100
NEWEST = 1 << 62  # greater than every job id

Outcome = Literal["done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A stored job; `policy` is the securable on which the policy is set, None if a principal requested the job."""

    job_id: int
    type: str
    securable: str
    table_uuid: str
    policy: str | None
    spec: str
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


def add_job(actor: Actor, spec: JobSpec, policy: str | None, size_bytes: int) -> list[Change]:
    """Returns the changes that add a job; Conflict if a job of this type already waits or runs for the table."""
    securable = securables.entry(spec.warehouse, tuple(spec.namespace), spec.table)
    values = {
        "type": spec.type,
        "securable": securable,
        "table_uuid": spec.table_uuid,
        "policy": policy,
        "spec": msgspec.json.encode(spec).decode(),
        "open_key": open_key(spec),
        "created_by": actor.principal,
        "created_ms": actor.at_ms,
        "size_bytes": min(size_bytes, spec.max_bytes or size_bytes),
    }
    busy = Conflict(f"A {spec.type} job waits or runs for {securables.format_securable(securable)} already")
    detail = {"type": spec.type, "reasons": spec.reasons}
    return [
        Write("add_maintenance_job", values, busy),
        Write("forget_maintenance_jobs", {"before_ms": actor.at_ms - KEPT_MS}),
        audit_change(actor, "add-job", securable, detail),
    ]


def open_key(spec: JobSpec) -> str:
    return f"{spec.table_uuid}/{spec.type}"


async def find_open(store: Store, spec: JobSpec) -> int | None:
    rows = await store.rows("open_maintenance_job", {"open_key": open_key(spec)})
    return rows[0][0] if rows else None


async def find_job(store: Store, job_id: int) -> QueuedJob | None:
    rows = await store.rows("find_maintenance_job", {"job_id": job_id})
    return _job(rows[0]) if rows else None


async def list_jobs(store: Store, securable: str, before: int, limit: int) -> list[QueuedJob]:
    """Returns the jobs on the securable and inside it, newest first."""
    behind = securables.behind(securable)
    rows = await store.rows(
        "list_maintenance_jobs", {"securable": securable, "behind": behind, "before": before, "limit": limit}
    )
    return [_job(row) for row in rows]


async def lease(store: Store, owner: str, securable: str, now_ms: int, lease_ms: int = LEASE_MS) -> QueuedJob | None:
    """Leases the job inside `securable` that has been due longest and whose table is free; None if there is none."""
    behind = securables.behind(securable)
    values = {"securable": securable, "behind": behind, "now_ms": now_ms, "limit": CANDIDATES}
    for job_id, table_uuid in await store.rows("due_maintenance_jobs", values):
        try:
            await store.apply(take(job_id, table_uuid, owner, now_ms, lease_ms))
        except Conflict:  # another worker was faster, or works on the table
            continue
        job = await find_job(store, job_id)
        if job is None or job.leased_by != owner:
            continue
        if job.attempts <= MAX_ATTEMPTS and not job.cancelled:
            return job
        # Cancelled while its worker was dead, or lost by too many workers: finish it and try the next job.
        over: Outcome = "cancelled" if job.cancelled else "failed"
        told = None if job.cancelled else f"given up: {MAX_ATTEMPTS} workers began it and were not heard of again"
        await store.apply(finish(job_id, owner, over, now_ms=now_ms, error=told))
    return None


async def lease_this(store: Store, owner: str, job: QueuedJob, now_ms: int, lease_ms: int = LEASE_MS) -> QueuedJob:
    """Leases a job by its id; raises Conflict that names the job which occupies the table."""
    if job.state not in ("waiting", "running") or job.cancelled:
        raise Conflict(f"Job {job.job_id} is {'cancelled' if job.cancelled else job.state}")
    try:
        await store.apply(take(job.job_id, job.table_uuid, owner, now_ms, lease_ms))
    except Conflict as error:
        raise await _in_the_way(store, job, now_ms) or error from error
    leased = await find_job(store, job.job_id)
    if leased is None or leased.leased_by != owner:
        raise _lease_lost(job.job_id)
    return leased


async def _in_the_way(store: Store, job: QueuedJob, now_ms: int) -> Conflict | None:
    for each in await list_jobs(store, job.securable, NEWEST, CANDIDATES):
        if each.table_uuid == job.table_uuid and each.state == "running" and each.due_ms > now_ms:
            return Conflict(
                f"Job {each.job_id}, {each.type} of {securables.format_securable(each.securable)}, is being done by "
                f"{format_owner(each.leased_by)}",
                hint=f"`nunatak job show {each.job_id}` tells how far it is; one job works on a table at a time.",
            )
    return None


def take(job_id: int, table_uuid: str, owner: str, now_ms: int, lease_ms: int = LEASE_MS) -> list[Change]:
    """Returns the changes that lease a job; Conflict unless it is due and no other worker has its table."""
    values = {
        "job_id": job_id,
        "table_uuid": table_uuid,
        "owner": owner,
        "now_ms": now_ms,
        "until_ms": now_ms + lease_ms,
    }
    # Locks all open jobs of the table first: two workers must not lease different jobs of one table.
    return [
        Write("lock_maintenance_jobs", {"table_uuid": table_uuid}),
        Write("lease_maintenance_job", values, Conflict(f"Job {job_id} is not due, or its table is taken")),
    ]


def extend(job_id: int, owner: str, now_ms: int, progress: object | None, lease_ms: int = LEASE_MS) -> list[Change]:
    """Returns the changes of a worker's heartbeat; Conflict if the worker lost its lease."""
    text = _json("progress", progress, MAX_PROGRESS_BYTES)
    values = {"job_id": job_id, "owner": owner, "now_ms": now_ms, "until_ms": now_ms + lease_ms, "progress": text}
    return [Write("extend_maintenance_lease", values, _lease_lost(job_id))]


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
    return [Write("finish_maintenance_job", values, _lease_lost(job_id))]


def hand_back(job_id: int, owner: str, now_ms: int) -> list[Change]:
    """Returns the changes that release a job at the shutdown of its worker: another may start it at once."""
    values = {"job_id": job_id, "owner": owner, "due_ms": now_ms}
    return [Write("hand_back_maintenance_job", values, _lease_lost(job_id))]


def cancel(actor: Actor, job: QueuedJob) -> list[Change]:
    """Returns the changes that cancel a job. A waiting job ends at once; a running worker learns it with its next
    heartbeat. Raises Conflict if the job is finished."""
    row = audit_change(actor, "cancel-job", job.securable, {"job": job.job_id, "type": job.type})
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
    # `cancelled` and `changed`, which the databases store as integers.
    values[12], values[15] = bool(values[12]), bool(values[15])
    return QueuedJob(*values)
