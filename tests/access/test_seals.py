"""Nothing that was sealed can change unnoticed: the chain of seals, who finds what was tampered with, and exports."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from nunatak.access.audit_rows import audit_row, origin_text
from nunatak.catalog.fsck import check
from nunatak.database.records import CommitEntry, CreateNamespace, InsertPointer, Key, Stored
from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store
from nunatak.events import seals
from nunatak.events.seals import Broken, export, newest_records, run_seals, seal_up_to, verify, verify_export
from tests.backends.conftest import Run
from tests.support.catalogs.local import LocalCatalog
from tests.unit.cli.conftest import run_command

DAY_MS = 86_400_000
SEALED_MS = 100 * DAY_MS
ORIGIN = origin_text("10.0.0.1", ["analyst"], "spark")


async def filled(store: Store, count: int = 6, at_ms: int = 1_000) -> None:
    """So many commits and as many audit rows, a second apart."""
    if not await store.namespace_exists("wh", "ns"):
        await store.apply([CreateNamespace("wh", "ns", (), {}, "ns")])
    (start, _) = await newest_records(store)
    for number in range(start + 1, start + count + 1):
        moment = at_ms + 1_000 * number
        new = Stored(f"file:///w/t{number}/v1", f"uuid-{number}", f"file:///w/t{number}", b"{}")
        line = CommitEntry(f"c{number}", "create-table", "ann", moment, f"q{number}", origin=ORIGIN)
        table = InsertPointer(Key("wh", "ns", f"t{number}"), "TABLE", new, line, f"ns.t{number}", "ns")
        told = {"role": f"r{number}"}
        row = audit_row(at_ms=moment, principal="bob", action="grant", securable="wh\x1f", detail=told, origin=ORIGIN)
        await store.apply([table])
        await store.apply([row])


async def sealed(store: Store) -> int:
    return await seal_up_to(store, lambda: SEALED_MS, *await newest_records(store))


async def broken(store: Store) -> list[Broken]:
    return [each async for each in verify(store)]


async def exported(store: Store, after_seal: int = 0) -> list[bytes]:
    return [line async for line in export(store, after_seal)]


def independently_verified(lines: list[bytes]) -> list[int]:
    """As a stranger would, from the documentation alone: the numbers of the seals that do not fit."""
    wrong, waiting, previous = [], b"", "0" * 64
    for line in lines:
        seal = json.loads(line)
        if "seal" not in seal:
            waiting += line + b"\n"
            continue
        header = f"{previous} {seal['seal']} {seal['day']} {seal['sealed_ms']}\n".encode()
        if hashlib.sha256(header + waiting).hexdigest() != seal["hash"]:
            wrong.append(seal["seal"])
        waiting, previous = b"", seal["hash"]
    return wrong


# Sealing


def test_what_nobody_touched_is_verified_in_the_database_and_in_an_export(store: Store, run: Run[Any]) -> None:
    run(filled(store))
    assert run(sealed(store)) == 1
    assert run(sealed(store)) == 0  # there is nothing new
    run(filled(store, 2, at_ms=DAY_MS))
    assert run(sealed(store)) == 1
    run(filled(store, 1, at_ms=DAY_MS))

    assert run(broken(store)) == []
    lines = run(exported(store))
    assert independently_verified(lines) == []
    verified = verify_export(lines)
    assert (verified.broken, len(verified.unsealed)) == ((), 2)
    shown = [(seal["seal"], seal["day"], seal["records"]) for seal in map(json.loads, lines) if "seal" in seal]
    assert shown == [(1, "1970-01-01", 12), (2, "1970-01-02", 4)]
    assert run(exported(store, after_seal=1)) == lines[13:]


def test_a_seal_covers_one_day_and_there_is_one_for_each(store: Store, run: Run[Any]) -> None:
    for day in (3, 1, 2):  # a clock was wrong
        run(filled(store, 1, at_ms=day * DAY_MS))

    run(sealed(store))

    covered = [json.loads(line) for line in run(exported(store))]
    assert [(seal["day"], seal["records"]) for seal in covered if "seal" in seal] == [("1970-01-04", 6)]
    run(filled(store, 1, at_ms=5 * DAY_MS))
    run(filled(store, 1, at_ms=6 * DAY_MS))
    assert run(sealed(store)) == 2
    assert run(broken(store)) == []


def test_many_records_have_several_seals(tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MAX_RECORDS", 5)
    store = SqliteStore(tmp_path / "catalog.db")
    run(filled(store, 6))

    assert run(sealed(store)) == 3
    assert run(broken(store)) == []
    assert independently_verified(run(exported(store))) == []
    run(store.close())


def test_servers_that_seal_at_the_same_time_make_one_chain(store: Store, run: Run[Any]) -> None:
    async def together() -> list[int]:
        return await asyncio.gather(*(sealed(store) for _ in range(4)))

    for _ in range(3):
        run(filled(store, 2))
        assert sum(run(together())) == 1

    assert run(broken(store)) == []
    assert len([line for line in run(exported(store)) if line.startswith(b'{"seal"')]) == 3


def test_a_server_seals_again_and_again_but_never_what_just_came(tmp_path: Path, run: Run[Any]) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    marks: list[int] = []
    clock = iter(range(SEALED_MS, SEALED_MS + 10 * DAY_MS, DAY_MS))

    def now_ms() -> int:
        return next(clock)

    async def work() -> None:
        duty = asyncio.create_task(run_seals(store, now_ms, pause_seconds=0.01))
        for _ in range(500):
            newest = await seals.newest_seal(store)
            if newest.number > len(marks):
                marks.append(newest.commits_to)
                if len(marks) == 2:
                    break
                await filled(store, 1)
            await asyncio.sleep(0.001)
        duty.cancel()
        await asyncio.gather(duty, return_exceptions=True)

    run(filled(store, 3))
    run(work())

    assert marks == [3, 4]
    assert run(broken(store)) == []
    run(store.close())


# Tampering


@pytest.fixture
def tampered(tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """Three seals over four commits and four audit rows each."""
    store = SqliteStore(tmp_path / "catalog.db")
    for _ in range(3):
        run(filled(store, 4))
        run(sealed(store))
    assert run(broken(store)) == []
    yield store
    run(store.close())


def tamper(tmp_path: Path, sql: str) -> None:
    with closing(apsw.Connection(str(tmp_path / "catalog.db"))) as connection:
        connection.execute(sql).fetchall()
        assert connection.total_changes() > 0


AGAIN = (
    "INSERT INTO nunatak_audit (sequence, at_ms, principal, action, securable, outcome)"
    " SELECT {}, at_ms, principal, action, securable, outcome FROM nunatak_audit WHERE sequence = 6"
)
TAMPERING = {
    "who committed": ("UPDATE nunatak_commits SET principal = 'eve' WHERE sequence = 6", [2]),
    "when": ("UPDATE nunatak_commits SET committed_ms = committed_ms + 1 WHERE sequence = 6", [2]),
    "what was committed": ("UPDATE nunatak_commits SET metadata_location = 'file:///x' WHERE sequence = 6", [2]),
    "from where": (
        "UPDATE nunatak_commits SET origin = replace(origin, '10.0.0.1', '10.0.0.2') WHERE sequence = 6",
        [2],
    ),
    "which request": ("UPDATE nunatak_commits SET request_id = NULL WHERE sequence = 6", [2]),
    "a commit removed": ("DELETE FROM nunatak_commits WHERE sequence = 6", [2]),
    "the first record removed": ("DELETE FROM nunatak_commits WHERE sequence = 1", [1]),
    "who was granted": ("UPDATE nunatak_audit SET detail = replace(detail, 'r6', 'r7') WHERE sequence = 6", [2]),
    "what it was about": ("UPDATE nunatak_audit SET securable = '' WHERE sequence = 6", [2]),
    "how it ended": ("UPDATE nunatak_audit SET outcome = 'denied' WHERE sequence = 6", [2]),
    "how often": ("UPDATE nunatak_audit SET repeats = 2 WHERE sequence = 6", [2]),
    "a row removed": ("DELETE FROM nunatak_audit WHERE sequence = 8", [2]),
    "a time that is none": ("UPDATE nunatak_audit SET at_ms = 9223372036854775807 WHERE sequence = 6", [2]),
    "a detail that is none": ("UPDATE nunatak_audit SET detail = '{' WHERE sequence = 6", [2]),
    "a row added below": (AGAIN.format(-5), [1]),
    "two rows in another order": (
        "UPDATE nunatak_audit SET sequence = CASE sequence WHEN 6 THEN 107 ELSE 106 END WHERE sequence IN (6, 7);"
        "UPDATE nunatak_audit SET sequence = sequence - 100 WHERE sequence > 100",
        [2],
    ),
    "a row moved to another seal": ("UPDATE nunatak_audit SET sequence = 0 WHERE sequence = 6", [1, 2]),
    "a hash": ("UPDATE nunatak_seals SET hash = zeroblob(32) WHERE number = 2", [2, 3]),
    "a day": ("UPDATE nunatak_seals SET day = '1970-01-02' WHERE number = 2", [2]),
    "when it was sealed": ("UPDATE nunatak_seals SET sealed_ms = sealed_ms - 1 WHERE number = 2", [2]),
    "how many": ("UPDATE nunatak_seals SET records = 7 WHERE number = 2", [2]),
    "how far": ("UPDATE nunatak_seals SET commits_to = 7 WHERE number = 2", [2, 3]),
    "a seal removed": ("DELETE FROM nunatak_seals WHERE number = 2", [3]),
    "the first seal removed": ("DELETE FROM nunatak_seals WHERE number = 1", [2]),
    "seals in another order": (
        "UPDATE nunatak_seals SET number = CASE number WHEN 2 THEN 13 ELSE 12 END WHERE number IN (2, 3);"
        "UPDATE nunatak_seals SET number = number - 10 WHERE number > 10",
        [2, 3],
    ),
    "a record and its count": (
        "DELETE FROM nunatak_audit WHERE sequence = 6; UPDATE nunatak_seals SET records = 7 WHERE number = 2",
        [2],
    ),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_what_was_changed_behind_the_servers_back_is_found(
    tampered: SqliteStore, tmp_path: Path, run: Run[Any], name: str
) -> None:
    sql, expected = TAMPERING[name]
    tamper(tmp_path, sql)

    assert [each.seal for each in run(broken(tampered))] == expected
    verified = verify_export(run(exported(tampered)))
    assert {each.seal for each in verified.broken} <= set(expected)
    assert verified.broken or name in ("the first seal removed",)  # what an export begins with is taken on trust


def test_the_range_that_does_not_fit_is_named(tampered: SqliteStore, tmp_path: Path, run: Run[Any]) -> None:
    tamper(tmp_path, "DELETE FROM nunatak_audit WHERE sequence = 6")

    (found,) = run(broken(tampered))

    assert found.text == "it covers 7 records, 1 fewer than were sealed (commits 5 to 8, audit rows 5 to 8)"


def test_what_is_cut_off_at_the_end_is_found_by_an_export_of_before(
    tampered: SqliteStore, tmp_path: Path, run: Run[Any]
) -> None:
    """The database alone cannot tell: whoever may write it may also seal it anew."""
    before = verify_export(run(exported(tampered)))
    tamper(tmp_path, "DELETE FROM nunatak_audit WHERE sequence > 8; DELETE FROM nunatak_seals WHERE number = 3")
    run(sealed(tampered))

    assert run(broken(tampered)) == []
    assert before.last is not None
    assert run(seals.load_seal(tampered, 3)).hash.hex() != before.last.hash


@pytest.mark.parametrize("number", range(10))
def test_a_line_changed_in_an_export_is_found(tmp_path: Path, run: Run[Any], number: int) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    run(filled(store, 2))
    run(sealed(store))
    run(filled(store, 2))
    run(sealed(store))
    lines = run(exported(store))
    lines[number] = lines[number].replace(b"1", b"7", 1)

    assert verify_export(lines).broken
    assert independently_verified(lines)
    run(store.close())


# fsck and the command line


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    catalog = LocalCatalog(tmp_path / "data")
    catalog.namespace("a")
    catalog.table("a", "t")
    catalog.run(sealed(catalog.store))
    yield catalog
    catalog.close()


async def damage(catalog: LocalCatalog) -> list[tuple[str, str, str]]:
    return [(each.kind, each.severity, each.object) async for each in check(catalog.app.catalog, None)]


def test_fsck_verifies_the_audit_trail(catalog: LocalCatalog) -> None:
    assert catalog.run(damage(catalog)) == []

    catalog.rows("UPDATE nunatak_audit SET principal = 'eve'")

    assert catalog.run(damage(catalog)) == [("broken-audit", "error", "seal 1")]


def test_an_operator_lists_exports_and_verifies(catalog: LocalCatalog, tmp_path: Path) -> None:
    file, data = tmp_path / "audit.jsonl", str(catalog.data)

    listed = run_command("audit", "list", "--securable", "namespace:default/a", "-o", "json", "--data", data)
    assert [record["action"] for record in listed.json] == ["create-table", "create-namespace"]
    table = run_command("audit", "list", "--action", "create-table", "--since", "2020-01-01", "--data", data)
    assert "table:default/a/t" in table.out
    assert "create-namespace" not in table.out
    assert run_command("audit", "export", str(file), "--data", data).code == 0
    assert independently_verified(file.read_bytes().splitlines()) == []
    verified = run_command("audit", "verify", str(file), "--data", data)
    assert (verified.code, verified.out.splitlines()[-1]) == (0, "No change found.")

    catalog.rows("UPDATE nunatak_commits SET principal = 'eve'")

    outcome = run_command("audit", "verify", "--data", data)
    assert outcome.code == 1
    assert (
        "seal 1: a record it covers, or the seal itself, was changed (commits 1 to 1, audit rows 1 to 1)" in outcome.out
    )
    assert run_command("audit", "verify", str(file), "--file-only").code == 0


def test_lines_that_no_seal_covers_must_be_records_of_the_database(catalog: LocalCatalog, tmp_path: Path) -> None:
    """Whoever leaves the seals out of an export would else have it called unchanged."""
    file, data = tmp_path / "audit.jsonl", str(catalog.data)
    catalog.run(filled(catalog.store, 2))
    run_command("audit", "export", str(file), "--data", data)
    whole = run_command("audit", "verify", str(file), "--data", data)
    alone = run_command("audit", "verify", str(file), "--file-only")
    lines = file.read_bytes().splitlines(keepends=True)
    records = [line for line in lines if not line.startswith(b'{"seal"')]
    file.write_bytes(b"".join(records))
    unsealed = run_command("audit", "verify", str(file), "--data", data)
    unproven = run_command("audit", "verify", str(file), "--file-only")
    file.write_bytes(b"".join([records[0], records[0], *records[1:-1], records[-1].replace(b"bob", b"eve")]))
    forged = run_command("audit", "verify", str(file), "--data", data)
    file.write_text("hello\n")
    nonsense = run_command("audit", "verify", str(file), "--data", data)

    assert [each.code for each in (whole, alone, unsealed)] == [0, 0, 0]
    assert alone.out.endswith("No change up to seal 1; the lines after it are not sealed.\n")
    assert (unproven.code, "the file has no seal" in unproven.out) == (1, True)
    assert (forged.code, "2 of the file's lines after seal 0 are not in the database" in forged.out) == (1, True)
    assert (nonsense.code, "1 of the file's lines" in nonsense.out) == (1, True)


def test_an_export_shows_that_the_database_has_other_seals(catalog: LocalCatalog, tmp_path: Path) -> None:
    file, data = tmp_path / "audit.jsonl", str(catalog.data)
    run_command("audit", "export", str(file), "--data", data)
    catalog.rows("DELETE FROM nunatak_audit")
    catalog.rows("DELETE FROM nunatak_seals")
    gone = run_command("audit", "verify", str(file), "--data", data)
    catalog.run(sealed(catalog.store))

    other = run_command("audit", "verify", str(file), "--data", data)

    assert run_command("audit", "verify", "--data", data).code == 0
    assert (gone.code, other.code) == (1, 1)
    assert "seal 1 of the file is missing in the database" in gone.out
    assert "seal 1 differs between the database and the file" in other.out
