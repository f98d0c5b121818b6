"""What the store is asked to change and what it gives back, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["TABLE", "VIEW"]


@dataclass(frozen=True, slots=True)
class Key:
    """Where a table or view stands in the JDBC tables; `namespace` is the joined form."""

    catalog: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Head:
    """A pointer as read; `content` holds the stored bytes, or None if the caller knew them or none are stored."""

    metadata_location: str
    kind: Kind
    content: bytes | None


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
    key: Key
    kind: Kind
    entry: CommitEntry
    printed: str
    purge: bool = False


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
    catalog: str
    namespace: str
    updates: Mapping[str, str]
    removals: tuple[str, ...]
    printed: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered with: a small body, or the metadata at a location."""

    status: int
    body: bytes | None = None
    metadata_location: str | None = None


@dataclass(frozen=True, slots=True)
class SaveAnswer:
    """Remember the answer for an idempotency key."""

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
class FinishJob:
    job_id: int


@dataclass(frozen=True, slots=True)
class PostponeJob:
    job_id: int
    not_before_ms: int
    error: str


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
class ForgetAnswers:
    now_ms: int


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
    | FinishJob
    | PostponeJob
    | SaveReport
    | SaveSecret
    | ForgetAnswers
)


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    request_hash: bytes
    answer: Answer


@dataclass(frozen=True, slots=True)
class Job:
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
