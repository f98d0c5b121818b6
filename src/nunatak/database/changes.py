"""Every kind of change, written once and without I/O: a generator that yields batches of named statements.

A driver runs a batch, in one round trip if it can, and sends back a Result for each statement. A generator raises the
error with which its change is refused; the driver then rolls the transaction back.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from nunatak.database import bindings, refusals
from nunatak.database.bindings import key_values
from nunatak.database.records import (
    AddEvent,
    AddJob,
    AdoptPointer,
    CommitEntry,
    CreateNamespace,
    DeletePointer,
    DropNamespace,
    ForgetAnswers,
    ForgetPointer,
    InsertPointer,
    Key,
    MovePointer,
    Neighbour,
    RenamePointer,
    SaveAnswer,
    SaveReport,
    SaveSecret,
    UpdateNamespace,
    Write,
)
from nunatak.errors import CatalogError

MAX_COUNTED_CHILDREN = 1000  # bounds the cost of the count in the error of a namespace that is not empty

T = TypeVar("T")


class Result(NamedTuple):
    """The result of a statement: its rows and their number or, if it returns none, the number of rows it matched."""

    matched: int
    rows: Sequence[Any]


NO_RESULT = Result(0, ())

Step = tuple[str, Mapping[str, object]]  # the name of a statement in queries/*.sql, and its values
Steps = Generator[list[Step], Sequence[Result], T]
Children = Callable[[str, str, str, int], Steps[tuple[list[str], str | None]]]


class ConstraintViolation(Exception):
    """Thrown into a generator when its batch violates a unique key; the cause is the driver's error."""


def drive(steps: Steps[T], carry_out: Callable[[list[Step]], Sequence[Result]], violation: type[Exception]) -> T:
    """Runs a generator to its end with a blocking driver; `violation` is the driver's error for a unique key."""
    try:
        batch = next(steps)
        while True:
            try:
                results = carry_out(batch)
            except violation as error:
                batch = steps.throw(constraint_violation(error))
            else:
                batch = steps.send(results)
    except StopIteration as done:
        value: T = done.value
        return value
    except ConstraintViolation as unexpected:
        raise unexpected.__cause__ or unexpected from None


def constraint_violation(error: Exception) -> ConstraintViolation:
    violation = ConstraintViolation()
    violation.__cause__ = error  # generator.throw takes no `from`, and a generator may re-raise the driver's error
    return violation


# Tables and views


def insert_pointer(change: InsertPointer) -> Steps[None]:
    key, new = change.key, change.new
    exists, found = yield [("namespace_exists", bindings.namespace_of(key)), ("find_type", key_values(key))]
    if not exists.rows[0][0]:
        raise refusals.no_such_namespace(change.printed_namespace)
    _refuse_taken(change, found)
    if change.check_overlap:
        yield from _refuse_overlap(new.location, key, bindings.twin(change))
    if change.registered:
        # Registering a dropped table while its purge is queued would lose its files.
        (purge,) = yield [("purge_of", {"location": new.location})]
        if purge.rows:
            raise refusals.files_are_purged(change.printed)
    values = {
        **key_values(key),
        **bindings.stored_values(new),
        **bindings.log_values(change.entry),
        "type": change.kind,
        "previous": None,
        "securable": None,
    }
    insertion: list[Step] = [
        ("clear_empty_pointer", values),
        ("insert_pointer", values),
        ("mark_namespace", values),  # otherwise it could exist only through its tables and vanish with the last one
        ("save_pointer", values),
        ("log_commit", values),
        ("add_event", values),
    ]
    try:
        _, inserted, *_ = yield [*insertion, *_save_places(key, new.places)]
    except ConstraintViolation:
        inserted = NO_RESULT
    if not inserted.matched:  # a JDBC client, which does not take our locks, inserted the name first
        (found,) = yield [("find_type", key_values(key))]
        _refuse_taken(change, found)
        raise refusals.already_exists(change.kind, change.kind, change.printed)


