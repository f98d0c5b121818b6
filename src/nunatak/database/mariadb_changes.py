"""Each kind of change as statements in one MariaDB transaction; the locks that keep two of them apart."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nunatak.database import rules
from nunatak.database.mariadb_connections import DUPLICATE, Session, Step, number_of
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
    Stored,
    UpdateNamespace,
    Write,
)
from nunatak.database.rules import named

MAX_COUNTED_CHILDREN = 1000  # beyond this nobody wants to know how many
LONGEST_STEP = 1000  # namespaces read at once while children are looked for
STATEMENT_BYTES = 64 * 1024  # of a statement that saves bytes, without these

BEGIN: Step = ("begin_transaction", {})
COMMIT: Step = ("commit_transaction", {})


# What is locked


def locks_for(changes: Sequence[Change]) -> list[str]:
    """Locks for what no constraint can check: whether a namespace is there and empty, whether two folders touch.

    A plain commit takes none. Warehouses may be allowed the same folder, so locations share one lock.
    """
    wanted: set[str] = set()
    for change in changes:
        match change:
            case InsertHead():
                wanted |= {f"warehouse {change.key.catalog}", "locations"}
            case RenameHead():
                wanted.add(f"warehouse {change.to.catalog}")
            case CreateNamespace() | DropNamespace() | UpdateNamespace():
                wanted.add(f"warehouse {change.catalog}")
            # The purge must not begin between the look at and the arrival of a table registered over the same files.
            case MoveHead(check_overlap=True) | DeleteHead(purge=True):
                wanted.add("locations")
            case _:
                pass
    return sorted(wanted)


def begin(session: Session, changes: Sequence[Change]) -> None:
    """The transaction and its locks in one round trip, in one order, so that two changes never wait for each other."""
    heads = [change.key for change in changes if isinstance(change, MoveHead | DeleteHead | RenameHead)]
    heads.sort(key=lambda key: (key.catalog, key.namespace, key.name))
    locks: list[Step] = [("take_lock", {"lock": name}) for name in locks_for(changes)]
    pointers: list[Step] = [("lock_head", named(key)) for key in heads] if len(heads) > 1 else []
    session.batch([BEGIN, *locks, *pointers])


# A commit, whole in one round trip


def is_plain_commit(changes: Sequence[Change]) -> bool:
    """One pointer moved, and of the rest only what rides along with it."""
    kinds = [type(change) for change in changes]
    return (
        kinds.count(MoveHead) == 1
        and kinds.count(SaveAnswer) <= 1
        and all(kind in (MoveHead, SaveAnswer, AddJob) for kind in kinds)
        and not any(isinstance(each, MoveHead) and (each.check_overlap or each.places_changed) for each in changes)
    )


def commit(session: Session, changes: Sequence[Change]) -> bool:
    """A plain commit; whether the pointer moved. If it did not, nothing happened."""
    steps: list[Step] = []
    for change in changes:
        match change:
            case MoveHead():
                steps = [*_move_steps(session, change), *steps]
            case AddJob():
                steps.append(("queue_moved", {"kind": change.kind, "payload": change.payload}))
            case SaveAnswer():
                steps.append(("answer_moved", rules.answered(change)))
            case _:
                raise AssertionError(f"{change} is not part of a plain commit")
    results = session.batch([BEGIN, *steps, ("tell_moved", {}), COMMIT])
    return bool(results[-2].rows[0][0])


def _move_steps(session: Session, change: MoveHead) -> list[Step]:
    values = {**named(change.key), **_kept(session, change.new), **rules.logged(change.entry)}
    values["expected"] = change.expected
    return [("move_head", values), ("remember_moved", {}), ("save_moved_head", values), ("log_moved", values)]


def _kept(session: Session, new: Stored) -> dict[str, object]:
    """Bytes, which are sent as hex, are not kept beside the pointer if they are too many: the file has them."""
    values = rules.kept(new)
    if new.content is not None and 2 * len(new.content) + STATEMENT_BYTES > session.packet_bytes:
        values["content"] = None
    return values


def why_not_moved(session: Session, change: MoveHead) -> Exception:
    if session.row("find_type", named(change.key)) is None:
        return rules.missing(change.kind, change.printed)
    shadow = session.row("find_shadow", rules.in_catalog(change.key, change.new.table_uuid))
    if rules.is_closed(shadow):
        return rules.shadowed(change.printed, shadow[0])
    return rules.moved(change.printed)


# Everything else, change by change


def apply_all(session: Session, changes: Sequence[Change]) -> list[object]:
    """Inside the transaction of `begin`; raises to have it rolled back."""
    return [_APPLY[type(change)](session, change) for change in changes]


def _insert_head(session: Session, change: InsertHead) -> None:
    key, new = change.key, change.new
    if not namespace_exists(session, key.catalog, key.namespace):
        raise rules.missing_namespace(change.printed_namespace)
    _refuse_taken(session, change)
    if change.check_overlap:
        _refuse_overlap(session, new.location, key, rules.twin(change))
    if change.registered and session.row("purge_of", {"location": new.location}) is not None:
        raise rules.being_purged(change.printed)
    values = {**named(key), **_kept(session, new), "type": change.kind}
    try:
        session.batch([("clear_empty_head", values), ("insert_head", values)])
    except Exception as error:
        if number_of(error) == DUPLICATE:  # by another client, since we looked
            _refuse_taken(session, change)
            raise rules.taken(change.kind, change.kind, change.printed) from error
        raise
    marked = {"catalog": key.catalog, "namespace": key.namespace}  # it may exist only because of what is dropped later
    logged = _log(change.entry, key, new.table_uuid, new.metadata_location, None)
    session.batch([("mark_namespace", marked), ("save_head", values), *_save_places(key, new.places), logged])


def _refuse_taken(session: Session, change: InsertHead) -> None:
    row = session.row("find_type", named(change.key))
    if row is not None:
        raise rules.taken(change.kind, row[0], change.printed)


def _refuse_overlap(session: Session, location: str, key: Key, table_uuid: str | None) -> None:
    for other in overlapping(session, location, rules.ancestors_of(location)):
        if other.key != key and not (other.location == location and other.table_uuid == table_uuid):
            raise rules.overlap(location)


def _move_head(session: Session, change: MoveHead) -> None:
    results = session.batch([*_move_steps(session, change), ("tell_moved", {})])
    if not results[-1].rows[0][0]:
        raise why_not_moved(session, change)
    if change.check_overlap:
        _refuse_overlap(session, change.new.location, change.key, change.new.table_uuid)
    if change.places_changed:
        session.batch(_save_places(change.key, change.new.places))


def _delete_head(session: Session, change: DeleteHead) -> tuple[str, str | None, str | None]:
    """Where its metadata is, and its folder and uuid if known: what a purge needs."""
    key = change.key
    found, saved = session.batch([("lock_head", named(key)), ("saved_head", named(key))])
    if not found.rows or found.rows[0][1] != change.kind:
        raise rules.missing(change.kind, change.printed)
    pointer = found.rows[0][0]
    if change.expected is not None and pointer != change.expected:
        raise rules.moved(change.printed)
    uuid, location = saved.rows[0] if saved.rows else (None, None)
    shadow_of = rules.shadow_of(session.row("find_shadow", rules.in_catalog(key, uuid)))
    steps = [("delete_head", named(key)), *_forget(key), _log(change.entry, key, uuid or "", None, pointer)]
    if shadow_of is not None:
        steps.append(("forget_shadow", rules.in_catalog(key, uuid)))
    if change.purge and pointer:
        payload = rules.purge_payload(key, pointer, location, uuid, shadow_of)
        where = location if shadow_of is None else None  # files that stay are in nobody's way
        steps.append(("add_job", {"kind": "purge", "payload": payload, "location": where}))
    session.batch(steps)
    return pointer, location, uuid


def _forget(key: Key) -> list[Step]:
    return [("forget_head", named(key)), ("forget_places", named(key))]


def _rename_head(session: Session, change: RenameHead) -> None:
    key, to = change.key, change.to
    found, saved = session.batch([("lock_head", named(key)), ("saved_head", named(key))])
    if not found.rows or found.rows[0][0] is None or found.rows[0][1] != change.kind:
        raise rules.missing(change.kind, change.printed)
    if not namespace_exists(session, to.catalog, to.namespace):
        raise rules.missing_namespace(change.printed_to_namespace)
    taken = session.row("find_type", named(to))
    if taken is not None:
        raise rules.rename_taken(change, taken[0])
    values = {**named(key), "to_namespace": to.namespace, "to_name": to.name}
    try:
        session.batch([("rename_head", values)])
    except Exception as error:
        if number_of(error) == DUPLICATE:  # by another client, since we looked
            raise rules.rename_taken(change, change.kind) from error
        raise
    pointer, uuid = found.rows[0][0], saved.rows[0][0] if saved.rows else ""
    session.batch(
        [
            *_forget(to),  # what another client has dropped may still be remembered under this name
            ("mark_namespace", {"catalog": key.catalog, "namespace": key.namespace}),
            ("rename_saved_head", values),
            ("rename_places", values),
            _log(change.entry, to, uuid, pointer, pointer),
        ]
    )


def _adopt_head(session: Session, change: AdoptHead) -> None:
    row = session.row("lock_head", named(change.key))
    if row is None or row[0] != change.new.metadata_location:
        return  # moved again: whoever reads next adopts that one
    stored = session.row("find_stored", named(change.key))
    steps: list[Step] = [("save_head", {**named(change.key), **_kept(session, change.new)})]
    steps += _save_places(change.key, change.new.places)
    if stored is None or stored[0] != change.new.metadata_location:  # else only the bytes were missing
        steps.append(_log(change.entry, change.key, change.new.table_uuid, change.new.metadata_location, None))
    session.batch(steps)


def _save_places(key: Key, places: Sequence[str]) -> list[Step]:
    saved: list[Step] = [("save_place", {**named(key), "place": place}) for place in dict.fromkeys(places)]
    return [("forget_places", named(key)), *saved]


def _log(entry: CommitEntry, key: Key, uuid: str, new: str | None, previous: str | None) -> Step:
    values = {**named(key), **rules.logged(entry), "uuid": uuid, "new": new, "previous": previous}
    return ("log_commit", values)


# Namespaces


def namespace_exists(session: Session, catalog: str, namespace: str) -> bool:
    return bool(session.row("namespace_exists", {"catalog": catalog, "namespace": namespace})[0])


def _create_namespace(session: Session, change: CreateNamespace) -> None:
    if namespace_exists(session, change.catalog, change.namespace):
        raise rules.taken_namespace(change.printed)
    levels = (*change.ancestors, change.namespace)
    marks: list[Step] = [("mark_namespace", {"catalog": change.catalog, "namespace": level}) for level in levels]
    session.batch([*marks, *_save_properties(change.catalog, change.namespace, change.properties)])


def _save_properties(catalog: str, namespace: str, properties: Mapping[str, str]) -> list[Step]:
    where = {"catalog": catalog, "namespace": namespace}
    return [("save_namespace_property", {**where, "key": key, "value": value}) for key, value in properties.items()]


def _drop_namespace(session: Session, change: DropNamespace) -> None:
    where = {"catalog": change.catalog, "namespace": change.namespace}
    if not namespace_exists(session, change.catalog, change.namespace):
        raise rules.missing_namespace(change.printed)
    held = session.row("first_entry", where)
    if held is not None:
        raise rules.holds_entries(change.printed, held[0], held[1])
    children, _ = list_namespaces(session, change.catalog, change.namespace, "", MAX_COUNTED_CHILDREN)
    if children:
        raise rules.holds_children(change.printed, len(children))
    session.batch([("drop_namespace", where)])


def _update_namespace(session: Session, change: UpdateNamespace) -> None:
    where = {"catalog": change.catalog, "namespace": change.namespace}
    if not namespace_exists(session, change.catalog, change.namespace):
        raise rules.missing_namespace(change.printed)
    if change.removals:
        (present,) = session.batch([("namespace_properties", where)])
        rules.refuse_other_removals(change, {row[0] for row in present.rows})
    removed: list[Step] = [("remove_namespace_property", {**where, "key": key}) for key in change.removals]
    saved = _save_properties(change.catalog, change.namespace, change.updates)
    session.batch([("mark_namespace", where), *removed, *saved])


# Answers, jobs, reports


def _save_answer(session: Session, change: SaveAnswer) -> None:
    session.batch([("save_answer", rules.answered(change))])


def _add_job(session: Session, change: AddJob) -> None:
    session.batch([("add_job", {"kind": change.kind, "payload": change.payload, "location": None})])


def _lease_job(session: Session, change: LeaseJob) -> Job | None:
    row = session.row("due_job", rules.leased(change))
    if row is None:
        return None
    session.batch([("lease_job", {**rules.leased(change), "job_id": row[0]})])
    return Job(row[0], row[1], row[2], row[3])


def _extend_lease(session: Session, change: ExtendLease) -> bool:
    values = {"job_id": change.job_id, "owner": change.owner, "until_ms": change.until_ms}
    return session.batch([("extend_lease", values)])[0].matched == 1


def _finish_job(session: Session, change: FinishJob) -> None:
    session.batch([("finish_job", {"job_id": change.job_id, "owner": change.owner})])


def _postpone_job(session: Session, change: PostponeJob) -> None:
    session.batch([("postpone_job", rules.postponed(change))])


def _save_report(session: Session, change: SaveReport) -> None:
    values = {**named(change.key), "received_ms": change.received_ms, "report": change.report}
    session.batch([("add_report", values), ("trim_reports", {"keep": rules.kept_reports(change.report)})])


def _save_secret(session: Session, change: SaveSecret) -> None:
    session.batch([("save_secret", {"name": change.name, "value": change.value})])


def _write(session: Session, change: Write) -> int:
    return rules.written(change, session.batch([(change.statement, change.values)])[0].matched)


def _forget_answers(session: Session, change: ForgetAnswers) -> None:
    session.batch([("forget_answers", {"now_ms": change.now_ms}), ("forget_outcomes", {})])


def _forget_stale_head(session: Session, change: ForgetHead) -> None:
    if session.batch([("forget_stale_head", named(change.key))])[0].matched:
        session.batch([("forget_places", named(change.key))])


_APPLY: dict[type, Callable[[Session, Any], object]] = {
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


def overlapping(session: Session, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
    found = session.rows("heads_overlapping", {"location": location, "around": [location, *ancestors]})
    return [Neighbour(Key(row[0], row[1], row[2]), row[3], row[4]) for row in found]


def list_namespaces(
    session: Session, catalog: str, parent: str, after: str, limit: int
) -> tuple[list[str], str | None]:
    """Direct children: namespaces are read in order and what lies below one is skipped; the cost is that of the page.

    Something below a child that stands by itself was listed with it; other descendants are all it is known by.
    """
    prefix, start, before = rules.children_between(parent, after)
    step = min(limit + 1, LONGEST_STEP)
    position = last = start
    listed: dict[str, None] = {}
    while True:
        values = {"catalog": catalog, "after": position, "before": before, "limit": step}
        names = [row[0] for row in session.rows("next_namespaces", values)]
        for name in names:
            if name <= position:
                continue  # below a child that is done with
            child = prefix + name[len(prefix) :].partition(".")[0]
            position = name if child == name else f"{child}.{rules.BEHIND_ALL}"
            if child != name and _was_listed(session, catalog, child, start, listed):
                continue
            if len(listed) == limit:
                return list(listed), last
            listed[child] = None
            last = position
        if len(names) < step:
            return list(listed), None


def _was_listed(session: Session, catalog: str, child: str, start: str, listed: Mapping[str, None]) -> bool:
    """Whether a child of which a descendant was found stands by itself, and so came before, maybe on another page."""
    if child > start:
        return child in listed
    return bool(session.row("namespace_stands", {"catalog": catalog, "namespace": child})[0])
