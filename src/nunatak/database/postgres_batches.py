"""Lookups and plain commits that go to PostgreSQL together: the values of one statement, and each member's own outcome.

Every function here takes any number of members, and for one alone the statement made for one, which costs less.
"""

from collections.abc import Hashable, Mapping, Sequence

from nunatak.database import refusals
from nunatak.database.bindings import commit_values, key_values
from nunatak.database.postgres_connections import PostgresSession
from nunatak.database.records import AddJob, Change, Key, MovePointer, Pointer, SaveAnswer
from nunatak.database.transactions import is_plain_commit, plain_commit_of
from nunatak.errors import CatalogError

LARGEST_CONTENT_BYTES = 256 * 1024  # larger metadata would make the others of its batch wait while it is sent

Lookup = tuple[Key, str | None]  # where, and the pointer whose bytes the caller holds


def head_of(location: str | None, kind: str | None, content: bytes | None, policy: int) -> Pointer | None:
    """A row without a pointer, which other clients could leave behind, is no table."""
    return None if location is None else Pointer(location, "VIEW" if kind == "VIEW" else "TABLE", content, policy)


async def find_together(session: PostgresSession, asked: Sequence[Lookup]) -> list[Pointer | None]:
    if len(asked) == 1:
        key, known = asked[0]
        row = await session.row("find_pointer", {**key_values(key), "known": known})
        return [None if row is None else head_of(*row)]
    values = {
        "catalogs": [key.catalog for key, _ in asked],
        "namespaces": [key.namespace for key, _ in asked],
        "names": [key.name for key, _ in asked],
        "known": [known for _, known in asked],
    }
    heads: list[Pointer | None] = [None] * len(asked)
    for member, location, kind, content, policy in await session.rows("find_pointers", values):
        heads[member - 1] = head_of(location, kind, content, policy)
    return heads


def may_go_together(changes: Sequence[Change]) -> bool:
    content = plain_commit_of(changes).new.content if is_plain_commit(changes) else None
    return content is not None and len(content) <= LARGEST_CONTENT_BYTES


def claims_of(changes: Sequence[Change]) -> frozenset[Hashable]:
    """What no two commits of one statement may touch: a table, and an idempotency key."""
    claims: set[Hashable] = {plain_commit_of(changes).key}
    for change in changes:
        if isinstance(change, SaveAnswer):
            claims.add((change.principal, change.key))
    return frozenset(claims)


async def commit_together(session: PostgresSession, commits: Sequence[Sequence[Change]]) -> set[int]:
    """Which of them moved, counted from 0; the others changed nothing."""
    if len(commits) == 1:
        return set() if await session.row("commit_pointer", commit_values(commits[0])) is None else {0}
    return {member - 1 for (member,) in await session.rows("commit_pointers", _columns(commits))}


async def why_not_moved(session: PostgresSession, moves: Sequence[MovePointer]) -> list[CatalogError | None]:
    """For each what stood in its way; None if nothing does any more: somebody held its row."""
    values = {
        "catalog": [move.key.catalog for move in moves],
        "namespace": [move.key.namespace for move in moves],
        "name": [move.key.name for move in moves],
        "uuid": [move.new.table_uuid for move in moves],
    }
    rows = await session.rows("pointers_of", values)
    found: dict[int, str] = {row[0]: row[1] for row in rows}
    shadows: dict[int, str] = {row[0]: row[2] for row in rows if row[2] is not None}
    reasons: list[CatalogError | None] = []
    for member, move in enumerate(moves, 1):
        if member not in found:
            reasons.append(refusals.no_such_entry(move.kind, move.printed))
        elif member in shadows:
            reasons.append(refusals.shadow_table(move.printed, shadows[member]))
        else:
            reasons.append(refusals.pointer_moved(move.printed) if found[member] != move.expected else None)
    return reasons


def _columns(commits: Sequence[Sequence[Change]]) -> Mapping[str, object]:
    """What `commit_pointers` is given: for each column of `commit_pointer` one value per member."""
    rows = [commit_values(changes) for changes in commits]
    columns: dict[str, object] = {name: [row[name] for row in rows] for name in rows[0]}
    jobs = [
        (member, change.kind, change.payload)
        for member, changes in enumerate(commits, 1)
        for change in changes
        if isinstance(change, AddJob)
    ]
    columns["job_members"] = [member for member, _, _ in jobs]
    columns["job_kinds"] = [kind for _, kind, _ in jobs]
    columns["job_payloads"] = [payload for _, _, payload in jobs]
    # All of one server and one moment; the earliest forgets no answer that still counts for one of them.
    times = [change.now_ms for changes in commits for change in changes if isinstance(change, SaveAnswer)]
    columns["key_now_ms"] = min(times, default=None)
    return columns
