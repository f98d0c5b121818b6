"""Each kind of change as statements in one PostgreSQL transaction; the locks that keep two of them apart."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from nunatak.database import rules
from nunatak.database.postgres_connections import Session, sqlstate_of
from nunatak.database.records import (
    AddJob,
    AdoptHead,
    Change,
    CommitEntry,
    CreateNamespace,
    DeleteHead,
    DropNamespace,
    ExtendLease,
    FinishJob,
    ForgetAnswers,
    ForgetHead,
    InsertHead,
    Job,
    Key,
    LeaseJob,
    MoveHead,
    Neighbour,
    PostponeJob,
    RenameHead,
    SaveAnswer,
    SaveReport,
    SaveSecret,
    UpdateNamespace,
    Write,
)
from nunatak.database.rules import named

UNIQUE_VIOLATION = "23505"
MAX_COUNTED_CHILDREN = 1000  # beyond this nobody wants to know how many

_NO_ANSWER: Mapping[str, object] = dict.fromkeys(
    ("key_principal", "key", "key_hash", "key_status", "key_body", "key_location", "key_now_ms", "key_expires_ms")
)


# What is locked


def lock_number(name: str) -> int:
    """An advisory lock's number; a collision would make two strangers wait for each other, no more."""
    return int.from_bytes(sha256(f"nunatak {name}".encode()).digest()[:8], "big", signed=True)


LOCATIONS = lock_number("locations")


def locks_for(changes: Sequence[Change]) -> list[int]:
    """Locks for what no constraint can check: whether a namespace is there and empty, whether two folders touch.

    A plain commit takes none. Warehouses may be allowed the same folder, so locations share one lock.
    """
    wanted: set[int] = set()
    for change in changes:
        match change:
            case InsertHead():
                wanted.add(lock_number(f"warehouse {change.key.catalog}"))
                wanted.add(LOCATIONS)
            case RenameHead():
                wanted.add(lock_number(f"warehouse {change.to.catalog}"))
            case CreateNamespace() | DropNamespace() | UpdateNamespace():
                wanted.add(lock_number(f"warehouse {change.catalog}"))
            # The purge must not begin between the look at and the arrival of a table registered over the same files.
            case MoveHead(check_overlap=True) | DeleteHead(purge=True):
                wanted.add(LOCATIONS)
            case _:
                pass
    return sorted(wanted)


def begin_sql(locks: Sequence[int]) -> str:
    """The transaction and its locks in one round trip."""
    taken = [f"SELECT pg_advisory_xact_lock({number})" for number in locks]
    return "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *taken])


# A commit, whole in one statement


def is_plain_commit(changes: Sequence[Change]) -> bool:
    """One pointer moved, and of the rest only what the statement of a commit takes along."""
    kinds = [type(change) for change in changes]
    return (
        kinds.count(MoveHead) == 1
        and kinds.count(SaveAnswer) <= 1
        and all(kind in (MoveHead, SaveAnswer, AddJob) for kind in kinds)
        and not any(isinstance(each, MoveHead) and (each.check_overlap or each.places_changed) for each in changes)
    )


def commit_values(changes: Sequence[Change]) -> dict[str, object]:
    """What `commit_head` is given for a plain commit."""
    values: dict[str, object] = {**_NO_ANSWER, "job_kinds": [], "job_payloads": []}
    jobs = [change for change in changes if isinstance(change, AddJob)]
    if jobs:
        values |= {"job_kinds": [job.kind for job in jobs], "job_payloads": [job.payload for job in jobs]}
    for change in changes:
        if isinstance(change, MoveHead):
            values |= named(change.key) | rules.kept(change.new) | rules.logged(change.entry)
            values["expected"] = change.expected
        elif isinstance(change, SaveAnswer):
            answer = rules.answered(change)
            values |= {name: answer[name.removeprefix("key_")] for name in ("key_principal", "key_status", "key_body")}
            values |= {"key": change.key, "key_hash": change.request_hash}
            values |= {"key_location": change.answer.metadata_location}
            values |= {"key_now_ms": change.now_ms, "key_expires_ms": change.expires_ms}
    return values


