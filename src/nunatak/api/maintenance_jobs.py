"""Handlers of maintenance jobs: adding and cancelling them; lease, heartbeat and finish for workers."""

from contextlib import suppress

import msgspec

from nunatak.access import securables
from nunatak.access.privileges import ENTRY_BITS, Privilege, names_of
from nunatak.api.filtered_lists import only_seen
from nunatak.api.http import Request, decode_segment
from nunatak.api.maintenance import planner_for
from nunatak.api.maintenance_wire import (
    AddedJob,
    AddJobsRequest,
    AddJobsResponse,
    FinishJobRequest,
    HandBackRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaseRequest,
    LeaseResponse,
    ListJobsResponse,
    MaintenanceJob,
)
from nunatak.api.paging import list_of
from nunatak.api.required_privileges import Declared, Need, Target
from nunatak.api.route import handler
from nunatak.api.securable_parameter import SecurablePlace, require_namespace, resolve_securable, tables_in
from nunatak.catalog import job_queue
from nunatak.catalog.catalog import Caller
from nunatak.catalog.job_queue import QueuedJob, find_job, no_such_job
from nunatak.catalog.shadows import find_shadow
from nunatak.catalog.write import unaudited_event, write
from nunatak.database.records import StoredResponse
from nunatak.errors import BadRequest, Conflict, NoSuchTable
from nunatak.iceberg.identifiers import Identifier
from nunatak.maintenance import policy_store
from nunatak.maintenance.job_spec import JobSpec
from nunatak.maintenance.planning import requested_job
from nunatak.maintenance.policies import check_type, nearest
from nunatak.maintenance.survey import UNREADABLE, Planner, look, subject_of
from nunatak.maintenance.worker_jobs import add_job, find_open

MAX_PAGE_SIZE = 200  # tables that one request plans for
CHANGING = Privilege.TABLE_WRITE | Privilege.TABLE_ALTER
GONE = "the table was dropped or renamed"
NOWHERE = securables.entry("", ("",), "")  # no warehouse, namespace or table has an empty name


@handler
async def add_jobs(request: Request) -> AddJobsResponse:
    """Adds one job of a type on a table, or all jobs that the policies make due; a dry run only returns them.

    The response is not stored for an Idempotency-Key: a job that is already waiting is not added again.
    """
    wanted = request.decode(AddJobsRequest)
    place = await resolve_securable(request, wanted.securable)
    if wanted.type is not None:
        return AddJobsResponse([await _ask_for(request, place, check_type(wanted.type), dry_run=wanted.dry_run)])
    planner = await planner_for(request, place)
    if place.name is not None:
        return AddJobsResponse(await _add_due(request, planner, place.identifier, dry_run=wanted.dry_run))
    await require_namespace(request, place)
    resource = list_of(request, "jobs-to-add", place.securable)
    after = request.context.tokens.read(resource, wanted.page_token) if wanted.page_token else ""
    names, following = await tables_in(request, place, CHANGING, after, MAX_PAGE_SIZE)
    jobs: list[AddedJob] = []
    for name in names:
        with suppress(*UNREADABLE):  # a view, or a table that is gone or unreadable: `health` reports it
            jobs += await _add_due(request, planner, name, dry_run=wanted.dry_run)
    return AddJobsResponse(jobs, next_page_token=request.context.tokens.after(resource, following))


async def _ask_for(request: Request, place: SecurablePlace, kind: str, *, dry_run: bool) -> AddedJob:
    if place.name is None:
        raise BadRequest(
            "A job of one type needs a table as its securable", hint="Leave the type out to add all due jobs."
        )
    catalog = request.catalog
    facts = await look(catalog, request.warehouse, place.identifier)
    policies = nearest(await policy_store.policies_around(catalog.store, place.securable), place.securable)
    subject = subject_of(catalog, request.warehouse, place.identifier)
    spec = requested_job(subject, facts, kind, policies.get(kind), catalog.now_ms())
    if dry_run:
        return AddedJob(None, spec)
    await write(catalog, _without_key(request), add_job(request.actor, spec, None, 0), StoredResponse(200))
    return await _added_job(request, spec)


async def _add_due(request: Request, planner: Planner, identifier: Identifier, *, dry_run: bool) -> list[AddedJob]:
    catalog = request.catalog
    facts = await look(catalog, request.warehouse, identifier)
    subject = subject_of(catalog, request.warehouse, identifier)
    added = []
    for decision in await planner.plan(subject, facts, catalog.now_ms()):
        if decision.spec is None or decision.attached is None:
            continue
        if dry_run:
            added.append(AddedJob(None, decision.spec))
            continue
        changes = add_job(request.actor, decision.spec, decision.attached.securable, decision.size_bytes)
        try:
            await write(catalog, _without_key(request), changes, StoredResponse(200))
        except Conflict:  # another server added the same job at the same time
            continue
        added.append(await _added_job(request, decision.spec))
    return added


