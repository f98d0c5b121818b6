"""kill -9 between a change and the telemetry spool: after a restart every change is in the spool, once by its id."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import postgres
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.found import await_true
from tests.support.found import database as opened
from tests.support.postgres import NOT_INSTALLED, find_binaries, running_postgres
from tests.support.workload import TABLES, Caller, create_tables

KILLS = {"sqlite": 3, "postgres": 1}  # on PostgreSQL the next server waits for the lease of one that was killed later
MAX_TRIES = 10
LOGGED = "SELECT commit_id FROM nunatak_commits ORDER BY sequence"


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RunningServer, str | None]]:
    """A server and the address of its database; None is SQLite."""
    if request.param == "sqlite":
        with running_server(tmp_path / "data") as started:
            yield started, None
        return
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as database:
        url = database.new_database()
        with running_server(tmp_path / "data", environment={"NUNATAK_DATABASE_URL": url}) as started:
            yield started, url


def column(server: RunningServer, url: str | None, sql: str) -> list[Any]:
    if url is not None:
        return [row[0] for row in asyncio.run(postgres.execute(url, sql))]
    with opened(server.data) as connection:
        return [row[0] for row in connection.execute(sql)]


def commit_ids(server: RunningServer, url: str | None) -> list[str]:
    return column(server, url, LOGGED)


def spooled(server: RunningServer) -> Counter[str]:
    """How often each change of a table is in the spool, by its id."""
    files = (server.data / "spool" / "events").rglob("*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return Counter(line["event_id"] for line in lines if line.get("table_name") is not None)


def is_handed_over(server: RunningServer, url: str | None, event_id: str) -> bool:
    """Whether the event is in the spool and the server has noted that; killed in between, it writes the event again."""
    noted = column(server, url, "SELECT position FROM nunatak_outbox_readers WHERE reader = 'spool'")
    newest = column(server, url, f"SELECT max({'sequence' if url is None else 'position'}) FROM nunatak_outbox")
    return event_id in spooled(server) and noted == newest


def property_set_to(number: int) -> dict[str, object]:
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": {"number": str(number)}}]}


def test_a_kill_between_commit_and_spool_loses_no_event(server: tuple[RunningServer, str | None]) -> None:
    mortal, url = server
    create_tables(mortal.port, ["t"])

    kills = KILLS["sqlite" if url is None else "postgres"]
    in_between = 0
    for number in range(MAX_TRIES):
        with Caller(mortal.port) as caller:
            caller.expect(200, "POST", f"{TABLES}/t", property_set_to(number))
        mortal.kill()
        last = commit_ids(mortal, url)[-1]
        in_between += last not in spooled(mortal)  # a server may hand the event over before it is killed
        mortal.restart()
        await_true("the event is in the spool", partial(is_handed_over, mortal, url, last))
        if in_between == kills:
            break
    assert in_between == kills, "the server was killed before the event reached the spool"

    mortal.kill()
    mortal.restart()
    mortal.stop()
    assert spooled(mortal) == Counter(commit_ids(mortal, url))
    assert len(spooled(mortal)) == number + 2  # with the table's creation
    mortal.restart()


def test_the_events_of_two_servers_are_in_their_spools_once(tmp_path: Path) -> None:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as database:
        url = database.new_database()
        shared = {"NUNATAK_DATABASE_URL": url, "NUNATAK_WAREHOUSE": f"file://{tmp_path}/warehouse"}
        with (
            running_server(tmp_path / "one", environment=shared) as one,
            running_server(tmp_path / "two", environment=shared) as two,
        ):
            create_tables(one.port, ["t"])
            for number in range(6):
                with Caller((one, two)[number % 2].port) as caller:
                    caller.expect(200, "POST", f"{TABLES}/t", property_set_to(number))
            one.stop()
            two.stop()
            assert spooled(one) + spooled(two) == Counter(commit_ids(one, url))
            one.restart()
            two.restart()
