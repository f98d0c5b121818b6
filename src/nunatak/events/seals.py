"""Seals over the audit trail: a hash chain, where each seal covers the records since the previous one, and its hash.

A seal's hash is that of a header, `previous-hash number day sealed-ms`, and of its records' lines: first those of the
commit log, then the audit rows, each as exported and followed by a line feed. So an export can be verified without the
database. The end of the trail, seals included, can be cut off undetected unless it was exported before.

Where old records were deleted on purpose (retention.py), a later record holds the hash of the records that were kept.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import BadRequest, CatalogError, NotFound
from nunatak.events.audit_trail import (
    AUDIT,
    BOTTOM,
    COMMITS,
    LAST,
    PAGE,
    Source,
    TrailRecord,
    audit_record,
    line_of,
    time_text,
)

log = logging.getLogger(__name__)

SEAL_SECONDS = 60.0  # longer than any transaction: rows in flight when a mark is set are committed by the next
MAX_RECORDS = 10_000  # per seal, so that a broken seal narrows down where the change is


@dataclass(frozen=True, slots=True)
class Seal:
    """A stored seal; `commits_to` and `audit_to` are the numbers of the last row of each table that it covers."""

    number: int
    day: str
    commits_to: int
    audit_to: int
    records: int
    hash: bytes
    sealed_ms: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A seal that does not match the records it covers, and the apparent reason."""

    seal: int
    text: str


FIRST = Seal(0, "", BOTTOM, BOTTOM, 0, bytes(32), 0)  # the predecessor of the first seal


class SealLine(msgspec.Struct, frozen=True):
    """A seal as exported, after the lines it covers."""

    seal: int
    day: str
    records: int
    commits_to: int
    audit_to: int
    sealed_ms: int
    previous: str
    hash: str


def seal_line(seal: Seal, previous: bytes) -> bytes:
    return msgspec.json.encode(
        SealLine(
            seal.number,
            seal.day,
            seal.records,
            seal.commits_to,
            seal.audit_to,
            seal.sealed_ms,
            previous.hex(),
            seal.hash.hex(),
        )
    )


class _Hash:
    """The hash of a seal that is being computed."""

    def __init__(self, previous: bytes, number: int, day: str, sealed_ms: int) -> None:
        self._hash = hashlib.sha256(f"{previous.hex()} {number} {day} {sealed_ms}\n".encode())
        self.records = 0

    def add(self, line: bytes) -> None:
        self._hash.update(line + b"\n")
        self.records += 1

    def digest(self) -> bytes:
        return self._hash.digest()


async def seals_after(store: Store, number: int) -> AsyncIterator[Seal]:
    while rows := await store.rows("seals_after", {"after": number, "limit": PAGE}):
        for row in rows:
            seal = _seal(row)
            yield seal
            number = seal.number


async def load_seal(store: Store, number: int) -> Seal:
    rows = await store.rows("seals_after", {"after": number - 1, "limit": 1})
    if not rows or rows[0][0] != number:
        raise NotFound(f"There is no seal {number}")
    return _seal(rows[0])


async def newest_seal(store: Store) -> Seal:
    rows = await store.rows("newest_seal", {})
    return _seal(rows[0]) if rows else FIRST


def _seal(row: Any) -> Seal:
    number, day, commits_to, audit_to, records, digest, sealed_ms = row
    return Seal(number, day, commits_to, audit_to, records, bytes(digest), sealed_ms)


async def records_between(store: Store, source: Source, after: int, last: int) -> AsyncIterator[TrailRecord]:
    """Yields the records after number `after`, up to and including `last`."""
    while found := await source.after(store, after, PAGE, last):
        for record in found:
            yield record
        after = found[-1].sequence
        await asyncio.sleep(0)  # SQLite answers without suspending; let other tasks run


# Records deleted on purpose

PRUNE_ACTION = "prune-audit"


class Kept(msgspec.Struct, frozen=True):
    """What pruning left of a seal's records: their count and hash, whose header starts with the seal's hash."""

    seal: int
    records: int
    hash: str


class Pruning(msgspec.Struct, frozen=True):
    """The detail of the audit record of a pruning."""

    deleted: int
    seals: tuple[Kept, ...]


class Remains:
    """Computes the count and hash of the records that are kept of a seal."""

    def __init__(self, seal: Seal | SealLine) -> None:
        digest, number = (
            (bytes.fromhex(seal.hash), seal.seal) if isinstance(seal, SealLine) else (seal.hash, seal.number)
        )
        self._number = number
        self._hash = _Hash(digest, number, seal.day, seal.sealed_ms)

    def add(self, line: bytes) -> None:
        self._hash.add(line)

    def kept(self) -> Kept:
        return Kept(self._number, self._hash.records, self._hash.digest().hex())


