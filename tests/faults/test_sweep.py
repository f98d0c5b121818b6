"""What a killed server leaves in the warehouse goes by itself, and nothing else does: the server's own sweep."""

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tests.support.caller import Caller, Lost
from tests.support.catalogs.process import running_server
from tests.support.checked import assert_sound, findings, settings_for
from tests.support.found import await_true, database, local_path
from tests.support.promises import show
from tests.support.workload import TABLES, Writer, append_to, create_tables, seeded

NAMES = ("t1", "t2", "t3")
SWEPT_OFTEN = {"NUNATAK_SWEEP_SECONDS": "1", "NUNATAK_SWEEP_AGE_SECONDS": "1"}


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Nobody can write the database: a commit in flight has written its file and waits to move the pointer."""
    connection = apsw.Connection(str(data / "nunatak.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        yield
    finally:
        connection.execute("ROLLBACK").fetchall()
        connection.close()


def files(data: Path) -> set[Path]:
    return set((data / "warehouse").rglob("*.metadata.json"))


def append_each(port: int, names: Sequence[str], chance: random.Random) -> None:
    for number, name in enumerate(names):
        writer = Writer(number, port, [name], random.Random(chance.random()), keyed=True)
        writer.run(lambda done: done >= 2)


def append_in_vain(port: int, name: str, chance: random.Random) -> None:
    """An append whose server dies."""
    with Caller(port) as caller:
        metadata = caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"]
        body = json.dumps(append_to(name, metadata, chance.getrandbits(62), "in vain")).encode()
        with pytest.raises(Lost):
            caller.send("POST", f"{TABLES}/{name}", body)


def test_files_of_commits_that_died_with_their_server_are_swept(tmp_path: Path) -> None:
    chance = seeded("sweep")
    with running_server(tmp_path / "data", environment=SWEPT_OFTEN) as server:
        create_tables(server.port, NAMES)
        append_each(server.port, NAMES, chance)
        before = files(server.data)
        with locked(server.data):
            waiting = [
                threading.Thread(target=append_in_vain, args=(server.port, name, random.Random(chance.random())))
                for name in NAMES
            ]
            for each in waiting:
                each.start()
            await_true("each commit has written its file", lambda: len(files(server.data) - before) == len(NAMES))
            server.kill()
        for each in waiting:
            each.join()
        left_behind = files(server.data) - before
        server.restart()

        # Ahead of the pointer they may be all that is left of a commit; once the tables moved on they are nothing.
        append_each(server.port, NAMES, chance)
        await_true("what was left behind is gone", lambda: not left_behind & files(server.data))

        with database(server.data) as connection:
            named = {local_path(row[0]) for row in connection.execute("SELECT metadata_location FROM nunatak_commits")}
        assert files(server.data) == named
        assert findings(settings_for(server.data), 0) == []
        assert_sound(server.data, age_ms=0)
    show(
        "F1", "the sweep deletes what killed commits left, and only that", left_behind=len(left_behind), kept=len(named)
    )


def test_a_server_whose_sweep_is_off_leaves_every_file(tmp_path: Path) -> None:
    """The canary: without the sweep fsck finds what it would have deleted."""
    chance = seeded("no-sweep")
    with running_server(tmp_path / "data", environment={"NUNATAK_SWEEP_AGE_SECONDS": "0"}) as server:
        create_tables(server.port, NAMES[:1])
        before = files(server.data)
        with locked(server.data):
            waiting = threading.Thread(target=append_in_vain, args=(server.port, NAMES[0], chance))
            waiting.start()
            await_true("the commit has written its file", lambda: files(server.data) != before)
            server.kill()
        waiting.join()
        server.restart()
        assert [each.kind for each in findings(settings_for(server.data), 0)] == ["file-ahead"]
        append_each(server.port, NAMES[:1], chance)

        assert [each.kind for each in findings(settings_for(server.data), 0)] == ["orphan"]
