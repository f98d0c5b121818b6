"""The writing connection of SQLite: runs the generators of `changes` inside a transaction."""

from collections.abc import Mapping, Sequence

import apsw

from nunatak.database.changes import (
    NO_RESULT,
    Result,
    Step,
    StepsByChange,
    after_move,
    drive,
    why_not_moved,
)
from nunatak.database.records import Change, MovePointer
from nunatak.database.statements import returns_rows

BUSY_MS = 10_000  # how long a commit waits for the write lock that another client of the file holds


class Writer:
    """Applies changes on the writing connection; a list of changes is applied atomically."""

    def __init__(self, connection: apsw.Connection, statements: Mapping[str, str], steps: StepsByChange) -> None:
        self._execute = connection.execute
        self._connection = connection
        self._statements = statements
        self._reading = frozenset(name for name, sql in statements.items() if returns_rows(sql))
        self._execute(statements["commit_door_view"])
        self._execute(statements["commit_door_trigger"])
        self._commit_pointer = statements["commit_pointer"]
        self._steps = steps

    def begin_at_once(self) -> None:
        """Begins a transaction; raises BusyError if another client holds the write lock."""
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
        if isinstance(only, MovePointer) and not only.check_overlap and not only.places_changed:
            self._move_pointer(only)  # a single statement is atomic: no savepoint needed
            return [None]
        self._execute("SAVEPOINT change")
        try:
            results = [self._apply(change) for change in changes]
        except BaseException:
            self._execute("ROLLBACK TO change")
            self._execute("RELEASE change")
            raise
        self._execute("RELEASE change")
        return results

    def _apply(self, change: Change) -> object:
        if isinstance(change, MovePointer):
            self._move_pointer(change)
            return None
        return drive(self._steps[type(change)](change), self._batch, apsw.ConstraintError)

    def _batch(self, batch: list[Step]) -> list[Result]:
        return [self._step(name, values) for name, values in batch]

    def _step(self, name: str, values: Mapping[str, object]) -> Result:
        sql = self._statements[name]
        if not sql:
            return NO_RESULT
        cursor = self._execute(sql, values)
        if name not in self._reading:
            return Result(self._connection.changes(), ())
        rows = cursor.fetchall()
        return Result(len(rows), rows)

    def _move_pointer(self, change: MovePointer) -> None:
        """Runs `commit_pointer`, the hottest statement, with positional values: named parameters bind slower."""
        key, new, entry = change.key, change.new, change.entry
        try:
            self._execute(
                self._commit_pointer,
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
                    entry.detail,
                ),
            )
        except apsw.ConstraintError as error:
            raise drive(why_not_moved(change), self._batch, apsw.ConstraintError) from error
        if change.check_overlap or change.places_changed:
            drive(after_move(change), self._batch, apsw.ConstraintError)