async def why_not_moved(session: Session, change: MoveHead) -> Exception:
    if await session.row("find_type", named(change.key)) is None:
        return rules.missing(change.kind, change.printed)
    shadow = await session.row("find_shadow", rules.in_catalog(change.key, change.new.table_uuid))
    if rules.is_closed(shadow):
        return rules.shadowed(change.printed, shadow[0])
    return rules.moved(change.printed)


# Everything else, statement by statement


async def apply_all(session: Session, changes: Sequence[Change]) -> list[object]:
    """Inside a transaction that holds `locks_for(changes)`; raises to have it rolled back."""
    heads = [change.key for change in changes if isinstance(change, MoveHead | DeleteHead | RenameHead)]
    if len(heads) > 1:
        columns = ("catalogs", "namespaces", "names")
        split = zip(*((key.catalog, key.namespace, key.name) for key in heads), strict=True)
        await session.rows("lock_heads", dict(zip(columns, split, strict=True)))
    return [await _APPLY[type(change)](session, change) for change in changes]


async def _insert_head(session: Session, change: InsertHead) -> None:
    key, new = change.key, change.new
    if not await namespace_exists(session, key.catalog, key.namespace):
        raise rules.missing_namespace(change.printed_namespace)
    await _refuse_taken(session, change)
    if change.check_overlap:
        await _refuse_overlap(session, new.location, key, rules.twin(change))
    if change.registered and await session.row("purge_of", {"location": new.location}) is not None:
        raise rules.being_purged(change.printed)
    values = {**named(key), **rules.kept(new), **rules.logged(change.entry), "type": change.kind}
    (inserted,) = await session.row("insert_head", values)
    if not inserted:  # by another client, since we looked
        await _refuse_taken(session, change)
        raise rules.taken(change.kind, change.kind, change.printed)
    await _save_places(session, key, new.places)


async def _refuse_taken(session: Session, change: InsertHead) -> None:
    row = await session.row("find_type", named(change.key))
    if row is not None:
        raise rules.taken(change.kind, row[0], change.printed)


async def _refuse_overlap(session: Session, location: str, key: Key, table_uuid: str | None) -> None:
    for other in await overlapping(session.rows, location, rules.ancestors_of(location)):
        if other.key != key and not (other.location == location and other.table_uuid == table_uuid):
            raise rules.overlap(location)


async def _move_head(session: Session, change: MoveHead) -> None:
    (moved,) = await session.row("commit_head", commit_values([change]))
    if not moved:
        raise await why_not_moved(session, change)
    if change.check_overlap:
        await _refuse_overlap(session, change.new.location, change.key, change.new.table_uuid)
    if change.places_changed:
        await _save_places(session, change.key, change.new.places)


async def _delete_head(session: Session, change: DeleteHead) -> tuple[str, str | None, str | None]:
    """Where its metadata is, and its folder and uuid if known: what a purge needs."""
    key = change.key
    row = await session.row("delete_head", {**named(key), "type": change.kind})
    if row is None:
        raise rules.missing(change.kind, change.printed)
    if change.expected is not None and row[0] != change.expected:
        raise rules.moved(change.printed)
    saved = await _forget(session, key)
    uuid, location = (saved[0], saved[1]) if saved is not None else (None, None)
    await _log(session, change.entry, key, uuid or "", None, row[0])
    shadow_of = rules.shadow_of(await session.row("find_shadow", rules.in_catalog(key, uuid)))
    if shadow_of is not None:
        await session.run("forget_shadow", rules.in_catalog(key, uuid))
    if change.purge and row[0]:
        payload = rules.purge_payload(key, row[0], location, uuid, shadow_of)
        where = location if shadow_of is None else None  # files that stay are in nobody's way
        await session.run("add_job", {"kind": "purge", "payload": payload, "location": where})
    return row[0], location, uuid


async def _forget(session: Session, key: Key) -> Any:
    saved = await session.row("forget_head", named(key))
    await session.run("forget_table_properties", named(key))
    await session.run("forget_places", named(key))
    return saved


