"""Adds jobs for Spark workers to the queue: at most one of each type waits or runs for a table."""

import msgspec

from nunatak.access import securables
from nunatak.access.administration import Actor, audit_change
from nunatak.catalog.job_queue import KEPT_MS
from nunatak.database.bindings import job_values
from nunatak.database.records import Change, Write
from nunatak.database.store import Store
from nunatak.errors import Conflict
from nunatak.maintenance.job_spec import JobSpec


def add_job(actor: Actor, spec: JobSpec, policy: str | None, size_bytes: int) -> list[Change]:
    """Returns the changes that add a job; Conflict if a job of this type already waits or runs for the table."""
    securable = securables.entry(spec.warehouse, tuple(spec.namespace), spec.table)
    values = job_values(
        spec.type,
        msgspec.json.encode(spec),
        runs_on="worker",
        not_before_ms=actor.at_ms,
        open_key=open_key(spec),
        securable=securable,
        table_uuid=spec.table_uuid,
        policy=policy,
        created_by=actor.principal,
        created_ms=actor.at_ms,
        size_bytes=min(size_bytes, spec.max_bytes or size_bytes),
    )
    busy = Conflict(f"A {spec.type} job waits or runs for {securables.format_securable(securable)} already")
    detail = {"type": spec.type, "reasons": spec.reasons}
    return [
        Write("add_job", values, busy),
        Write("forget_jobs", {"before_ms": actor.at_ms - KEPT_MS}),
        audit_change(actor, "add-job", securable, detail),
    ]


def open_key(spec: JobSpec) -> str:
    return f"{spec.table_uuid}/{spec.type}"


async def find_open(store: Store, spec: JobSpec) -> int | None:
    rows = await store.rows("open_job", {"open_key": open_key(spec)})
    return rows[0][0] if rows else None