def _without_key(request: Request) -> Caller:
    """Returns the caller without its Idempotency-Key: it writes once per job, so no write has the whole response."""
    return msgspec.structs.replace(request.caller, key=None)


async def _added_job(request: Request, spec: JobSpec) -> AddedJob:
    return AddedJob(await find_open(request.catalog.store, spec), spec)


@handler
async def list_jobs(request: Request) -> ListJobsResponse:
    """Lists the jobs in a securable that the caller may see, newest first."""
    place = await resolve_securable(request, request.query.get("securable"))
    resource = list_of(request, "jobs", place.securable)
    page = request.context.tokens.page(resource, request.query)
    before = int(page.after) if page.after else job_queue.NEWEST
    found = await job_queue.list_jobs(request.catalog.store, place.securable, before, page.limit + 1)
    shown = await only_seen(request, found[: page.limit], lambda each: each.securable)
    last = str(found[page.limit - 1].job_id) if len(found) > page.limit else None
    token = request.context.tokens.after(resource, last)
    return ListJobsResponse([_job(each) for each in shown], next_page_token=token)


@handler
async def load_job(request: Request) -> MaintenanceJob:
    return _job(await _load(request))


@handler
async def cancel_job(request: Request) -> None:
    changes = job_queue.cancel(request.actor, await _load(request))
    await write(request.catalog, request.caller, changes, StoredResponse(204))


# Workers


