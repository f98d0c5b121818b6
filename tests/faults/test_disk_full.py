"""A full disk: changes are refused for certain, reads go on, and so does all else once there is room again (F8)."""

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.checked import assert_sound
from tests.support.history import Attempt, findings, kinds_of
from tests.support.promises import show
from tests.support.workload import TABLES, Caller, Run, Writer, await_true, create_tables, database, find_tables, seeded

FILLS = int(os.environ.get("NUNATAK_TEST_FILLS", "2"))  # of each kind
SMALL = "12m"
WRITERS = 4
NAMES = ("t1", "t2", "t3")
BLOCK = bytes(64 * 1024)
NO_MOUNT = "NOT RUN: a small disk cannot be mounted here (tmpfs needs root)"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"{NO_MOUNT}: {mounted.stderr.decode(errors='replace').strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all room that is left; returns the file that holds it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for block in (BLOCK, b"x" * 512):
            with contextlib.suppress(OSError):
                while True:
                    file.write(block)
    return ballast


class PatientWriter(Writer):
    """Takes every answer for an answer: what is refused for now it does not send again."""

    def _send(self, caller: Caller, path: str, body: bytes) -> int | None:
        return caller.send("POST", path, body).status


def writers(port: int, chance: random.Random) -> Run:
    return Run(
        [PatientWriter(number, port, NAMES, random.Random(chance.random()), keyed=False) for number in range(WRITERS)]
    )


def fill_and_free(server: RunningServer, small_disk: Path, run: Run, fills: int) -> None:
    """Again and again: full until somebody was refused, reads meanwhile, then room until somebody commits."""
    for _ in range(fills):
        run.await_applied(run.applied + 5)
        failed = len(without_room(run))
        ballast = fill(small_disk)
        await_true("commits meet the full disk", lambda: run.still_works() and len(without_room(run)) > failed + 3)  # noqa: B023
        with Caller(server.port) as caller:
            for name in NAMES:
                caller.expect(200, "GET", f"{TABLES}/{name}")
            caller.expect(200, "GET", TABLES)
        ballast.unlink()
        run.await_applied(run.applied + 5)


def without_room(run: Run) -> list[Attempt]:
    return [attempt for attempt in run.attempts if (attempt.status or 0) >= 500]


def environment_for(what: str, small_disk: Path, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The data folder and the settings that put the database, or the tables, on the small disk."""
    roomy = tmp_path / "roomy"
    roomy.mkdir()
    if what == "database":
        return small_disk / "data", {"NUNATAK_WAREHOUSE": f"file://{roomy}"}
    return roomy / "data", {"NUNATAK_WAREHOUSE": f"file://{small_disk}/warehouse"}


@pytest.mark.unsound("the small disk is gone by then; it is asked while the disk is there")
@pytest.mark.timeout(max(600, FILLS * 30))
@pytest.mark.parametrize("what", ["database", "warehouse"])
def test_a_full_disk_refuses_for_certain_and_heals_itself(small_disk: Path, tmp_path: Path, what: str) -> None:
    chance = seeded(f"full-{what}")
    data, environment = environment_for(what, small_disk, tmp_path)
    with running_server(data, environment=environment) as server:
        create_tables(server.port, NAMES)
        run = writers(server.port, chance)
        with run.working():
            fill_and_free(server, small_disk, run, FILLS)
        with Caller(server.port) as caller:
            caller.expect(200, "GET", "/ready")
        tables = find_tables(data, server.port, NAMES)
        # While the disk is still mounted: after the test it is gone.
        with database(data) as connection:
            assert connection.execute("PRAGMA integrity_check").get == "ok"
        assert_sound(data, environment=environment)
    sentences = findings(run.attempts, run.reads, tables)
    kinds = kinds_of(sentences)
    failed = without_room(run)
    held = {snapshot_id for table in tables for snapshot_id in table.snapshots}
    show(
        "F8",
        f"a full disk under the {what}: refused for certain, nothing corrupt, goes on when there is room",
        fills=FILLS,
        commits=run.applied,
        refused_for_lack_of_room=len(failed),
        **{kind: kinds[kind] for kind in ("lost", "doubled", "dangling", "wrong answer")},
        corrupt=0,
    )
    assert sentences == []
    assert {attempt.status for attempt in failed} == {503}  # certain, and worth another try
    assert [attempt for attempt in failed if held & set(attempt.snapshots.values())] == []


def test_a_server_that_answers_before_it_knows_is_found_out(small_disk: Path, tmp_path: Path) -> None:
    """The canary: it says 200 for commits that the full disk never took."""
    chance = seeded("full-canary")
    data, environment = environment_for("database", small_disk, tmp_path)
    with running_server(data, environment=environment, broken="answer-before-commit") as server:
        create_tables(server.port, NAMES)
        run = writers(server.port, chance)
        with run.working():
            run.await_applied(20)
            ballast = fill(small_disk)
            run.await_applied(run.applied + 20)
            ballast.unlink()
        with contextlib.suppress(apsw.Error):
            found = kinds_of(findings(run.attempts, run.reads, find_tables(data, server.port, NAMES)))
    print(dict(found))
    assert found["lost"]