def _refuse_taken(change: InsertPointer, found: Result) -> None:
    if found.rows:
        raise refusals.already_exists(change.kind, found.rows[0][0], change.printed)


def _refuse_overlap(location: str, key: Key, table_uuid: str | None) -> Steps[None]:
    (found,) = yield [("pointers_overlapping", overlap_values(location, bindings.ancestors_of(location)))]
    for other in neighbours(found.rows):
        if other.key != key and not (other.location == location and other.table_uuid == table_uuid):
            raise refusals.overlap(location)


def overlap_values(location: str, ancestors: Sequence[str]) -> dict[str, object]:
    return {"location": location, "around": json_list([location, *ancestors])}


def json_list(texts: Sequence[str]) -> str:
    """Returns several values as one JSON parameter, which every database can unpack."""
    return msgspec.json.encode(texts).decode()


def neighbours(rows: Sequence[Sequence[Any]]) -> list[Neighbour]:
    return [Neighbour(Key(row[0], row[1], row[2]), row[3], row[4]) for row in rows]


def move_pointer(change: MovePointer) -> Steps[None]:
    moved, *_ = yield commit_steps(bindings.commit_values([change]))
    if not moved.matched:
        raise (yield from why_not_moved(change))
    yield from after_move(change)


def commit_steps(values: Mapping[str, object]) -> list[Step]:
    """Returns the statements of a commit; if the compare-and-swap, the first, matches no row, the others do nothing."""
    return [
        ("commit_pointer", values),
        ("remember_moved", {}),
        ("save_moved_pointer", values),
        ("log_moved", values),
        ("add_moved_event", values),
    ]


def after_move(change: MovePointer) -> Steps[None]:
    """Checks the new location for overlaps and saves its places, in the transaction of `commit_pointer`."""
    if change.check_overlap:
        yield from _refuse_overlap(change.new.location, change.key, change.new.table_uuid)
    if change.places_changed:
        yield _save_places(change.key, change.new.places)


def why_not_moved(change: MovePointer) -> Steps[CatalogError]:
    shadow_key = bindings.in_catalog(change.key, change.new.table_uuid)
    found, shadow = yield [("find_type", key_values(change.key)), ("find_shadow", shadow_key)]
    if not found.rows:
        return refusals.no_such_entry(change.kind, change.printed)
    if shadow.rows and shadow.rows[0][1] == "shadow":
        return refusals.shadow_table(change.printed, shadow.rows[0][0])
    return refusals.pointer_moved(change.printed)


def delete_pointer(change: DeletePointer) -> Steps[tuple[str, str | None, str | None]]:
    """Returns the metadata location and, if known, the folder and the uuid of the table: what a purge needs."""
    key = change.key
    taken, saved = yield [
        ("take_pointer", {**key_values(key), "type": change.kind}),
        ("take_saved_pointer", key_values(key)),
    ]
    if not taken.rows:
        raise refusals.no_such_entry(change.kind, change.printed)
    pointer = taken.rows[0][0]
    if change.expected is not None and pointer != change.expected:
        raise refusals.pointer_moved(change.printed)
    uuid, location, shadow_of = saved.rows[0] if saved.rows else (None, None, None)
    steps: list[Step] = [
        ("delete_taken_pointer", key_values(key)),
        ("forget_taken_pointer", key_values(key)),
        ("forget_table_properties", key_values(key)),
        ("forget_places", key_values(key)),
        *_log(change.entry, key, uuid, None, pointer),
    ]
    if shadow_of is not None:
        steps.append(("forget_shadow", bindings.in_catalog(key, uuid)))
    if change.purge and pointer:
        payload = bindings.purge_payload(key, pointer, location, uuid, shadow_of)
        where = location if shadow_of is None else None  # a shadow's files are not deleted, so a register may use them
        steps.append(("add_job", bindings.job_values(kind="purge", payload=payload, location=where)))
    yield steps
    return pointer, location, uuid