async def _rename_head(session: Session, change: RenameHead) -> None:
    key, to = change.key, change.to
    found = await session.row("find_type", named(key))
    if found is None or (found[0] or "TABLE") != change.kind:
        raise rules.missing(change.kind, change.printed)
    if not await namespace_exists(session, to.catalog, to.namespace):
        raise rules.missing_namespace(change.printed_to_namespace)
    taken = await session.row("find_type", named(to))
    if taken is not None:
        raise rules.rename_taken(change, taken[0])
    await _forget(session, to)  # what another client has dropped may still be remembered under this name
    values = {**named(key), "to_namespace": to.namespace, "to_name": to.name}
    try:
        moved = await session.row("rename_head", {**values, "type": change.kind})
    except Exception as error:
        if sqlstate_of(error) == UNIQUE_VIOLATION:  # by another client, since we looked
            raise rules.rename_taken(change, change.kind) from error
        raise
    if moved is None:  # dropped since we looked
        raise rules.missing(change.kind, change.printed)
    await session.run("mark_namespace", {"catalog": key.catalog, "namespace": key.namespace})
    saved = await session.row("rename_saved_head", values)
    await session.run("rename_table_properties", values)
    await session.run("rename_places", values)
    await _log(session, change.entry, to, saved[0] if saved else "", moved[0], moved[0])


async def _adopt_head(session: Session, change: AdoptHead) -> None:
    row = await session.row("lock_head", named(change.key))
    if row is None or row[0] != change.new.metadata_location:
        return  # moved again: whoever reads next adopts that one
    stored = await session.row("find_stored", named(change.key))
    await session.run("save_head", {**named(change.key), **rules.kept(change.new)})
    await _save_places(session, change.key, change.new.places)
    if stored is None or stored[0] != change.new.metadata_location:  # else only the bytes were missing
        await _log(session, change.entry, change.key, change.new.table_uuid, change.new.metadata_location, None)


async def _save_places(session: Session, key: Key, places: Sequence[str]) -> None:
    await session.run("forget_places", named(key))
    if places:
        await session.run("save_places", {**named(key), "places": list(places)})


async def _log(
    session: Session, entry: CommitEntry, key: Key, uuid: str, new: str | None, previous: str | None
) -> None:
    values = {**named(key), **rules.logged(entry), "uuid": uuid, "new": new, "previous": previous}
    await session.run("log_commit", values)


# Namespaces


async def namespace_exists(session: Session, catalog: str, namespace: str) -> bool:
    row = await session.row("namespace_exists", {"catalog": catalog, "namespace": namespace})
    return bool(row[0])


async def _create_namespace(session: Session, change: CreateNamespace) -> None:
    if await namespace_exists(session, change.catalog, change.namespace):
        raise rules.taken_namespace(change.printed)
    for namespace in (*change.ancestors, change.namespace):
        await session.run("mark_namespace", {"catalog": change.catalog, "namespace": namespace})
    await _save_properties(session, change.catalog, change.namespace, change.properties)


async def _save_properties(session: Session, catalog: str, namespace: str, properties: Mapping[str, str]) -> None:
    if properties:
        where = {"catalog": catalog, "namespace": namespace}
        columns = {"keys": list(properties), "property_values": list(properties.values())}
        await session.run("save_namespace_properties", {**where, **columns})


async def _drop_namespace(session: Session, change: DropNamespace) -> None:
    where = {"catalog": change.catalog, "namespace": change.namespace}
    if not await namespace_exists(session, change.catalog, change.namespace):
        raise rules.missing_namespace(change.printed)
    held = await session.row("first_entry", where)
    if held is not None:
        raise rules.holds_entries(change.printed, held[0], held[1])
    children, _ = await list_namespaces(session.rows, change.catalog, change.namespace, "", MAX_COUNTED_CHILDREN)
    if children:
        raise rules.holds_children(change.printed, len(children))
    await session.run("drop_namespace", where)


