"""The audit trail as one list: the commit log and the audit rows as records, and how they are searched.

A record's exported line is also what a seal covers (seals.py): its bytes must never change for an existing record.
Fields without a value are omitted, so that new fields can be added.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from nunatak.access import securables
from nunatak.access.audit_rows import ALLOWED, DENIED
from nunatak.database.store import Store
from nunatak.iceberg.shapes import Long

Table = Literal["commits", "audit"]

PAGE = 200  # rows per read: SQLite is read in the event loop, which other requests wait for
MAX_ROWS_READ = 10_000  # rows of each table that one page of a search reads at most, whether they match or not
CLOCKS_DIFFER_MS = 600_000  # rows are numbered in order, but each server stamps them by its own clock
BOTTOM, LAST = -(1 << 63), (1 << 63) - 1  # below and above every row, even one numbered by hand


class Origin(msgspec.Struct, frozen=True):
    """The origin of a request, as written by `audit_rows.origin_text`."""

    address: str | None = None
    roles: tuple[str, ...] | None = None
    client: str | None = None


class TrailRecord(msgspec.Struct, frozen=True):
    """One occurrence, repeated `repeats` times; `securable` is in the form of securables.py, `detail` as displayed."""

    table: Table
    sequence: int
    at_ms: int
    principal: str
    action: str
    securable: str
    outcome: str
    detail: object
    repeats: int
    request_id: str | None
    origin: str | None


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record as it is exported, and sealed."""

    time: str
    record: Table
    sequence: Long
    principal: str
    action: str
    securable: Annotated[str, msgspec.Meta(description="As `server`, `warehouse:WH` or `table:WH/A/T`.")]
    outcome: Annotated[str, msgspec.Meta(extra_json_schema={"enum": [ALLOWED, DENIED]})]
    repeats: Annotated[Long, msgspec.Meta(description="How often it happened, where several are summed up.")]
    request_id: str | None = None
    roles: tuple[str, ...] | None = None
    address: str | None = None
    agent: str | None = None
    detail: Any = None


class CommitDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The further columns of the commit log; `snapshot_id` is text because a double cannot represent it."""

    commit_id: str
    table_uuid: str
    metadata_location: str | None = None
    previous_metadata_location: str | None = None
    snapshot_id: str | None = None
    request_hash: str | None = None


def exported_line(record: TrailRecord) -> Line:
    origin = _origin(record.origin)
    return Line(
        time=time_text(record.at_ms),
        record=record.table,
        sequence=record.sequence,
        principal=record.principal,
        action=record.action,
        securable=_printed(record.securable),
        outcome=record.outcome,
        repeats=record.repeats,
        request_id=record.request_id,
        roles=origin.roles,
        address=origin.address,
        agent=origin.client,
        detail=record.detail,
    )


def line_of(record: TrailRecord) -> bytes:
    """Returns the record as a line of JSON, without line feed: what is exported, and what a seal covers."""
    return msgspec.json.encode(exported_line(record))


_printed = lru_cache(maxsize=1024)(securables.format_securable)  # most records are about the same few tables


def time_text(at_ms: int) -> str:
    try:
        seconds, rest = divmod(at_ms, 1000)
        return f"{_second_text(seconds)}.{rest:03d}Z"
    except (TypeError, ValueError, OverflowError, OSError):  # written by hand: shown as is, and no seal matches it
        return f"{at_ms} ms"


@lru_cache(maxsize=64)
def _second_text(seconds: int) -> str:
    """Cached, because consecutive records often share a second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


@lru_cache(maxsize=256)  # a client sends the same origin with each request
def _origin(text: str | None) -> Origin:
    if text is None:
        return Origin()
    try:
        return msgspec.json.decode(text, type=Origin)
    except (msgspec.MsgspecError, TypeError):
        return Origin(client=str(text))


# From rows to records


def commit_record(row: Sequence[Any]) -> TrailRecord:
    """Converts a row of the commit log; its outcome is always ALLOWED, since only permitted commits are logged."""
    sequence, at_ms, principal, action, catalog, namespace, name, request_id, origin, *rest = row
    commit_id, table_uuid, location, previous, snapshot_id, request_hash = rest
    detail = CommitDetail(
        commit_id,
        table_uuid,
        location,
        previous,
        None if snapshot_id is None else str(snapshot_id),
        None if request_hash is None else bytes(request_hash).hex(),
    )
    securable = f"{securables.warehouse(catalog)}{namespace}.{securables.ENTRY}{name}"
    return TrailRecord("commits", sequence, at_ms, principal, action, securable, ALLOWED, detail, 1, request_id, origin)


def audit_record(row: Sequence[Any]) -> TrailRecord:
    sequence, at_ms, principal, action, securable, outcome, detail, repeats, request_id, origin = row
    shown = _detail(detail)
    return TrailRecord(
        "audit", sequence, at_ms, principal, action, securable, outcome, shown, repeats, request_id, origin
    )


def _detail(text: str | None) -> object:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, TypeError):
        return text


@dataclass(frozen=True)
class Source:
    """One of the two tables of the trail."""

    table: Table
    record: Callable[[Sequence[Any]], TrailRecord]

    async def after(self, store: Store, after: int, limit: int, last: int = LAST) -> list[TrailRecord]:
        """Returns the records after number `after`, oldest first."""
        rows = await store.rows(f"{self.table}_after", {"after": after, "last": last, "limit": limit})
        return [self.record(row) for row in rows]

    async def before(self, store: Store, before: int, limit: int) -> list[TrailRecord]:
        """Returns the records before number `before`, newest first."""
        rows = await store.rows(f"{self.table}_before", {"before": before, "limit": limit})
        return [self.record(row) for row in rows]