async def find_pruned_seals(store: Store) -> dict[int, Kept]:
    """Returns the pruned seals by number."""
    found: dict[int, Kept] = {}
    for row in await store.rows("audit_of_action", {"action": PRUNE_ACTION}):
        found.update(_parse_pruned_seals(audit_record(row).detail))
    return found


def _parse_pruned_seals(detail: object) -> dict[int, Kept]:
    try:
        return {kept.seal: kept for kept in msgspec.convert(detail, Pruning).seals}
    except msgspec.ValidationError:  # written by hand: the seals then do not match
        return {}


# Making seals


async def run_seals(store: Store, now_ms: Callable[[], int], pause_seconds: float = SEAL_SECONDS) -> None:
    """Repeatedly seals the records that existed at the previous look, until cancelled.

    Rows get their numbers before they are committed, so a row still in flight may become visible below rows that can
    already be read. Therefore only rows that existed at the previous look are sealed. No clock decides this.
    """
    mark: tuple[int, int] | None = None
    while True:
        try:
            # Another server may just have sealed. abs(): a server whose clock was wrong must not stop the others.
            if mark is not None and abs(now_ms() - (await newest_seal(store)).sealed_ms) > pause_seconds * 500:
                await seal_up_to(store, now_ms, *mark)
            mark = await newest_records(store)
        except CatalogError:
            log.exception("the audit trail cannot be sealed now")
        await asyncio.sleep(pause_seconds)


async def newest_records(store: Store) -> tuple[int, int]:
    """Returns the numbers of the newest commit and the newest audit row."""
    ((commits, audit),) = await store.rows("newest_records", {})
    return commits, audit


async def seal_up_to(store: Store, now_ms: Callable[[], int], commits: int, audit: int) -> int:
    """Seals all records up to these numbers; returns the number of seals made. Another server may do so meanwhile."""
    made = 0
    while (seal := await _next_seal(store, now_ms(), commits, audit)) is not None:
        values = {name: getattr(seal, name) for name in Seal.__slots__}
        (added,) = await store.apply([Write("add_seal", values)])
        if not added:
            # Another server stored a seal of this number first, and seals the rest.
            break
        made += 1
    return made


async def _next_seal(store: Store, sealed_ms: int, commits: int, audit: int) -> Seal | None:
    """Returns the seal that follows the newest one, or None. It covers records of one day, or of earlier days."""
    last = await newest_seal(store)
    first_commit = await COMMITS.after(store, last.commits_to, 1, commits)
    first_row = await AUDIT.after(store, last.audit_to, 1, audit)
    if not first_commit and not first_row:
        return None
    day = min(_day(record) for record in (*first_commit, *first_row))
    made = _Hash(last.hash, last.number + 1, day, sealed_ms)
    commits_to = await _cover(store, made, COMMITS, last.commits_to, commits, day)
    audit_to = await _cover(store, made, AUDIT, last.audit_to, audit, day)
    return Seal(last.number + 1, day, commits_to, audit_to, made.records, made.digest(), sealed_ms)


async def _cover(store: Store, made: _Hash, source: Source, after: int, last: int, day: str) -> int:
    """Adds a table's records until one is of a later day; returns the number of the last one added."""
    while found := await source.after(store, after, PAGE, last):
        for record in found:
            if _day(record) > day or made.records >= MAX_RECORDS:
                return max(0, after)
            made.add(line_of(record))
            after = record.sequence
        await asyncio.sleep(0)  # SQLite answers without suspending; let other tasks run
    # Never BOTTOM, which only marks the beginning of the chain.
    return max(0, after)


def _day(record: TrailRecord) -> str:
    return time_text(record.at_ms)[:10]


# Verifying


async def verify(store: Store) -> AsyncIterator[Broken]:
    """Yields every seal that does not match, in order; nothing if the trail is as it was sealed."""
    previous, pruned = FIRST, await find_pruned_seals(store)
    async for seal in seals_after(store, 0):
        why = await _why_broken(store, previous, seal, pruned.get(seal.number))
        if why is not None:
            yield Broken(seal.number, why)
        previous = seal


