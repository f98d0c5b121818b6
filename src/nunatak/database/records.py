"""What the store is asked to change and what it gives back, as values."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from nunatak.errors import CatalogError

Kind = Literal["TABLE", "VIEW"]


class Record(msgspec.Struct, frozen=True):
    """A value, made and compared ten times as fast as a dataclass: every commit needs a dozen."""


class Key(Record, frozen=True):
    """Where a table or view stands in the JDBC tables; `namespace` is the joined form."""

    catalog: str
    namespace: str
    name: str


class Found(Record, frozen=True):
    """A table or view that a search matched; `namespace` is the joined form."""

    kind: Kind
    namespace: str
    name: str


class Pointer(Record, frozen=True):
    """A pointer as read; `content` holds the stored bytes, or None if the caller knew them or none are stored.

    `policy` is the version of what everybody may do, when it was read.
    """

    metadata_location: str
    kind: Kind
    content: bytes | None
    policy: int


class Stored(Record, frozen=True):
    """What is kept beside a pointer; `content` is compressed, None when too large for the database.

    `places` are those outside `location` where writers of the table put files.
    """

    metadata_location: str
    table_uuid: str
    location: str
    content: bytes | None
    places: tuple[str, ...] = ()


class CommitEntry(Record, frozen=True):
    """One line of the commit log, without what the operation itself knows."""

    commit_id: str
    operation: str
    principal: str
    committed_ms: int
    request_id: str | None = None
    snapshot_id: int | None = None
    request_hash: bytes | None = None
    origin: str | None = None


class InsertPointer(Record, frozen=True):
    """A new table or view; with `check_overlap` its folder must touch no other table's.

    One that is `registered` brings its files along, so none of them may be about to be purged; it may be a table that
    has another name already.
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
    """Whoever tells a client where the metadata is must name it in `expected`: the pointer may have moved since."""

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
    """Keep the bytes behind the pointer, unless it moved again; a line for the log if somebody else had moved it."""

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
    """`removed` are those of `removals` that a client is told were there: refused if that is not so any more."""

    catalog: str
    namespace: str
    updates: Mapping[str, str]
    removals: tuple[str, ...]
    printed: str
    removed: tuple[str, ...] | None = None


class StoredResponse(Record, frozen=True):
    """What a request was answered with: a small body, or the metadata at a location."""

    status: int
    body: bytes | None = None
    metadata_location: str | None = None


class SaveAnswer(Record, frozen=True):
    """Remember the answer for an idempotency key.

    The key belongs to whoever saves first: while the answer it finds there still counts (`expires_ms` is after
    `now_ms`), KeyTaken is raised and nothing of the whole list of changes happens.
    """

    principal: str
    key: str
    request_hash: bytes
    answer: StoredResponse
    now_ms: int
    expires_ms: int


class AddJob(Record, frozen=True):
    kind: str
    payload: bytes


class LeaseJob(Record, frozen=True):
    """Hand the first job that is due to `owner` alone, until `until_ms`; the result is the Job, or None.

    A server that dies does nothing for it: when the lease runs out, the job is due again. Servers tell time by their
    own clocks, so a job may be worked on twice if these are far apart, and must not mind.
    """

    owner: str
    now_ms: int
    until_ms: int


class ExtendLease(Record, frozen=True):
    """A long job's sign of life; the result says whether it still is the owner's."""

    job_id: int
    owner: str
    until_ms: int


class FinishJob(Record, frozen=True):
    """Done, and forgotten; unless it became somebody else's."""

    job_id: int
    owner: str


class PostponeJob(Record, frozen=True):
    """Give it back, due again at `not_before_ms`; unless it became somebody else's."""

    job_id: int
    owner: str
    not_before_ms: int
    error: str | None


class SaveReport(Record, frozen=True):
    key: Key
    received_ms: int
    report: bytes


class SaveSecret(Record, frozen=True):
    name: str
    value: bytes


class Write(Record, frozen=True):
    """One statement of `access.sql` by its name; the result is how many rows it changed.

    With `refusal`, a statement that changes no row is refused with it, and everything applied along with it.
    """

    statement: str
    values: Mapping[str, object]
    refusal: CatalogError | None = None


class ForgetAnswers(Record, frozen=True):
    now_ms: int


class ForgetPointer(Record, frozen=True):
    """Drop what is stored for a name, unless it has a pointer."""

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
    | LeaseJob
    | ExtendLease
    | FinishJob
    | PostponeJob
    | SaveReport
    | SaveSecret
    | Write
    | ForgetAnswers
    | ForgetPointer
)


class SavedAnswer(Record, frozen=True):
    request_hash: bytes
    answer: StoredResponse


class Job(Record, frozen=True):
    """Work that was leased; `attempts` counts this one, too."""

    job_id: int
    kind: str
    payload: bytes
    attempts: int


class Neighbour(Record, frozen=True):
    """A live table or view whose folder is of interest."""

    key: Key
    location: str
    table_uuid: str


class InspectedPointer(Record, frozen=True):
    """All that is known of a name; without a `metadata_location` it is no table or view, whatever is stored for it."""

    metadata_location: str | None
    previous_metadata_location: str | None
    kind: Kind
    stored: Stored | None
    namespace_marked: bool


class LogLine(Record, frozen=True):
    """A line of the commit log as read; a rename stands under the new name."""

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


class Stock(Record, frozen=True):
    """How much there is: pointers, answers that no longer count, and jobs that fail again and again."""

    pointers: int
    expired_answers: int
    stuck_jobs: tuple[StuckJob, ...]