COMMITS, AUDIT = Source("commits", commit_record), Source("audit", audit_record)


# Searching


@dataclass(frozen=True)
class Filter:
    """Conditions for records; None matches all. Records inside a `securable` that is a container match, too."""

    principal: str | None = None
    action: str | None = None
    securable: str = securables.SERVER
    outcome: str | None = None
    request_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, record: TrailRecord) -> bool:
        return (
            self.principal in (None, record.principal)
            and self.action in (None, record.action)
            and self.outcome in (None, record.outcome)
            and self.request_id in (None, record.request_id)
            and (self.since_ms is None or record.at_ms >= self.since_ms)
            and (self.until_ms is None or record.at_ms < self.until_ms)
            and self._covers(record.securable)
        )

    def _covers(self, securable: str) -> bool:
        # The text of a container is a prefix of everything inside it (securables.py).
        if securables.is_container(self.securable):
            return securable.startswith(self.securable)
        return securable == self.securable


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a search continues: the number of the last row of each table that was processed."""

    commits: int
    audit: int


class _Stream:
    """The matching records of one table, in order, until MAX_ROWS_READ rows have been read."""

    def __init__(self, store: Store, source: Source, wanted: Filter, position: int, *, newest_first: bool) -> None:
        self._store, self._source, self._wanted, self._newest_first = store, source, wanted, newest_first
        self._found: deque[TrailRecord] = deque()
        self._read_to = position
        self._rows_read = 0
        self.position = position
        self.ended = False

    async def head(self) -> TrailRecord | None:
        """Returns the next record without taking it; None at the end, or once MAX_ROWS_READ rows have been read."""
        while not self._found and not self.ended and self._rows_read < MAX_ROWS_READ:
            await self._read()
        return self._found[0] if self._found else None

    def take(self) -> TrailRecord:
        record = self._found.popleft()
        # After the last match, the rows read without a match need not be read again.
        self.position = record.sequence if self._found else self._read_to
        return record

    async def _read(self) -> None:
        if self._newest_first:
            records = await self._source.before(self._store, self._read_to, PAGE)
        else:
            records = await self._source.after(self._store, self._read_to, PAGE)
        self._rows_read += len(records)
        self._found.extend(record for record in records if self._wanted.matches(record))
        if records:
            self._read_to = records[-1].sequence
        if not self._found:
            self.position = self._read_to
        self.ended = len(records) < PAGE or self._is_past(records[-1])
        await asyncio.sleep(0)  # SQLite answers without suspending; let other tasks run

    def _is_past(self, record: TrailRecord) -> bool:
        """Returns whether all following rows are too old, or too new, even allowing for clock differences."""
        if self._newest_first:
            return self._wanted.since_ms is not None and record.at_ms < self._wanted.since_ms - CLOCKS_DIFFER_MS
        return self._wanted.until_ms is not None and record.at_ms > self._wanted.until_ms + CLOCKS_DIFFER_MS


async def search(
    store: Store, wanted: Filter, *, newest_first: bool = True, position: Position | None = None, limit: int = PAGE
) -> tuple[list[TrailRecord], Position | None]:
    """Returns records by time, and the position to continue at, None at the end.

    A page may hold fewer than `limit` records, even none, when many rows had to be read for it.
    """
    start = position or await _start(store, wanted, newest_first=newest_first)
    commits = _Stream(store, COMMITS, wanted, start.commits, newest_first=newest_first)
    audit = _Stream(store, AUDIT, wanted, start.audit, newest_first=newest_first)
    found: list[TrailRecord] = []
    while len(found) < limit:
        heads = [(await stream.head(), stream) for stream in (commits, audit)]
        if any(head is None and not stream.ended for head, stream in heads):
            break  # this table's next record is not known yet, and may precede the other's
        waiting = [(head.at_ms, stream) for head, stream in heads if head is not None]
        if not waiting:
            return found, None
        choose = max if newest_first else min
        found.append(choose(waiting, key=lambda each: each[0])[1].take())
    return found, Position(commits.position, audit.position)


async def _start(store: Store, wanted: Filter, *, newest_first: bool) -> Position:
    if newest_first:
        if wanted.until_ms is None:
            return Position(LAST, LAST)
        at_ms = wanted.until_ms + CLOCKS_DIFFER_MS
        return Position(await _seek(store, COMMITS, at_ms), await _seek(store, AUDIT, at_ms))
    if wanted.since_ms is None:
        return Position(BOTTOM, BOTTOM)
    at_ms = wanted.since_ms - CLOCKS_DIFFER_MS
    # `after` excludes its number, hence one less.
    return Position(await _seek(store, COMMITS, at_ms) - 1, await _seek(store, AUDIT, at_ms) - 1)


async def _seek(store: Store, source: Source, at_ms: int) -> int:
    """Returns the number of the first row of `at_ms` or later, up to clock differences, by binary search."""
    newest = await source.before(store, LAST, 1)
    low, high = 0, newest[0].sequence + 1 if newest else 1
    while low < high:
        middle = (low + high) // 2
        found = await source.after(store, middle - 1, 1)
        if found and found[0].at_ms < at_ms:
            low = found[0].sequence + 1
        else:
            high = middle
    return low
