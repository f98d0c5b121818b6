"""What every database offers the catalog; the drivers beside this file keep the promises."""

from collections.abc import Sequence
from typing import Protocol

from nunatak.database.records import Change, Head, Job, Key, Kind, Neighbour, SavedAnswer
from nunatak.errors import Conflict


class HeadMoved(Conflict):
    """The compare-and-swap found another pointer than expected: nothing was changed, look again."""

    iceberg_type = "CommitFailedException"


class Store(Protocol):
    """Reads see every change whose `apply` has returned."""

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        """All changes or none, durable on return; one result per change, an error raised means nothing was changed."""

    async def find_head(self, key: Key, known: str | None) -> Head | None:
        """The pointer, with its bytes unless it still is `known`."""

    async def find_kind(self, key: Key) -> Kind | None: ...

    async def find_twin(self, key: Key) -> tuple[str, str] | None:
        """A table whose name differs only in case."""

    async def list_heads(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, head: str
    ) -> tuple[str, str | None, bool]:
        """Names in order as JSON objects `head` + name + `}`, the last name, and whether there are more."""

    async def search_heads(
        self, catalog: str, query: str, kind: Kind | None, limit: int
    ) -> list[tuple[Kind, str, str]]: ...

    async def namespace_exists(self, catalog: str, namespace: str) -> bool: ...

    async def find_namespace(self, catalog: str, namespace: str) -> dict[str, str] | None: ...

    async def list_namespaces(self, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
        """Direct children in order, and where to go on, or None at the end."""

    async def tables_writing_to(self, places: Sequence[str]) -> list[Key]:
        """Live tables whose writers put files into one of these places, outside their own folder."""

    async def overlapping(self, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
        """Live tables whose folder is this one, inside it, or one of `ancestors`."""

    async def find_commit(self, table_uuid: str, snapshot_id: int, request_hash: bytes) -> bool: ...

    async def find_answer(self, principal: str, key: str, now_ms: int) -> SavedAnswer | None: ...

    async def next_job(self, now_ms: int) -> Job | None: ...

    async def next_job_time(self) -> int | None: ...

    async def secret(self, name: str) -> bytes:
        """Random bytes under a name, made on first use, the same for every server on this database."""

    async def check(self) -> None:
        """Raise if the database cannot be written."""

    async def close(self) -> None: ...
