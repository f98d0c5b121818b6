"""Files that cannot be written, are cut short or take long: every answer stays true and nothing is left behind (F7)."""

import asyncio
import contextlib
import dataclasses
import gzip
import json
import os
import random
from pathlib import Path

import pytest

from nunatak.catalog import sweep
from tests.faults.test_kill import move_on, orphans, sweep_once
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.checked import assert_sound
from tests.support.history import FoundTable, findings, kinds_of
from tests.support.hostile_disk import HostileDisk
from tests.support.promises import show
from tests.support.workload import NAMESPACE, SCHEMA, TABLES, Caller, Run, Writer, find_tables, seeded

COMMITS = int(os.environ.get("NUNATAK_TEST_DISK_COMMITS", "150"))
SHARE = 0.15  # of the calls; a commit makes several
WRITERS = 6
NAMES = ("t1", "t2", "t3", "packed1", "packed2")


def create_all(port: int) -> None:
    """Tables of both kinds: files that share their way to the disk, and packed ones, which go by themselves."""
    with Caller(port) as caller:
        caller.expect(200, "POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
        for name in NAMES:
            codec = "gzip" if name.startswith("packed") else "none"
            properties = {"write.metadata.compression-codec": codec}
            caller.expect(200, "POST", TABLES, {"name": name, "schema": SCHEMA, "properties": properties})


def writers(port: int, chance: random.Random) -> Run:
    return Run(
        [Writer(number, port, NAMES, random.Random(chance.random()), number % 2 == 0) for number in range(WRITERS)]
    )


@pytest.fixture
def disk(tmp_path: Path) -> HostileDisk:
    chance = seeded("disk")
    return HostileDisk(tmp_path, chance.getrandbits(32))


def create_among_faults(port: int, chance: random.Random) -> tuple[set[str], set[str]]:
    """Names that were answered 200 and names that were refused, of tables made while the disk is bad."""
    made: set[str] = set()
    refused: set[str] = set()
    with Caller(port) as caller:
        for number in range(30):
            name = f"new{number}"
            codec = chance.choice(["gzip", "none"])
            body = {"name": name, "schema": SCHEMA, "properties": {"write.metadata.compression-codec": codec}}
            status = caller.send("POST", TABLES, json.dumps(body).encode()).status
            assert status in (200, 500, 503), status
            (made if status == 200 else refused).add(name)
    return made, refused


def unpacked(tables: list[FoundTable]) -> list[FoundTable]:
    """As the checker reads them."""
    return [
        dataclasses.replace(table, pointer_file=gzip.decompress(table.pointer_file))
        if table.pointer_file is not None and table.name.startswith("packed")
        else table
        for table in tables
    ]


def suffer(server: RunningServer, disk: HostileDisk, chance: random.Random) -> Run:
    """Appends on a bad disk, then some on a good one."""
    create_all(server.port)
    run = writers(server.port, chance)
    with run.working():
        disk.on(SHARE)
        run.await_applied(COMMITS)
        disk.off()
        run.await_applied(run.applied + 20)
    return run


@pytest.mark.timeout(max(600, COMMITS))
@pytest.mark.parametrize("linux_syscalls", ["true", "false"])
def test_a_bad_disk_makes_no_answer_wrong(
    tmp_path: Path, disk: HostileDisk, monkeypatch: pytest.MonkeyPatch, linux_syscalls: str
) -> None:
    chance = seeded("object-store")
    data = tmp_path / "data"
    environment = {**disk.environment, "NUNATAK_LINUX_SYSCALLS": linux_syscalls}
    with running_server(data, environment=environment, broken="hostile-disk") as server:
        run = suffer(server, disk, chance)
        disk.on(0.1)
        made, refused = create_among_faults(server.port, chance)
        disk.off()
        with Caller(server.port) as caller:
            listed = {each["name"] for each in caller.expect(200, "GET", TABLES)["identifiers"]}
        last = move_on(server.port, NAMES, chance)
        tables = unpacked(find_tables(data, server.port, NAMES))
    sentences = findings([*run.attempts, *last.attempts], [*run.reads, *last.reads], tables)
    held = {snapshot_id for table in tables for snapshot_id in table.snapshots}
    failed = [attempt for attempt in run.attempts if (attempt.status or 0) >= 500]
    faults = disk.faults()
    monkeypatch.setattr(sweep, "SLEEP_FACTOR", 0)
    swept = asyncio.run(sweep_once(data))
    left = {file for file in orphans(data / "warehouse", tables) if name_of(file) not in made}
    kinds = kinds_of(sentences)
    show(
        "F7",
        "a disk that fails, stops short or is slow makes no answer wrong and leaves nothing behind",
        commits=run.applied,
        faults=faults.total(),
        kinds=len(faults),
        failed_requests=len(failed) + len(refused),
        **{kind: kinds[kind] for kind in ("lost", "doubled", "dangling", "wrong answer")},
        swept=swept,
        orphans=len(left),
    )
    print(dict(faults), run.summary())
    assert sentences == []
    assert [attempt for attempt in failed if held & set(attempt.snapshots.values())] == []  # no file, no commit
    assert (made <= listed, refused & listed) == (True, set())
    assert left == set()
    assert faults.total() > COMMITS // 10
    assert_sound(data, age_ms=0)


def name_of(file: Path) -> str:
    """The table in whose folder a metadata file lies."""
    return file.parent.parent.name.partition("-")[0]


def test_a_server_that_ignores_write_errors_is_found_out(tmp_path: Path, disk: HostileDisk) -> None:
    """The canary: its pointers lead to files that are not there, or not whole."""
    chance = seeded("object-store-canary")
    broken = "write-errors-ignored,hostile-disk"
    with running_server(tmp_path / "data", environment=disk.environment, broken=broken) as server:
        create_all(server.port)
        disk.on(0.5)
        found = dangling_after_commits(server, chance)
    print(f"{found} of {len(NAMES)} tables dangle")
    assert found


def dangling_after_commits(server: RunningServer, chance: random.Random) -> int:
    run = writers(server.port, chance)
    for writer in run.writers:
        with contextlib.suppress(AssertionError):  # its table cannot be loaded any more
            writer.run(lambda done: done >= 5)
    with Caller(server.port) as caller:
        return sum(caller.send("GET", f"{TABLES}/{name}").status == 404 for name in NAMES)