def rename_pointer(change: RenamePointer) -> Steps[None]:
    key, to = change.key, change.to
    found, exists, taken = yield [
        ("find_type", key_values(key)),
        ("namespace_exists", bindings.namespace_of(to)),
        ("find_type", key_values(to)),
    ]
    if not found.rows or (found.rows[0][0] or "TABLE") != change.kind:
        raise refusals.no_such_entry(change.kind, change.printed)
    if not exists.rows[0][0]:
        raise refusals.no_such_namespace(change.printed_to_namespace)
    if taken.rows:
        raise refusals.rename_taken(change, taken.rows[0][0])
    values = {**key_values(key), "to_namespace": to.namespace, "to_name": to.name, "type": change.kind}
    try:
        (renamed,) = yield [("rename_pointer", values)]
    except ConstraintViolation as error:  # a JDBC client took the name after the check above
        raise refusals.rename_taken(change, change.kind) from error.__cause__
    if not renamed.matched:  # a JDBC client dropped the table after the check above
        raise refusals.no_such_entry(change.kind, change.printed)
    logged = {**key_values(to), **bindings.log_values(change.entry)}
    yield [
        ("forget_pointer", key_values(to)),  # rows of a table that a JDBC client dropped may still have this name
        ("forget_table_properties", key_values(to)),
        ("forget_places", key_values(to)),
        ("mark_namespace", bindings.namespace_of(key)),
        ("rename_saved_pointer", values),
        ("rename_table_properties", values),
        ("rename_places", values),
        ("log_rename", logged),
        ("add_rename_event", {**logged, "from_namespace": key.namespace, "from_name": key.name}),
    ]


def adopt_pointer(change: AdoptPointer) -> Steps[None]:
    key, new = change.key, change.new
    found, stored = yield [("lock_pointer", key_values(key)), ("find_stored", key_values(key))]
    if not found.rows or found.rows[0][0] != new.metadata_location:
        return  # moved again: the next read adopts the new pointer
    steps: list[Step] = [
        ("save_pointer", {**key_values(key), **bindings.stored_values(new)}),
        *_save_places(key, new.places),
    ]
    if not stored.rows or stored.rows[0][0] != new.metadata_location:  # otherwise only the bytes were missing
        (logged, values), (event, _) = _log(change.entry, key, new.table_uuid, new.metadata_location, None)
        # The other client may have committed several times: the log has no predecessor, the event the last one seen.
        seen = stored.rows[0][0] if stored.rows else None
        steps += [(logged, values), (event, {**values, "previous": seen})]
    yield steps


def forget_stale_pointer(change: ForgetPointer) -> Steps[None]:
    (forgotten,) = yield [("forget_stale_pointer", key_values(change.key))]
    if forgotten.matched:
        yield [("forget_places", key_values(change.key))]


def _save_places(key: Key, places: Sequence[str]) -> list[Step]:
    saved: list[Step] = [("save_place", {**key_values(key), "place": place}) for place in dict.fromkeys(places)]
    return [("forget_places", key_values(key)), *saved]


def _log(entry: CommitEntry, key: Key, uuid: str | None, new: str | None, previous: str | None) -> list[Step]:
    """Returns the row of the commit log and the event of a change."""
    values = {**key_values(key), **bindings.log_values(entry), "new": new, "previous": previous, "securable": None}
    return [("log_commit", {**values, "uuid": uuid or ""}), ("add_event", {**values, "uuid": uuid})]


# Namespaces


def create_namespace(change: CreateNamespace) -> Steps[None]:
    where = {"catalog": change.catalog, "namespace": change.namespace}
    (exists,) = yield [("namespace_exists", where)]
    if exists.rows[0][0]:
        raise refusals.namespace_already_exists(change.printed)
    levels = (*change.ancestors, change.namespace)
    marks: list[Step] = [("mark_namespace", {"catalog": change.catalog, "namespace": level}) for level in levels]
    yield [*marks, *_save_properties(where, change.properties)]