@handler
async def lease_job(request: Request) -> LeaseResponse:
    """Leases a job to a worker: the given one, or the next that is due.

    The response is not stored for an Idempotency-Key: a worker that lost it leases another job, and the first lease
    expires.
    """
    wanted = request.decode(LeaseRequest)
    place = await resolve_securable(request, wanted.securable)
    owner = job_queue.owner_of(request.caller.principal, wanted.worker)
    if wanted.job_id is None:
        job = await _next_job(request, owner, place)
    else:
        job = await _this_job(request, owner, place, wanted.job_id)
    seconds = request.catalog.maintenance_lease_seconds
    return LeaseResponse(None if job is None else _job(job), seconds, seconds // job_queue.HEARTBEATS)


async def _next_job(request: Request, owner: str, place: SecurablePlace) -> QueuedJob | None:
    """Leases the next job that can still be done; cancels those whose table was dropped, renamed or shadowed."""
    store = request.catalog.store
    for _ in range(job_queue.CANDIDATES):
        job = await job_queue.lease(
            store, "worker", owner, request.catalog.now_ms(), _lease_ms(request), securable=place.securable
        )
        refusal = None if job is None else await _refusal_of(request, job)
        if job is None or refusal is None:
            return job
        await _forget(request, owner, job, refusal)
    return None


async def _this_job(request: Request, owner: str, place: SecurablePlace, job_id: int) -> QueuedJob:
    """Leases this job; raises NotFound if it lies outside `place`, on which the rights were checked."""
    found = await find_job(request.catalog.store, "worker", job_id)
    if found is None or not place.securable <= found.securable < securables.behind(place.securable):
        raise no_such_job(job_id)
    job = await job_queue.lease_this(request.catalog.store, owner, found, request.catalog.now_ms(), _lease_ms(request))
    refusal = await _refusal_of(request, job)
    if refusal is None:
        return job
    await _forget(request, owner, job, refusal)
    raise Conflict(f"Job {job_id} is cancelled: {refusal}")


async def _forget(request: Request, owner: str, job: QueuedJob, refusal: str) -> None:
    now_ms = request.catalog.now_ms()
    await request.catalog.store.apply(job_queue.finish(job.job_id, owner, "cancelled", now_ms=now_ms, error=refusal))


def _lease_ms(request: Request) -> int:
    return request.catalog.maintenance_lease_seconds * 1000


async def _refusal_of(request: Request, job: QueuedJob) -> str | None:
    """Returns why a planned job can no longer be done, or None: the table may be gone or have become a shadow."""
    _, levels, name = securables.parts(job.securable)
    try:
        facts = await look(request.catalog, request.warehouse, Identifier(levels, name or ""))
    except NoSuchTable:
        return GONE
    if facts.table_uuid != job.table_uuid:  # another table under the same name
        return GONE
    return None if facts.shadow is None else facts.shadow.refusal_of(job.kind)


@handler
async def heartbeat(request: Request) -> HeartbeatResponse:
    """Extends the lease; the response says whether the job was cancelled and the worker has to stop."""
    wanted = request.decode(HeartbeatRequest)
    job = await _load(request)
    owner = job_queue.owner_of(request.caller.principal, wanted.worker)
    now_ms, lease_ms = request.catalog.now_ms(), _lease_ms(request)
    await request.catalog.store.apply(job_queue.extend(job.job_id, owner, now_ms, wanted.progress, lease_ms))
    home = securables.parts(job.securable)[0]
    # The table may have become a shadow since the lease: the worker stops as for a cancelled job.
    shadow = await find_shadow(request.catalog.store, home, job.table_uuid)
    refused = shadow is not None and shadow.refusal_of(job.kind) is not None
    return HeartbeatResponse(job.cancelled or refused)


@handler
async def finish_job(request: Request) -> None:
    wanted = request.decode(FinishJobRequest)
    job = await _load(request)
    facts = {"type": job.kind, "state": wanted.state, "changed": wanted.changed, "error": (wanted.error or "")[:1000]}
    facts["size_bytes"] = wanted.size_bytes
    event = unaudited_event(request.catalog, request.caller, "finishMaintenanceJob", job.securable, facts)
    changes = job_queue.finish(
        job.job_id,
        job_queue.owner_of(request.caller.principal, wanted.worker),
        wanted.state,
        now_ms=request.catalog.now_ms(),
        changed=wanted.changed,
        size_bytes=wanted.size_bytes,
        result=wanted.result,
        error=wanted.error,
    )
    await write(request.catalog, request.caller, [*changes, event], StoredResponse(204))


@handler
async def hand_back_job(request: Request) -> None:
    wanted = request.decode(HandBackRequest)
    job = await _load(request)
    owner = job_queue.owner_of(request.caller.principal, wanted.worker)
    changes = job_queue.release(job.job_id, owner, request.catalog.now_ms())
    facts = {"type": job.kind}
    event = unaudited_event(request.catalog, request.caller, "handBackMaintenanceJob", job.securable, facts)
    await write(request.catalog, request.caller, [*changes, event], StoredResponse(204))


# Shared helpers


async def _load(request: Request) -> QueuedJob:
    found = await _find(request)
    if found is None:
        raise no_such_job(_job_text(request))
    return found


async def _find(request: Request) -> QueuedJob | None:
    text = decode_segment(request.path_names[0])
    if not (text.isascii() and text.isdigit() and len(text) < 19):  # larger numbers may not fit in 64 bits
        return None
    return await find_job(request.catalog.store, "worker", int(text))


def _job_text(request: Request) -> str:
    """Returns the job id as the client wrote it, at most 50 characters; the job may not exist."""
    return decode_segment(request.path_names[0])[:50]


def _job(job: QueuedJob) -> MaintenanceJob:
    return MaintenanceJob(
        job_id=job.job_id,
        type=job.kind,
        state=job.state,
        securable=securables.format_securable(job.securable),
        table_uuid=job.table_uuid,
        policy_on=None if job.policy is None else securables.format_securable(job.policy),
        job=msgspec.Raw(job.payload),
        created_by=job.created_by,
        created_ms=job.created_ms,
        attempts=job.attempts,
        worker=job_queue.format_owner(job.leased_by),
        cancelled=job.cancelled,
        progress=None if job.progress is None else msgspec.Raw(job.progress.encode()),
        finished_ms=job.finished_ms,
        changed=job.changed,
        size_bytes=job.size_bytes,
        result=None if job.result is None else msgspec.Raw(job.result.encode()),
        error=job.error,
    )


# Required privileges


async def on_table_of_job(route: Declared, request: Request) -> list[Need]:
    """Requires the route's privilege on the job's table; raises NotFound if the caller may not see the table.

    For a job that does not exist the same steps are taken on a securable that has no grants of its own, so that both
    cases look the same to the caller.
    """
    job = await _find(request)
    securable = NOWHERE if job is None else job.securable
    absent = no_such_job(_job_text(request))
    if not await request.rights(securable) & ENTRY_BITS:
        about = securables.SERVER if job is None else securable
        request.context.note_denial(request, names_of(route.privilege), about)
        raise absent
    if job is None:
        raise absent
    home, levels, name = securables.parts(job.securable)
    if home in request.catalog.warehouses:
        request.warehouse, request.asked_warehouse = request.catalog.warehouses[home], home
    return [Need(route.privilege, Target(job.securable, absent, levels, name, "TABLE"))]