async def _why_broken(store: Store, previous: Seal, seal: Seal, kept: Kept | None) -> str | None:
    commits = f"commits {max(0, previous.commits_to) + 1} to {seal.commits_to}"
    covered = f"{commits}, audit rows {max(0, previous.audit_to) + 1} to {seal.audit_to}"
    if seal.number != previous.number + 1:
        return f"the seals between {previous.number} and {seal.number} are gone ({covered})"
    made, remains = _Hash(previous.hash, seal.number, seal.day, seal.sealed_ms), Remains(seal)
    async for line in _lines(store, previous, seal.commits_to, seal.audit_to):
        made.add(line)
        remains.add(line)
    # After pruning the seal's own hash no longer matches; the recorded hash of what was kept must.
    if kept is not None and remains.kept() == kept:
        return None
    if made.records != seal.records:
        difference = made.records - seal.records
        what = f"{difference} more than" if difference > 0 else f"{-difference} fewer than"
        return f"it covers {made.records} records, {what} were sealed ({covered})"
    if made.digest() != seal.hash:
        return f"a record it covers, or the seal itself, was changed ({covered})"
    return None


# Exporting


async def export(store: Store, after_seal: int = 0) -> AsyncIterator[bytes]:
    """Yields every record after a seal, as lines: each seal's records, then the seal; finally the unsealed records."""
    previous = FIRST if after_seal == 0 else await load_seal(store, after_seal)
    async for seal in seals_after(store, previous.number):
        async for line in _lines(store, previous, seal.commits_to, seal.audit_to):
            yield line
        yield seal_line(seal, previous.hash)
        previous = seal
    async for line in _lines(store, previous, LAST, LAST):
        yield line


async def _lines(store: Store, previous: Seal, commits_to: int, audit_to: int) -> AsyncIterator[bytes]:
    async for record in records_between(store, COMMITS, previous.commits_to, commits_to):
        yield line_of(record)
    async for record in records_between(store, AUDIT, previous.audit_to, audit_to):
        yield line_of(record)


@dataclass(frozen=True)
class Verified:
    """The result of verifying an export: broken seals, the last seal, and the lines after it, which no seal covers."""

    broken: tuple[Broken, ...]
    last: SealLine | None
    unsealed: tuple[bytes, ...]


def verify_export(lines: Iterable[bytes]) -> Verified:
    """Verifies an export without the database; the first seal's `previous` is trusted."""
    broken: list[Broken] = []
    last: SealLine | None = None
    waiting: list[bytes] = []
    lacking: dict[Broken, Kept] = {}  # not broken if a record shows that the rest was deleted on purpose
    pruned: dict[int, Kept] = {}
    for line in lines:
        # The line of a seal begins with `seal`, that of a record with `time`.
        if not line.startswith(b'{"seal":'):
            waiting.append(line)
            if _ABOUT_PRUNING in line:
                pruned.update(_parse_pruned_seals(_detail_of(line)))
            continue
        seal = _read_seal(line)
        made = _Hash(bytes.fromhex(seal.previous), seal.seal, seal.day, seal.sealed_ms)
        for each in waiting:
            made.add(each)
        if last is not None and (seal.seal != last.seal + 1 or seal.previous != last.hash):
            broken.append(Broken(seal.seal, f"it does not follow seal {last.seal}, which stands before it"))
        elif made.records != seal.records or made.digest().hex() != seal.hash:
            broken.append(Broken(seal.seal, f"it covers {seal.records} lines, and not the {made.records} before it"))
            lacking[broken[-1]] = _remains(seal, waiting)
        last, waiting = seal, []
    found = tuple(each for each in broken if each not in lacking or lacking[each] != pruned.get(each.seal))
    return Verified(found, last, tuple(waiting))


_ABOUT_PRUNING = b'"action":"%b"' % PRUNE_ACTION.encode()


def _remains(seal: SealLine, lines: Iterable[bytes]) -> Kept:
    remains = Remains(seal)
    for line in lines:
        remains.add(line)
    return remains.kept()


def _detail_of(line: bytes) -> object:
    try:
        return msgspec.json.decode(line, type=dict[str, Any]).get("detail")
    except msgspec.MsgspecError:
        return None


async def count_strange(store: Store, verified: Verified) -> int:
    """Returns how many of the unsealed lines are not, byte for byte, records of the database."""
    strange = Counter(verified.unsealed)
    async for line in export(store, verified.last.seal if verified.last else 0):
        if line in strange:
            strange[line] -= 1
    return (+strange).total()


def _read_seal(line: bytes) -> SealLine:
    try:
        seal = msgspec.json.decode(line, type=SealLine)
        bytes.fromhex(seal.previous)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadRequest(f"Not a seal: {line[:100]!r}") from error
    return seal
