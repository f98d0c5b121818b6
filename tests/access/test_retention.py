"""Old denials, logins and reads are deleted from the audit trail; changes stay, and every seal still fits."""

import functools
import json
import operator
from typing import Any

import pytest

from nunatak.access.audit_rows import audit_row
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.events.audit_buffer import AuditBuffer
from nunatak.events.retention import DAY_MS, SEALS_AT_ONCE, prune
from nunatak.events.seals import newest_records, seal_up_to, verify_export
from tests.access.test_seals import broken, exported, filled
from tests.backends.conftest import Run

READS = frozenset({"loadTable", "getToken"})
NOW_MS = 1000 * DAY_MS


async def day(store: Store, number: int) -> None:
    """Commits, administration, reads and denials of one day, sealed on it."""
    at_ms = number * DAY_MS
    await filled(store, 2, at_ms)
    buffer = AuditBuffer(lambda: at_ms)
    for reader in ("ann", "bob"):
        buffer.note(reader, "loadTable", "wh\x1fns", "allowed", None, None)
        buffer.note(reader, "TABLE_WRITE", "wh\x1fns", "denied", None, None)
    buffer.note("ann", "getToken", "", "allowed", None, None)
    await buffer.flush(store)
    row = audit_row(at_ms=at_ms, principal="ann", action="drop-role", securable="wh\x1f", detail={"role": "r"})
    await store.apply([row])
    await seal_up_to(store, lambda: at_ms + 1000, *await newest_records(store))


async def lines(store: Store) -> list[dict[str, Any]]:
    return [json.loads(line) for line in await exported(store)]


async def pruned(store: Store, days: int) -> int:
    looked_at = 0
    while count := await prune(store, NOW_MS, days, READS):
        looked_at += count
    return looked_at


def test_old_reads_and_denials_go_and_every_seal_fits(store: Store, run: Run[Any]) -> None:
    async def story() -> None:
        for number in (100, 200, 990):
            await day(store, number)
        before = await lines(store)
        assert await pruned(store, 30) == 2
        assert await broken(store) == []
        after = await lines(store)

        def told(found: list[dict[str, Any]], *, until: str) -> list[str]:
            return [each["action"] for each in found if "seal" not in each and each["time"] < until]

        gone = {"loadTable", "TABLE_WRITE", "getToken"}
        kept = [action for action in told(before, until="1972") if action not in gone]
        assert told(after, until="1972") == kept
        assert "grant" in kept
        assert "create-table" in kept
        young = [each for each in before if each.get("time", "") > "1972-08"]
        assert len(young) == 10
        assert [each for each in after if each.get("time", "") > "1972-08"] == [*young, after[-1]]
        assert after[-1]["action"] == "prune-audit"

    run(story())


def test_what_is_pruned_is_pruned_once_and_told(store: Store, run: Run[Any]) -> None:
    async def story() -> None:
        await day(store, 100)
        assert await pruned(store, 30) == 1
        assert await pruned(store, 30) == 0
        (told,) = [each for each in await lines(store) if each.get("action") == "prune-audit"]
        assert told["detail"]["deleted"] == 5
        await seal_up_to(store, lambda: NOW_MS, *await newest_records(store))
        assert await broken(store) == []

    run(story())


def test_an_export_of_a_pruned_trail_verifies_and_one_of_before_does_too(store: Store, run: Run[Any]) -> None:
    async def story() -> None:
        await day(store, 100)
        await day(store, 101)
        before = await exported(store)
        await pruned(store, 30)
        after = await exported(store)
        assert verify_export(before).broken == ()
        assert verify_export(after).broken == ()
        assert len(after) < len(before)

    run(story())


@pytest.mark.parametrize("statement", ["drop a change", "change a row"])
def test_who_deletes_more_than_that_is_found_out(store: Store, run: Run[Any], statement: str) -> None:
    async def story() -> None:
        await day(store, 100)
        await day(store, 101)
        await pruned(store, 30)
        rows = await store.rows("audit_after", {"after": 0, "last": 1 << 62, "limit": 1000})
        (first, *_), *_ = [row for row in rows if row[3] == "drop-role"]
        await store.apply([Write("drop_audit", {"first": first, "last": first})])
        if statement == "change a row":
            again = audit_row(at_ms=100 * DAY_MS, principal="eve", action="drop-role", securable="wh\x1f")
            await store.apply([again])
        assert [each.seal for each in await broken(store)] == [1]
        assert [each.seal for each in verify_export(await exported(store)).broken] == [1]

    run(story())


def test_many_seals_are_pruned_in_pieces(store: Store, run: Run[Any]) -> None:
    async def story() -> None:
        for number in range(SEALS_AT_ONCE + 3):
            row = Write(
                "add_audits", {"rows": json.dumps([[number * DAY_MS, "a", "loadTable", "", "allowed", 1, None, None]])}
            )
            await store.apply([row])
            await seal_up_to(store, functools.partial(operator.mul, number, DAY_MS), *await newest_records(store))
        assert await prune(store, NOW_MS, 30, READS) == SEALS_AT_ONCE
        assert await prune(store, NOW_MS, 30, READS) == 3
        assert await prune(store, NOW_MS, 30, READS) == 0
        assert await broken(store) == []
        assert [each["action"] for each in await lines(store) if "seal" not in each] == ["prune-audit"] * 2

    run(story())
