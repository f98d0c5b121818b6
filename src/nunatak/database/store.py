"""The interface between the catalog and its database; sqlite.py, postgres.py and mariadb.py implement it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nunatak.database.records import (
    Change,
    DatabaseSummary,
    Found,
    InspectedPointer,
    Key,
    Kind,
    LogLine,
    Neighbour,
    Pointer,
    SavedAnswer,
)
from nunatak.errors import CatalogError, Conflict


class PointerMoved(Conflict):
    """The compare-and-swap found a pointer other than expected; nothing was changed. Callers may reload and retry."""

    iceberg_type = "CommitFailedException"


class KeyTaken(CatalogError):
    """Another request, on this server or another, owns the idempotency key; nothing was changed.

    The server replays the stored response of that request. This error reaches the client only if there is none yet;
    its status keeps the client from concluding that nothing was committed.
    """

    iceberg_type = "CommitStateUnknownException"


class Store(Protocol):
    """Reads see every change whose `apply` has returned, on any server."""

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        """Applies the changes atomically, in order; durable on return. Returns one result per change.

        Any error but OutcomeUnknown means that nothing was changed: PointerMoved, KeyTaken, or the reason of the
        refusal. Once begun, a transaction is finished even if the caller is cancelled.
        """

    async def find_pointer(self, key: Key, known: str | None) -> Pointer | None:
        """Returns the pointer, without its bytes if its location equals `known`; None if there is no table or view."""

    async def find_kind(self, key: Key) -> Kind | None: ...

    async def find_twin(self, key: Key) -> tuple[str, str] | None:
        """Returns the namespace and name of a table whose name differs only in case, for the hint of a 404."""

    async def list_pointers(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, prefix: str
    ) -> tuple[str, str | None, bool]:
        """Returns names in order as JSON objects `prefix` + name + `}`, the last name, and whether there are more."""

    async def search_names(
        self, catalog: str, text: str, kind: Kind | None, after: tuple[str, str], piece: int
    ) -> tuple[list[Found], tuple[str, str] | None]:
        """Scans `piece` names after a namespace and name; returns those that match, ignoring case, and the last name
        scanned, or None at the end."""

    async def namespace_exists(self, catalog: str, namespace: str) -> bool: ...

    async def find_namespace(self, catalog: str, namespace: str) -> dict[str, str] | None: ...

    async def list_namespaces(self, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
        """Returns direct children in order, and the position of the next page, or None at the end."""

    async def tables_writing_to(self, places: Sequence[str]) -> list[Key]:
        """Returns live tables whose writers put files into one of these places, outside the tables' own folders."""

    async def find_overlapping(self, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
        """Returns live tables whose folder is this one, lies inside it, or is one of `ancestors`."""

    async def find_commit(self, table_uuid: str, snapshot_id: int, request_hash: bytes) -> bool: ...

    async def find_answer(self, principal: str, key: str, now_ms: int) -> SavedAnswer | None:
        """Returns the response stored by SaveAnswer, or None if there is none or it has expired."""

    async def rows(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """Returns the rows of a named SELECT of `access.sql`."""

    async def next_job_time(self) -> int | None:
        """Returns when the next job is due, or its lease expires; None if there is no job."""

    async def keys_after(self, after: Key, limit: int) -> list[Key]:
        """Returns in order every name that has a pointer or stored rows; `Key("", "", "")` sorts before all."""

    async def inspect_pointer(self, key: Key) -> InspectedPointer | None:
        """Returns all rows about a name, also those left without a pointer; None if there are none."""

    async def commits_of(self, table_uuid: str, after: int, limit: int) -> list[LogLine]:
        """Returns a table's rows of the commit log with a sequence greater than `after`, oldest first."""

    async def points_at(self, file_name: str) -> bool:
        """Whether any current or previous pointer leads to a file of this name. Scans all pointers."""

    async def summarize(self, before_ms: int, attempts: int) -> DatabaseSummary:
        """Counts pointers and answers that expired before `before_ms`; lists up to 100 jobs with `attempts` or more."""

    async def secret(self, name: str) -> bytes:
        """Returns random bytes stored under a name; created on first use, the same for all servers on the database."""

    async def forget_overwritten(self) -> None:
        """Removes overwritten secrets from the database's files, as far as the database supports it."""

    async def check(self) -> None:
        """Raises if the database cannot be written."""

    async def close(self) -> None: ...
