"""What the store is asked to change and what it gives back, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nunatak.errors import CatalogError

Kind = Literal["TABLE", "VIEW"]


@dataclass(frozen=True, slots=True)
class Key:
    """Where a table or view stands in the JDBC tables; `namespace` is the joined form."""

    catalog: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Head:
    """A pointer as read; `content` holds the stored bytes, or None if the caller knew them or none are stored.

    `policy` is the version of what everybody may do, when it was read.
    """

    metadata_location: str
    kind: Kind
    content: bytes | None
    policy: int


@dataclass(frozen=True, slots=True)
class Stored:
    """What is kept beside a pointer; `content` is compressed, None when too large for the database.

    `places` are those outside `location` where writers of the table put files.
    """

    metadata_location: str
    table_uuid: str
    location: str
    content: bytes | None
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One line of the commit log, without what the operation itself knows."""

    commit_id: str
    operation: str
    principal: str
    committed_ms: int
    request_id: str | None = None
    snapshot_id: int | None = None
    request_hash: bytes | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class InsertHead:
    """A new table or view; with `check_overlap` its folder must touch no other table's.

    One that is `registered` brings its files along, so none of them may be about to be purged.
    """

    key: Key
    kind: Kind
    new: Stored
    entry: CommitEntry
    printed: str
    printed_namespace: str
    check_overlap: bool = True
    registered: bool = False


@dataclass(frozen=True, slots=True)
class MoveHead:
    key: Key
    kind: Kind
    expected: str
    new: Stored
    entry: CommitEntry
    printed: str
    check_overlap: bool = False
    places_changed: bool = False


@dataclass(frozen=True, slots=True)
class DeleteHead:
    """Whoever tells a client where the metadata is must name it in `expected`: the pointer may have moved since."""

    key: Key
    kind: Kind
    entry: CommitEntry
    printed: str
    purge: bool = False
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class RenameHead:
    key: Key
    to: Key
    kind: Kind
    entry: CommitEntry
    printed: str
    printed_to: str
    printed_to_namespace: str


@dataclass(frozen=True, slots=True)
class AdoptHead:
    """Somebody else moved the pointer: keep the bytes behind it, unless it moved again."""

    key: Key
    new: Stored
    entry: CommitEntry


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    catalog: str
    namespace: str
    ancestors: tuple[str, ...]
    properties: Mapping[str, str]
    printed: str


@dataclass(frozen=True, slots=True)
class DropNamespace:
    catalog: str
    namespace: str
    printed: str


@dataclass(frozen=True, slots=True)
class UpdateNamespace:
    """`removed` are those of `removals` that a client is told were there: refused if that is not so any more."""

    catalog: str
    namespace: str
    updates: Mapping[str, str]
    removals: tuple[str, ...]
    printed: str
    removed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered with: a small body, or the metadata at a location."""

    status: int
    body: bytes | None = None
    metadata_location: str | None = None


@dataclass(frozen=True, slots=True)
class SaveAnswer:
    """Remember the answer for an idempotency key.

    The key belongs to whoever saves first: while the answer it finds there still counts (`expires_ms` is after
    `now_ms`), KeyTaken is raised and nothing of the whole list of changes happens.
    """

    principal: str
    key: str
    request_hash: bytes
    answer: Answer
    now_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class AddJob:
    kind: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class LeaseJob:
    """Hand the first job that is due to `owner` alone, until `until_ms`; the result is the Job, or None.

    A server that dies does nothing for it: when the lease runs out, the job is due again. Servers tell time by their
    own clocks, so a job may be worked on twice if these are far apart, and must not mind.
    """

    owner: str
    now_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ExtendLease:
    """A long job's sign of life; the result says whether it still is the owner's."""

    job_id: int
    owner: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class FinishJob:
    """Done, and forgotten; unless it became somebody else's."""

    job_id: int
    owner: str


@dataclass(frozen=True, slots=True)
class PostponeJob:
    """Give it back, due again at `not_before_ms`; unless it became somebody else's."""

    job_id: int
    owner: str
    not_before_ms: int
    error: str | None


@dataclass(frozen=True, slots=True)
class SaveReport:
    key: Key
    received_ms: int
    report: bytes


@dataclass(frozen=True, slots=True)
class SaveSecret:
    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Write:
    """One statement of `access.sql` by its name; the result is how many rows it changed.

    With `refusal`, a statement that changes no row is refused with it, and everything applied along with it.
    """

    statement: str
    values: Mapping[str, object]
    refusal: CatalogError | None = None


@dataclass(frozen=True, slots=True)
class ForgetAnswers:
    now_ms: int


@dataclass(frozen=True, slots=True)
class ForgetHead:
    """Drop what is stored for a name, unless it has a pointer."""

    key: Key


Change = (
    InsertHead
    | MoveHead
    | DeleteHead
    | RenameHead
    | AdoptHead
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
    | ForgetHead
)


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    request_hash: bytes
    answer: Answer


@dataclass(frozen=True, slots=True)
class Job:
    """Work that was leased; `attempts` counts this one, too."""

    job_id: int
    kind: str
    payload: bytes
    attempts: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A live table or view whose folder is of interest."""

    key: Key
    location: str
    table_uuid: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """All that is known of a name; without a `metadata_location` it is no table or view, whatever is stored for it."""

    metadata_location: str | None
    previous_metadata_location: str | None
    kind: Kind
    stored: Stored | None
    namespace_marked: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the commit log as read; a rename stands under the new name."""

    sequence: int
    operation: str
    namespace: str
    name: str
    metadata_location: str | None
    previous_metadata_location: str | None


@dataclass(frozen=True, slots=True)
class StuckJob:
    job_id: int
    kind: str
    attempts: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Stock:
    """How much there is: pointers, answers that no longer count, and jobs that fail again and again."""

    pointers: int
    expired_answers: int
    stuck_jobs: tuple[StuckJob, ...]