async def _update_namespace(session: Session, change: UpdateNamespace) -> None:
    where = {"catalog": change.catalog, "namespace": change.namespace}
    if not await namespace_exists(session, change.catalog, change.namespace):
        raise rules.missing_namespace(change.printed)
    if change.removals:
        present = {row[0] for row in await session.rows("namespace_properties", where)}
        rules.refuse_other_removals(change, present)
    await session.run("mark_namespace", where)
    for key in change.removals:
        await session.run("remove_namespace_property", {**where, "key": key})
    await _save_properties(session, change.catalog, change.namespace, change.updates)


# Answers, jobs, reports


async def _save_answer(session: Session, change: SaveAnswer) -> None:
    if not await session.run("save_answer", rules.answered(change)):
        raise rules.key_taken()


async def _add_job(session: Session, change: AddJob) -> None:
    await session.run("add_job", {"kind": change.kind, "payload": change.payload, "location": None})


async def _lease_job(session: Session, change: LeaseJob) -> Job | None:
    row = await session.row("lease_job", rules.leased(change))
    return None if row is None else Job(row[0], row[1], row[2], row[3])


async def _extend_lease(session: Session, change: ExtendLease) -> bool:
    values = {"job_id": change.job_id, "owner": change.owner, "until_ms": change.until_ms}
    return await session.run("extend_lease", values) == 1


async def _finish_job(session: Session, change: FinishJob) -> None:
    await session.run("finish_job", {"job_id": change.job_id, "owner": change.owner})


async def _postpone_job(session: Session, change: PostponeJob) -> None:
    await session.run("postpone_job", rules.postponed(change))


async def _save_report(session: Session, change: SaveReport) -> None:
    values = {**named(change.key), "received_ms": change.received_ms, "report": change.report}
    await session.run("add_report", values)
    await session.run("trim_reports", {"keep": rules.kept_reports(change.report)})


async def _save_secret(session: Session, change: SaveSecret) -> None:
    await session.run("save_secret", {"name": change.name, "value": change.value})


async def _write(session: Session, change: Write) -> int:
    return rules.written(change, await session.run(change.statement, change.values))


async def _forget_answers(session: Session, change: ForgetAnswers) -> None:
    await session.run("forget_answers", {"now_ms": change.now_ms})


async def _forget_stale_head(session: Session, change: ForgetHead) -> None:
    if await session.run("forget_stale_head", named(change.key)):
        await session.run("forget_places", named(change.key))


_APPLY: dict[type, Callable[[Session, Any], Awaitable[object]]] = {
    InsertHead: _insert_head,
    MoveHead: _move_head,
    DeleteHead: _delete_head,
    RenameHead: _rename_head,
    AdoptHead: _adopt_head,
    CreateNamespace: _create_namespace,
    DropNamespace: _drop_namespace,
    UpdateNamespace: _update_namespace,
    SaveAnswer: _save_answer,
    AddJob: _add_job,
    LeaseJob: _lease_job,
    ExtendLease: _extend_lease,
    FinishJob: _finish_job,
    PostponeJob: _postpone_job,
    SaveReport: _save_report,
    SaveSecret: _save_secret,
    ForgetAnswers: _forget_answers,
    ForgetHead: _forget_stale_head,
    Write: _write,
}


# Questions that a change and a request ask alike

RowsOf = Callable[[str, Mapping[str, object]], Awaitable[list[Any]]]


async def overlapping(rows_of: RowsOf, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
    found = await rows_of("heads_overlapping", {"location": location, "around": [location, *ancestors]})
    return [Neighbour(Key(row[0], row[1], row[2]), row[3], row[4]) for row in found]


async def list_namespaces(
    rows_of: RowsOf, catalog: str, parent: str, after: str, limit: int
) -> tuple[list[str], str | None]:
    prefix, position, before = rules.children_between(parent, after)
    values = {"catalog": catalog, "prefix": prefix, "after": position, "before": before, "limit": limit}
    rows = await rows_of("list_children", {**values, "behind_all": rules.BEHIND_ALL})
    return [row[0] for row in rows[:limit]], rows[limit - 1][1] if len(rows) > limit else None
