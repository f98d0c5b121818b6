"""The values that a store takes and returns: changes, pointers, log lines, jobs. No I/O."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from nunatak.errors import CatalogError

Kind = Literal["TABLE", "VIEW"]


class Record(msgspec.Struct, frozen=True):
    """Base of all records: created and compared ten times as fast as a dataclass; every commit creates a dozen."""


class Key(Record, frozen=True):
    """The primary key of a table or view in the JDBC tables; `namespace` is the joined form."""

    catalog: str
    namespace: str
    name: str


class Found(Record, frozen=True):
    """A table or view that a search matched; `namespace` is the joined form."""

    kind: Kind
    namespace: str
    name: str


class Pointer(Record, frozen=True):
    """A pointer as read; `content` holds the stored bytes, or None if the caller has them or none are stored.

    `policy` is the version of the access policy (grants, roles, principals) at the time of the read.
    """

    metadata_location: str
    kind: Kind
    content: bytes | None
    policy: int


class Stored(Record, frozen=True):
    """The row stored beside a pointer; `content` is the compressed metadata, None when too large for the database.

    `places` are the folders outside `location` that writers of the table put files into.
    """

    metadata_location: str
    table_uuid: str
    location: str
    content: bytes | None
    places: tuple[str, ...] = ()


class CommitEntry(Record, frozen=True):
    """A row of the commit log and of the outbox, without the columns that the change itself provides.

    `detail` is JSON and is stored only in the outbox (events/change_events.py).
    """

    commit_id: str
    operation: str
    principal: str
    committed_ms: int
    request_id: str | None = None
    snapshot_id: int | None = None
    request_hash: bytes | None = None
    origin: str | None = None
    detail: str | None = None


class InsertPointer(Record, frozen=True):
    """Inserts a table or view; with `check_overlap` its folder must not overlap that of another table.

    A `registered` table already has files, so a pending purge of them refuses it. It may be a table that exists under
    another name.
    """

    key: Key
    kind: Kind
    new: Stored
    entry: CommitEntry
    printed: str
    printed_namespace: str
    check_overlap: bool = True
    registered: bool = False


class MovePointer(Record, frozen=True):
    key: Key
    kind: Kind
    expected: str
    new: Stored
    entry: CommitEntry
    printed: str
    check_overlap: bool = False
    places_changed: bool = False


class DeletePointer(Record, frozen=True):
    """Drops a table or view.

    A caller that returns the metadata location to its client must pass it as `expected`: the pointer may have moved.
    """

    key: Key
    kind: Kind
    entry: CommitEntry
    printed: str
    purge: bool = False
    expected: str | None = None


class RenamePointer(Record, frozen=True):
    key: Key
    to: Key
    kind: Kind
    entry: CommitEntry
    printed: str
    printed_to: str
    printed_to_namespace: str


class AdoptPointer(Record, frozen=True):
    """Stores the bytes behind the pointer, unless it moved again; logs a commit if another client had moved it."""

    key: Key
    new: Stored
    entry: CommitEntry


class CreateNamespace(Record, frozen=True):
    catalog: str
    namespace: str
    ancestors: tuple[str, ...]
    properties: Mapping[str, str]
    printed: str


class DropNamespace(Record, frozen=True):
    catalog: str
    namespace: str
    printed: str


class UpdateNamespace(Record, frozen=True):
    """Sets and removes properties; `removed` are the `removals` reported to the client as present.

    The change is refused if the properties present no longer match `removed`.
    """

    catalog: str
    namespace: str
    updates: Mapping[str, str]
    removals: tuple[str, ...]
    printed: str
    removed: tuple[str, ...] | None = None


class StoredResponse(Record, frozen=True):
    """The response to a request: a small body, or the location of the metadata that it returned."""

    status: int
    body: bytes | None = None
    metadata_location: str | None = None


class SaveAnswer(Record, frozen=True):
    """Stores the response for an idempotency key.

    The first request to save owns the key: while a stored response is valid (its `expires_ms` is after `now_ms`),
    KeyTaken is raised and the whole list of changes is rolled back.
    """

    principal: str
    key: str
    request_hash: bytes
    answer: StoredResponse
    now_ms: int
    expires_ms: int


class AddJob(Record, frozen=True):
    """Adds a job of the server. A commit that adds one with a later `not_before_ms` is not a plain commit."""

    kind: str
    payload: bytes
    not_before_ms: int = 0


class SaveReport(Record, frozen=True):
    key: Key
    received_ms: int
    report: bytes


class SaveSecret(Record, frozen=True):
    name: str
    value: bytes


class Write(Record, frozen=True):
    """Runs a named statement of `access.sql`; the result is the number of rows it changed.

    With `refusal`, a statement that changes no row or violates a unique key raises it, and the whole list of changes is
    rolled back.
    """

    statement: str
    values: Mapping[str, object]
    refusal: CatalogError | None = None


class AddEvent(Record, frozen=True):
    """Adds an event to the outbox for changes that have neither a row of the commit log nor an audit row."""

    event_id: str
    type: str
    securable: str
    principal: str
    request_id: str | None
    at_ms: int
    detail: str | None = None


class ForgetAnswers(Record, frozen=True):
    now_ms: int


class ForgetPointer(Record, frozen=True):
    """Deletes the rows stored for a name that has no pointer any more."""

    key: Key


Change = (
    InsertPointer
    | MovePointer
    | DeletePointer
    | RenamePointer
    | AdoptPointer
    | CreateNamespace
    | DropNamespace
    | UpdateNamespace
    | SaveAnswer
    | AddJob
    | SaveReport
    | SaveSecret
    | Write
    | AddEvent
    | ForgetAnswers
    | ForgetPointer
)


class SavedAnswer(Record, frozen=True):
    request_hash: bytes
    answer: StoredResponse


class Neighbour(Record, frozen=True):
    """A live table or view and its folder, for the overlap check."""

    key: Key
    location: str
    table_uuid: str


class InspectedPointer(Record, frozen=True):
    """All rows about a name; without a `metadata_location` it is not a table or view, only stale rows are left."""

    metadata_location: str | None
    previous_metadata_location: str | None
    kind: Kind
    stored: Stored | None
    namespace_marked: bool


class LogLine(Record, frozen=True):
    """A row of the commit log as read; a rename is logged under the new name."""

    sequence: int
    operation: str
    namespace: str
    name: str
    metadata_location: str | None
    previous_metadata_location: str | None


class StuckJob(Record, frozen=True):
    job_id: int
    kind: str
    attempts: int
    last_error: str | None


class DatabaseSummary(Record, frozen=True):
    """Counts for fsck: pointers, expired idempotency responses, and jobs that fail repeatedly."""

    pointers: int
    expired_answers: int
    stuck_jobs: tuple[StuckJob, ...]
