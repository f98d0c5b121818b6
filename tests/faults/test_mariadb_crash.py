"""MariaDB itself is killed under load and comes back: nothing acknowledged is lost, and what was answered meanwhile was
true (F3)."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nunatak.settings import load
from tests.faults.test_postgres_crash import REQUESTS, ask, seconds_until_applied
from tests.support.catalogs.cluster import running_cluster
from tests.support.checked import assert_settings_sound
from tests.support.cluster_clients import spread_writers, tables_for
from tests.support.history import findings
from tests.support.mariadb import NOT_INSTALLED, MariadbServer, find_server, running_mariadb
from tests.support.promises import show
from tests.support.workload import TABLES, Caller, append_to, create_tables, seeded

# A night's run sets more.
CRASHES = int(os.environ.get("NUNATAK_TEST_CRASHES", "2"))
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "150"))
WRITERS = 8


@pytest.fixture
def mariadb() -> Iterator[MariadbServer]:
    if find_server() is None:
        pytest.skip(NOT_INSTALLED)
    with running_mariadb() as server:
        yield server


def test_a_database_that_is_killed_under_load_loses_nothing_acknowledged(
    tmp_path: Path, mariadb: MariadbServer
) -> None:
    """Two servers on one database. MISSION: 003-25"""
    chance = seeded("MariaDB is killed")
    names = tables_for(COMMITS)
    pauses: list[float] = []
    with running_cluster(tmp_path / "data", mariadb.new_database()) as cluster:
        create_tables(cluster.ports[0], names)
        run = spread_writers(cluster.ports, names, chance, WRITERS)

        with run.working():
            for number in range(CRASHES):
                run.await_applied(COMMITS * (number + 1) // (CRASHES + 1))
                time.sleep(chance.uniform(0, 0.05))
                mariadb.kill()
                time.sleep(chance.uniform(0, 1))
                mariadb.start()
                pauses.append(seconds_until_applied(run))
            run.await_applied(COMMITS)

        print(run.summary())
        assert findings(run.attempts, run.reads, cluster.find_tables(names)) == []
        assert_settings_sound(load({"data": cluster.data}, {"NUNATAK_DATABASE_URL": cluster.url}))
    show(
        "F3",
        "MariaDB killed and restarted under two servers",
        commits=run.applied,
        crashes=CRASHES,
        unknown=run.count("unknown"),
        slowest_resume_seconds=round(max(pauses), 2),
        findings=0,
    )


def test_without_its_database_a_server_says_that_nothing_was_done_and_when_to_come_back(
    tmp_path: Path, mariadb: MariadbServer
) -> None:
    """And it needs no restart when the database is back."""
    with running_cluster(tmp_path / "data", mariadb.new_database(), count=1) as cluster:
        (port,) = cluster.ports
        create_tables(port, ["t"])
        with Caller(port) as caller:
            change = append_to("t", caller.expect(200, "GET", f"{TABLES}/t")["metadata"], 11, "later")
        requests = {**REQUESTS, "commit": ("POST", f"{TABLES}/t", change)}

        mariadb.kill()
        answers = {name: ask(port, *request) for name, request in requests.items()}
        mariadb.start()

        assert answers == dict.fromkeys(requests, (503, "1"))
        with Caller(port) as caller:
            caller.expect(200, "GET", "/ready")
            caller.expect(200, "POST", f"{TABLES}/t", change)
            assert caller.expect(200, "GET", TABLES)["identifiers"] == [{"namespace": ["faults"], "name": "t"}]
        (found,) = cluster.find_tables(["t"])
        assert found.chain == [11]
