"""Each kind of change as SQL on one SQLite connection; called inside a transaction."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from nunatak.database import rules
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
    Kind,
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

BUSY_MS = 10_000  # another client of the same file may hold the write lock this long before a commit is refused

RowOf = Callable[[str, Mapping[str, object]], tuple[Any, ...] | None]
RowsOf = Callable[[str, Mapping[str, object]], list[tuple[Any, ...]]]


class Writer:
    """Applies changes on the writing connection; a list of changes happens whole or not at all."""

    def __init__(self, connection: apsw.Connection, statements: Mapping[str, str]) -> None:
        self._execute = connection.execute
        self._connection = connection
        self._statements = statements
        self._execute(statements["commit_door_view"])
        self._execute(statements["commit_door_trigger"])
        self._commit_head = statements["commit_head"]
        self._apply: dict[type, Callable[[Any], object]] = {
            InsertHead: self._insert_head,
            MoveHead: self._move_head,
            DeleteHead: self._delete_head,
            RenameHead: self._rename_head,
            AdoptHead: self._adopt_head,
            CreateNamespace: self._create_namespace,
            DropNamespace: self._drop_namespace,
            UpdateNamespace: self._update_namespace,
            SaveAnswer: self._save_answer,
            AddJob: self._add_job,
            LeaseJob: self._lease_job,
            ExtendLease: self._extend_lease,
            FinishJob: self._finish_job,
            PostponeJob: self._postpone_job,
            SaveReport: self._save_report,
            SaveSecret: self._save_secret,
            ForgetAnswers: self._forget_answers,
            ForgetHead: self._forget_stale_head,
            Write: self._write,
        }

    def begin_at_once(self) -> None:
        """Raises BusyError if another client holds the write lock."""
        self._connection.set_busy_timeout(0)
        self._execute("BEGIN IMMEDIATE")

    def begin_patiently(self) -> None:
        self._connection.set_busy_timeout(BUSY_MS)
        self._execute("BEGIN IMMEDIATE")

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        self._connection.close()

    def commit(self) -> None:
        self._execute("COMMIT")

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._execute("ROLLBACK")

    def apply_all(self, changes: Sequence[Change]) -> list[object]:
        only = changes[0] if len(changes) == 1 else None
        if isinstance(only, MoveHead) and not only.check_overlap and not only.places_changed:
            self._move_head(only)  # one statement, undone by itself if it is refused
            return [None]
        self._execute("SAVEPOINT change")
        try:
            results = [self._apply[type(change)](change) for change in changes]
        except BaseException:
            self._execute("ROLLBACK TO change")
            self._execute("RELEASE change")
            raise
        self._execute("RELEASE change")
        return results

    def _run(self, name: str, values: Mapping[str, object]) -> int:
        """Run a statement for its effect; returns how many rows it changed."""
        self._execute(self._statements[name], values)
        return self._connection.changes()

    def _row(self, name: str, values: Mapping[str, object]) -> tuple[Any, ...] | None:
        rows = self._execute(self._statements[name], values).fetchall()
        return rows[0] if rows else None

    def _rows(self, name: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        return self._execute(self._statements[name], values).fetchall()

    # Tables and views

    def _insert_head(self, change: InsertHead) -> None:
        key = change.key
        if not self._namespace_exists(key.catalog, key.namespace):
            raise rules.missing_namespace(change.printed_namespace)
        self._refuse_taken(key, change.kind, change.printed)
        if change.check_overlap:
            self._refuse_overlap(change.new.location, key, rules.twin(change))
        if change.registered and self._row("purge_of", {"location": change.new.location}) is not None:
            raise rules.being_purged(change.printed)
        self._run("insert_head", {**named(key), "new": change.new.metadata_location, "type": change.kind})
        # The namespace may exist only because of a table that is dropped later.
        self._run("mark_namespace", {"catalog": key.catalog, "namespace": key.namespace})
        self._save_head(key, change.new)
        self._log(change.entry, key, change.new.table_uuid, change.new.metadata_location, None)

    def _move_head(self, change: MoveHead) -> None:
        key, new, entry = change.key, change.new, change.entry
        try:
            self._execute(
                self._commit_head,
                (
                    key.catalog,
                    key.namespace,
                    key.name,
                    change.expected,
                    new.metadata_location,
                    new.table_uuid,
                    new.location,
                    new.content,
                    entry.commit_id,
                    entry.operation,
                    entry.snapshot_id,
                    entry.request_hash,
                    entry.principal,
                    entry.request_id,
                    entry.committed_ms,
                    entry.origin,
                ),
            )
        except apsw.ConstraintError as error:
            if self._row("find_type", named(key)) is None:
                raise rules.missing(change.kind, change.printed) from error
            shadow = self._row("find_shadow", rules.in_catalog(key, new.table_uuid))
            if shadow is not None and rules.is_closed(shadow):
                raise rules.shadowed(change.printed, shadow[0]) from error
            raise rules.moved(change.printed) from error
        if change.check_overlap:
            self._refuse_overlap(new.location, key, new.table_uuid)
        if change.places_changed:
            self._save_places(key, new.places)

    def _delete_head(self, change: DeleteHead) -> tuple[str, str | None, str | None]:
        """Where its metadata is, and its folder and uuid if known: what a purge needs."""
        key = change.key
        row = self._row("delete_head", {**named(key), "type": change.kind})
        if row is None:
            raise rules.missing(change.kind, change.printed)
        if change.expected is not None and row[0] != change.expected:
            raise rules.moved(change.printed)
        saved = self._row("forget_head", named(key))
        self._run("forget_table_properties", named(key))
        self._run("forget_places", named(key))
        uuid, location = (saved[0], saved[1]) if saved is not None else (None, None)
        self._log(change.entry, key, uuid or "", None, row[0])
        shadow_of = rules.shadow_of(self._row("find_shadow", rules.in_catalog(key, uuid)))
        if shadow_of is not None:
            self._run("forget_shadow", rules.in_catalog(key, uuid))
        if change.purge and row[0]:
            payload = rules.purge_payload(key, row[0], location, uuid, shadow_of)
            where = location if shadow_of is None else None  # files that stay are in nobody's way
            self._run("add_job", {"kind": "purge", "payload": payload, "location": where})
        return row[0], location, uuid

    def _rename_head(self, change: RenameHead) -> None:
        key, to = change.key, change.to
        found = self._row("find_type", named(key))
        if found is None or (found[0] or "TABLE") != change.kind:
            raise rules.missing(change.kind, change.printed)
        if not self._namespace_exists(to.catalog, to.namespace):
            raise rules.missing_namespace(change.printed_to_namespace)
        taken = self._row("find_type", named(to))
        if taken is not None:
            raise rules.rename_taken(change, taken[0])
        values = {**named(key), "to_namespace": to.namespace, "to_name": to.name}
        moved = self._row("rename_head", {**values, "type": change.kind})
        assert moved is not None
        self._run("mark_namespace", {"catalog": key.catalog, "namespace": key.namespace})
        self._row("forget_head", named(to))  # left by a table that another client dropped
        self._run("forget_places", named(to))
        saved = self._row("rename_saved_head", values)
        self._run("rename_table_properties", values)
        self._run("rename_places", values)
        self._log(change.entry, to, saved[0] if saved else "", moved[0], moved[0])

    def _adopt_head(self, change: AdoptHead) -> None:
        row = self._row("find_head", {**named(change.key), "known": change.new.metadata_location})
        if row is None or row[0] != change.new.metadata_location:
            return  # moved again: whoever reads next adopts that one
        stored = self._row("find_stored", named(change.key))
        self._save_head(change.key, change.new)
        if stored is None or stored[0] != change.new.metadata_location:  # else only the bytes were missing
            self._log(change.entry, change.key, change.new.table_uuid, change.new.metadata_location, None)

    def _save_head(self, key: Key, new: Stored) -> None:
        self._run("save_head", {**named(key), **rules.kept(new)})
        self._save_places(key, new.places)

    def _save_places(self, key: Key, places: Sequence[str]) -> None:
        self._run("forget_places", named(key))
        for place in places:
            self._run("save_place", {**named(key), "place": place})

    def _log(self, entry: CommitEntry, key: Key, uuid: str, new: str | None, previous: str | None) -> None:
        values = {**named(key), **rules.logged(entry), "uuid": uuid, "new": new, "previous": previous}
        self._run("log_commit", values)

    def _refuse_taken(self, key: Key, kind: Kind, printed: str) -> None:
        row = self._row("find_type", named(key))
        if row is not None:
            raise rules.taken(kind, row[0], printed)

    def _refuse_overlap(self, location: str, key: Key, table_uuid: str | None) -> None:
        for other in overlapping(self._rows, location, rules.ancestors_of(location)):
            if other.key != key and not (other.location == location and other.table_uuid == table_uuid):
                raise rules.overlap(location)

    # Namespaces

    def _namespace_exists(self, catalog: str, namespace: str) -> bool:
        row = self._row("namespace_exists", {"catalog": catalog, "namespace": namespace})
        return row is not None and bool(row[0])

    def _create_namespace(self, change: CreateNamespace) -> None:
        if self._namespace_exists(change.catalog, change.namespace):
            raise rules.taken_namespace(change.printed)
        for namespace in (*change.ancestors, change.namespace):
            self._run("mark_namespace", {"catalog": change.catalog, "namespace": namespace})
        self._save_properties(change.catalog, change.namespace, change.properties)

    def _save_properties(self, catalog: str, namespace: str, properties: Mapping[str, str]) -> None:
        for key, value in properties.items():
            values = {"catalog": catalog, "namespace": namespace, "key": key, "value": value}
            self._run("save_namespace_property", values)

    def _drop_namespace(self, change: DropNamespace) -> None:
        where = {"catalog": change.catalog, "namespace": change.namespace}
        if not self._namespace_exists(change.catalog, change.namespace):
            raise rules.missing_namespace(change.printed)
        held = self._row("first_entry", where)
        if held is not None:
            raise rules.holds_entries(change.printed, held[0], held[1])
        children, _ = list_namespaces(self._row, change.catalog, change.namespace, "", 1000)
        if children:
            raise rules.holds_children(change.printed, len(children))
        self._run("drop_namespace", where)

    def _update_namespace(self, change: UpdateNamespace) -> None:
        if not self._namespace_exists(change.catalog, change.namespace):
            raise rules.missing_namespace(change.printed)
        if change.removals:
            where = {"catalog": change.catalog, "namespace": change.namespace}
            rules.refuse_other_removals(change, {row[0] for row in self._rows("namespace_properties", where)})
        self._run("mark_namespace", {"catalog": change.catalog, "namespace": change.namespace})
        for key in change.removals:
            values = {"catalog": change.catalog, "namespace": change.namespace, "key": key}
            self._run("remove_namespace_property", values)
        self._save_properties(change.catalog, change.namespace, change.updates)

    # Answers, jobs, reports

    def _save_answer(self, change: SaveAnswer) -> None:
        if not self._run("save_answer", rules.answered(change)):
            raise rules.key_taken()

    def _add_job(self, change: AddJob) -> None:
        self._run("add_job", {"kind": change.kind, "payload": change.payload, "location": None})

    def _lease_job(self, change: LeaseJob) -> Job | None:
        row = self._row("lease_job", rules.leased(change))
        return None if row is None else Job(row[0], row[1], row[2], row[3])

    def _extend_lease(self, change: ExtendLease) -> bool:
        values = {"job_id": change.job_id, "owner": change.owner, "until_ms": change.until_ms}
        return self._run("extend_lease", values) == 1

    def _finish_job(self, change: FinishJob) -> None:
        self._run("finish_job", {"job_id": change.job_id, "owner": change.owner})

    def _postpone_job(self, change: PostponeJob) -> None:
        self._run("postpone_job", rules.postponed(change))

    def _save_report(self, change: SaveReport) -> None:
        values = {**named(change.key), "received_ms": change.received_ms, "report": change.report}
        self._run("add_report", values)
        self._run("trim_reports", {"keep": rules.kept_reports(change.report)})

    def _save_secret(self, change: SaveSecret) -> None:
        self._run("save_secret", {"name": change.name, "value": change.value})

    def _write(self, change: Write) -> int:
        return rules.written(change, self._run(change.statement, change.values))

    def _forget_answers(self, change: ForgetAnswers) -> None:
        self._run("forget_answers", {"now_ms": change.now_ms})

    def _forget_stale_head(self, change: ForgetHead) -> None:
        if self._run("forget_stale_head", named(change.key)):
            self._run("forget_places", named(change.key))


def overlapping(rows_of: RowsOf, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
    found = list(rows_of("heads_inside", {"location": location}))
    for ancestor in ancestors:
        found.extend(rows_of("head_at", {"location": ancestor}))
    return [Neighbour(Key(row[0], row[1], row[2]), row[3], row[4]) for row in found]


def list_namespaces(row_of: RowOf, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
    """Direct children by skipping from one to the next, so the cost is that of the page, not of what lies below."""
    prefix, position, before = rules.children_between(parent, after)
    children: list[str] = []
    while True:
        row = row_of("next_namespace", {"catalog": catalog, "after": position, "before": before})
        if row is None or row[0] is None:
            return children, None
        found: str = row[0]
        child = prefix + found[len(prefix) :].partition(".")[0]
        # Something below a child that stands by itself was listed with it; other descendants are all it is known by.
        stands = child != found and row_of("namespace_stands", {"catalog": catalog, "namespace": child})
        if not stands or not stands[0]:
            if len(children) == limit:
                return children, position
            children.append(child)
        position = found if child == found else f"{child}.{rules.BEHIND_ALL}"
