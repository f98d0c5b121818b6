"""The reads that all stores share: named statements and the records made of their rows."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from nunatak.database import bindings
from nunatak.database.bindings import key_values, matches_of, search_values
from nunatak.database.changes import Children, Steps, json_list, neighbours, overlap_values, steps_by_change
from nunatak.database.records import (
    Change,
    DatabaseSummary,
    ForgetAnswers,
    Found,
    InspectedPointer,
    Key,
    Kind,
    LogLine,
    Neighbour,
    SavedAnswer,
    SaveSecret,
    StoredResponse,
    StuckJob,
)

T = TypeVar("T")


class StoreReads(ABC):
    """A driver implements how statements run, changes are applied and child namespaces are listed."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._steps = steps_by_change(children)

    @abstractmethod
    async def apply(self, changes: Sequence[Change]) -> list[object]: ...

    @abstractmethod
    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        """Runs a read-only generator on one connection; `steps` makes a new one if the connection is lost."""

    @abstractmethod
    async def rows(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]: ...

    async def _row(self, name: str, values: Mapping[str, object]) -> Any:
        """Returns the first row, or None."""
        rows = await self.rows(name, values)
        return rows[0] if rows else None

    async def find_kind(self, key: Key) -> Kind | None:
        row = await self._row("find_type", key_values(key))
        return None if row is None else ("VIEW" if row[0] == "VIEW" else "TABLE")

    async def find_twin(self, key: Key) -> tuple[str, str] | None:
        row = await self._row("find_twin", key_values(key))
        return None if row is None else (row[0], row[1])

    async def search_names(
        self, catalog: str, text: str, kind: Kind | None, after: tuple[str, str], piece: int
    ) -> tuple[list[Found], tuple[str, str] | None]:
        values = search_values(catalog, text, kind, after, piece)
        return matches_of(await self.rows("search_names", values), piece)

    async def namespace_exists(self, catalog: str, namespace: str) -> bool:
        row = await self._row("namespace_exists", {"catalog": catalog, "namespace": namespace})
        return bool(row[0])

    async def list_namespaces(self, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
        return await self._read(partial(self._children, catalog, parent, after, limit))

    async def tables_writing_to(self, places: Sequence[str]) -> list[Key]:
        rows = await self.rows("tables_writing_to", {"places": json_list(places)})
        return [Key(row[0], row[1], row[2]) for row in rows]

    async def find_overlapping(self, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
        return neighbours(await self.rows("pointers_overlapping", overlap_values(location, ancestors)))

    async def find_namespace(self, catalog: str, namespace: str) -> dict[str, str] | None:
        rows = await self.rows("namespace_properties", {"catalog": catalog, "namespace": namespace})
        if not rows and not await self.namespace_exists(catalog, namespace):
            return None
        # JDBC catalogs mark an existing namespace with the property `exists`, which clients never see.
        return {row[0]: row[1] for row in rows if row[0] != "exists"}

    async def find_commit(self, table_uuid: str, snapshot_id: int, request_hash: bytes) -> bool:
        values = {"uuid": table_uuid, "snapshot_id": snapshot_id, "request_hash": request_hash}
        return await self._row("find_commit", values) is not None

    async def find_answer(self, principal: str, key: str, now_ms: int) -> SavedAnswer | None:
        row = await self._row("find_answer", {"principal": principal, "key": key, "now_ms": now_ms})
        return None if row is None else SavedAnswer(row[0], StoredResponse(row[1], row[2], row[3]))

    async def next_job_time(self) -> int | None:
        row = await self._row("next_job_time", {})
        due_ms: int | None = row[0]
        return due_ms

    async def keys_after(self, after: Key, limit: int) -> list[Key]:
        return [Key(*row) for row in await self.rows("keys_after", {**key_values(after), "limit": limit})]

    async def inspect_pointer(self, key: Key) -> InspectedPointer | None:
        row = await self._row("inspect_pointer", key_values(key))
        return bindings.pointer_of(row, await self._row("find_stored", key_values(key)) if row is None else None)

    async def commits_of(self, table_uuid: str, after: int, limit: int) -> list[LogLine]:
        rows = await self.rows("commits_of", {"uuid": table_uuid, "after": after, "limit": limit})
        return [LogLine(*row) for row in rows]

    async def points_at(self, file_name: str) -> bool:
        return await self._row("points_at", {"pattern": f"%/{file_name}"}) is not None

    async def summarize(self, before_ms: int, attempts: int) -> DatabaseSummary:
        (pointers,) = await self._row("count_pointers", {})
        (answers,) = await self._row("count_answers", {"before_ms": before_ms})
        jobs = await self.rows("stuck_jobs", {"attempts": attempts, "limit": bindings.MAX_STUCK_JOBS})
        return DatabaseSummary(pointers, answers, tuple(StuckJob(*row) for row in jobs))

    async def secret(self, name: str) -> bytes:
        row = await self._row("find_secret", {"name": name})
        if row is None:
            await self.apply([SaveSecret(name, secrets.token_bytes(32))])
            # Read back: another server may have saved its own value first.
            row = await self._row("find_secret", {"name": name})
        value: bytes = row[0]
        return value

    async def forget_overwritten(self) -> None:
        """Does nothing: database servers remove old row versions on their own schedule (vacuum, purge)."""
        return

    async def check(self) -> None:
        await self.apply([ForgetAnswers(0)])
