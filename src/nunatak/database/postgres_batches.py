"""Batched lookups and plain commits for PostgreSQL: the parameters of one statement, and the outcome of each member.

Every function takes any number of members; a single member uses the cheaper statement for one.
"""

from collections.abc import Hashable, Mapping, Sequence

from nunatak.database import refusals
from nunatak.database.bindings import commit_values, key_values
from nunatak.database.postgres_connections import PostgresSession
from nunatak.database.records import AddJob, Change, Key, MovePointer, Pointer, SaveAnswer
from nunatak.database.transactions import is_plain_commit, plain_commit_of
from nunatak.errors import CatalogError

MAX_CONTENT_BYTES = 256 * 1024  # the other members would wait while larger metadata is sent

Lookup = tuple[Key, str | None]  # the key, and the metadata location whose bytes the caller has


def pointer_of_row(location: str | None, kind: str | None, content: bytes | None, policy: int) -> Pointer | None:
    """Returns the pointer of a row; None for a row without one, which JDBC clients could leave behind."""
    return None if location is None else Pointer(location, "VIEW" if kind == "VIEW" else "TABLE", content, policy)


async def find_batch(session: PostgresSession, asked: Sequence[Lookup]) -> list[Pointer | None]:
    if len(asked) == 1:
        key, known = asked[0]
        row = await session.row("find_pointer", {**key_values(key), "known": known})
        return [None if row is None else pointer_of_row(*row)]
    values = {
        "catalogs": [key.catalog for key, _ in asked],
        "namespaces": [key.namespace for key, _ in asked],
        "names": [key.name for key, _ in asked],
        "known": [known for _, known in asked],
    }
    pointers: list[Pointer | None] = [None] * len(asked)
    for member, location, kind, content, policy in await session.rows("find_pointers", values):
        pointers[member - 1] = pointer_of_row(location, kind, content, policy)
    return pointers


def may_share_batch(changes: Sequence[Change]) -> bool:
    content = plain_commit_of(changes).new.content if is_plain_commit(changes) else None
    return content is not None and len(content) <= MAX_CONTENT_BYTES


def claims_of(changes: Sequence[Change]) -> frozenset[Hashable]:
    """Returns the table and the idempotency key, which no two commits of one statement may share."""
    claims: set[Hashable] = {plain_commit_of(changes).key}
    for change in changes:
        if isinstance(change, SaveAnswer):
            claims.add((change.principal, change.key))
    return frozenset(claims)


async def commit_together(session: PostgresSession, commits: Sequence[Sequence[Change]]) -> set[int]:
    """Returns the indexes of the commits whose pointer moved; the others changed nothing."""
    if len(commits) == 1:
        return set() if await session.row("commit_pointer", commit_values(commits[0])) is None else {0}
    return {member - 1 for (member,) in await session.rows("commit_pointers", _columns(commits))}


async def why_not_moved(session: PostgresSession, moves: Sequence[MovePointer]) -> list[CatalogError | None]:
    """Returns for each commit why its pointer did not move; None if it can now: its row was locked."""
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
    """Returns the parameters of `commit_pointers`: for each column of `commit_pointer` a list, one value per member."""
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
    # The times differ by little; the earliest expires no answer that is still valid for a member.
    times = [change.now_ms for changes in commits for change in changes if isinstance(change, SaveAnswer)]
    columns["key_now_ms"] = min(times, default=None)
    return columns
