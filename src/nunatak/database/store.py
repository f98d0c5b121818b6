"""What every database offers the catalog; the drivers beside this file keep the promises."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nunatak.database.records import (
    Change,
    Found,
    InspectedPointer,
    Key,
    Kind,
    LogLine,
    Neighbour,
    Pointer,
    SavedAnswer,
    Stock,
)
from nunatak.errors import CatalogError, Conflict


class PointerMoved(Conflict):
    """The compare-and-swap found another pointer than expected: nothing was changed, look again."""

    iceberg_type = "CommitFailedException"


class KeyTaken(CatalogError):
    """A request with the same idempotency key was first, on this server or another: nothing was changed, look it up.

    Whoever sent the key is never told: it gets the answer of the first. The status is for the case that there is none
    yet, and a client must not conclude that nothing happened.
    """

    iceberg_type = "CommitStateUnknownException"


class Store(Protocol):
    """Reads see every change whose `apply` has returned, on whichever server."""

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        """All changes or none, durable on return, in the given order; one result per change.

        An error means that nothing was changed: PointerMoved, KeyTaken, or why it is refused. Only OutcomeUnknown
        leaves it open. Once begun, it is carried out although the caller may go away.
        """

    async def find_pointer(self, key: Key, known: str | None) -> Pointer | None:
        """The pointer, with its bytes unless it still is `known`."""

    async def find_kind(self, key: Key) -> Kind | None: ...

    async def find_twin(self, key: Key) -> tuple[str, str] | None:
        """A table whose name differs only in case."""

    async def list_pointers(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, head: str
    ) -> tuple[str, str | None, bool]:
        """Names in order as JSON objects `head` + name + `}`, the last name, and whether there are more."""

    async def search_names(
        self, catalog: str, text: str, kind: Kind | None, after: tuple[str, str], piece: int
    ) -> tuple[list[Found], tuple[str, str] | None]:
        """Looks at the `piece` names behind a namespace and name: those that match in any case, and the last one looked
        at, or None if there are no more."""

    async def namespace_exists(self, catalog: str, namespace: str) -> bool: ...

    async def find_namespace(self, catalog: str, namespace: str) -> dict[str, str] | None: ...

    async def list_namespaces(self, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
        """Direct children in order, and where to go on, or None at the end."""

    async def tables_writing_to(self, places: Sequence[str]) -> list[Key]:
        """Live tables whose writers put files into one of these places, outside their own folder."""

    async def find_overlapping(self, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
        """Live tables whose folder is this one, inside it, or one of `ancestors`."""

    async def find_commit(self, table_uuid: str, snapshot_id: int, request_hash: bytes) -> bool: ...

    async def find_answer(self, principal: str, key: str, now_ms: int) -> SavedAnswer | None:
        """What SaveAnswer saved, while it counts."""

    async def rows(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """What a reading statement of `access.sql` finds, by its name."""

    async def next_job_time(self) -> int | None:
        """When a job is due next, be it because its lease runs out; None if there is no job."""

    async def keys_after(self, after: Key, limit: int) -> list[Key]:
        """In order, every name that has a pointer or something stored; `Key("", "", "")` is before them all."""

    async def inspect_pointer(self, key: Key) -> InspectedPointer | None:
        """Whatever is known of a name, also what is only stored; None if nothing is."""

    async def commits_of(self, table_uuid: str, after: int, limit: int) -> list[LogLine]:
        """A table's lines of the commit log behind the one numbered `after`, oldest first."""

    async def points_at(self, file_name: str) -> bool:
        """Whether any pointer leads to a file of this name, or did before it moved last. Reads them all."""

    async def take_stock(self, before_ms: int, attempts: int) -> Stock:
        """Answers count that expired before; a job is stuck after so many attempts, and the first hundred are given."""

    async def secret(self, name: str) -> bytes:
        """Random bytes under a name, made on first use, the same for every server on this database."""

    async def forget_overwritten(self) -> None:
        """What was replaced shall not be found in the database's files either, as far as the database can be told."""

    async def check(self) -> None:
        """Raise if the database cannot be written."""

    async def close(self) -> None: ...
