"""Searches a warehouse by part of a name, in small pieces, so that no search blocks the server."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nunatak.database.records import Found, Kind
from nunatak.database.store import Store

NAMES_PER_QUERY = 1000  # names per statement: about a millisecond, for which SQLite blocks the event loop
MAX_NAMES_READ = 100_000  # names per page; the next page continues after them

Position = tuple[str, str]  # the last namespace and name that were searched
START: Position = ("", "")
Filter = Callable[[list[Found]], Awaitable[list[Found]]]


@dataclass(frozen=True)
class Query:
    """A part of a name or of a namespace, case-insensitive; `kind` None means tables and views."""

    warehouse: str
    text: str
    kind: Kind | None


async def search(
    store: Store, query: Query, after: Position, limit: int, only_visible: Filter
) -> tuple[list[Found], Position | None]:
    """Returns the matches ordered by name, and the position the next page starts after, or None at the end."""
    found: list[Found] = []
    position = after
    for _ in range(MAX_NAMES_READ // NAMES_PER_QUERY):
        matches, end = await store.search_names(query.warehouse, query.text, query.kind, position, NAMES_PER_QUERY)
        found += await only_visible(matches)
        if len(found) > limit:
            return found[:limit], (found[limit - 1].namespace, found[limit - 1].name)
        if end is None:
            return found, None
        position = end
        # A full page ends here, so that the next one starts after the names read, not after the last match.
        if len(found) == limit:
            break
        await asyncio.sleep(0)  # SQLite queries never yield to the event loop: other requests run between two pieces
    return found, position