def _save_properties(where: Mapping[str, object], properties: Mapping[str, str]) -> list[Step]:
    return [("save_namespace_property", {**where, "key": key, "value": value}) for key, value in properties.items()]


def drop_namespace(children: Children, change: DropNamespace) -> Steps[None]:
    where = {"catalog": change.catalog, "namespace": change.namespace}
    exists, held = yield [("namespace_exists", where), ("first_entry", where)]
    if not exists.rows[0][0]:
        raise refusals.no_such_namespace(change.printed)
    if held.rows:
        raise refusals.holds_entries(change.printed, held.rows[0][0], held.rows[0][1])
    found, _ = yield from children(change.catalog, change.namespace, "", MAX_COUNTED_CHILDREN)
    if found:
        raise refusals.holds_children(change.printed, len(found))
    yield [("drop_namespace", where)]


def update_namespace(change: UpdateNamespace) -> Steps[None]:
    where = {"catalog": change.catalog, "namespace": change.namespace}
    # Only removals depend on the properties that are present.
    read: list[Step] = [("namespace_properties", where)] if change.removals else []
    exists, *present = yield [("namespace_exists", where), *read]
    if not exists.rows[0][0]:
        raise refusals.no_such_namespace(change.printed)
    if present:
        refusals.refuse_other_removals(change, {row[0] for row in present[0].rows})
    removed: list[Step] = [("remove_namespace_property", {**where, "key": key}) for key in change.removals]
    yield [("mark_namespace", where), *removed, *_save_properties(where, change.updates)]


# Answers, jobs, reports


def save_answer(change: SaveAnswer) -> Steps[None]:
    (saved,) = yield [("save_answer", bindings.answer_values(change))]
    if not saved.matched:
        raise refusals.key_taken()


def forget_answers(change: ForgetAnswers) -> Steps[None]:
    yield [("forget_answers", {"now_ms": change.now_ms}), ("forget_outcomes", {})]


def add_job(change: AddJob) -> Steps[None]:
    yield [("add_job", bindings.job_values(change.kind, change.payload, not_before_ms=change.not_before_ms))]


def save_report(change: SaveReport) -> Steps[None]:
    values = {**key_values(change.key), "received_ms": change.received_ms, "report": change.report}
    yield [("add_report", values), ("trim_reports", {"keep": bindings.count_kept_reports(change.report)})]


def save_secret(change: SaveSecret) -> Steps[None]:
    yield [("save_secret", {"name": change.name, "value": change.value})]


def add_event(change: AddEvent) -> Steps[None]:
    yield [("add_event", bindings.event_values(change))]


def write(change: Write) -> Steps[int]:
    steps: list[Step] = [(change.statement, change.values)]
    if change.statement == "add_audit":  # the audit row of a change, which is also an event
        steps.append(("add_event", bindings.audit_event_values(change.values)))
    try:
        written, *_ = yield steps
    except ConstraintViolation as error:
        if change.refusal is None:
            raise
        raise change.refusal from error.__cause__
    if not written.matched and change.refusal is not None:
        raise change.refusal
    return written.matched


StepsByChange = Mapping[type, Callable[[Any], Steps[object]]]


def steps_by_change(children: Children) -> StepsByChange:
    """Maps each kind of change to its generator; `children` lists child namespaces in the database's fastest way."""
    return {
        InsertPointer: insert_pointer,
        MovePointer: move_pointer,
        DeletePointer: delete_pointer,
        RenamePointer: rename_pointer,
        AdoptPointer: adopt_pointer,
        ForgetPointer: forget_stale_pointer,
        CreateNamespace: create_namespace,
        DropNamespace: partial(drop_namespace, children),
        UpdateNamespace: update_namespace,
        SaveAnswer: save_answer,
        ForgetAnswers: forget_answers,
        AddJob: add_job,
        SaveReport: save_report,
        SaveSecret: save_secret,
        Write: write,
        AddEvent: add_event,
    }
