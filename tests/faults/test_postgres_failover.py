"""The primary dies and its standby takes over: with synchronous replication nothing acknowledged is lost (F4)."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nunatak.database import postgres_connections, server_store
from nunatak.database.postgres import open_store
from nunatak.errors import OutcomeUnknown
from tests.backends.builders import create_namespace, insert, move, stored
from tests.support.catalogs.cluster import running_cluster
from tests.support.checked import assert_sound
from tests.support.cluster_clients import spread_writers, tables_for
from tests.support.history import findings, kinds_of
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres, running_standby
from tests.support.promises import show
from tests.support.workload import Run, create_tables, seeded

# A night's run sets more.
FAILOVERS = int(os.environ.get("NUNATAK_TEST_FAILOVERS", "1"))
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "100"))
WRITERS = 8
FROZEN_SECONDS = 1.0  # for commits that nobody may acknowledge


class Pair:
    """A primary and a standby that change places; a client knows both addresses and wants the one that can write."""

    def __init__(self, stack: ExitStack, *, synchronous: bool) -> None:
        if find_binaries() is None:
            pytest.skip(NOT_INSTALLED)
        self._stack = stack
        self._synchronous = synchronous
        self.primary: PostgresServer = stack.enter_context(running_postgres())
        self.ports = [self.primary.port]
        self.database = self.primary.new_database().rpartition("/")[2]
        self.follow()

    def follow(self) -> None:
        """Give the primary a new standby, on the port that is free."""
        free = next((port for port in self.ports if port != self.primary.port), 0)
        self.standby = self._stack.enter_context(running_standby(self.primary, port=free))
        self.ports = [*dict.fromkeys([*self.ports, self.standby.port])]
        self.primary.follow_with(self.standby, synchronous=self._synchronous)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://postgres@{hosts}/{self.database}?target_session_attrs=read-write"

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()
        self.primary = self.standby


@contextmanager
def running_pair(*, synchronous: bool) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack, synchronous=synchronous)


def test_a_standby_that_takes_over_has_everything_that_was_acknowledged(tmp_path: Path) -> None:
    """MISSION: 003-37, 003-74"""
    chance = seeded("failover")
    names = tables_for(COMMITS)
    pauses: list[float] = []
    with running_pair(synchronous=True) as pair, running_cluster(tmp_path / "data", pair.url) as cluster:
        create_tables(cluster.ports[0], names)
        run = spread_writers(cluster.ports, names, chance, WRITERS)

        with run.working():
            for number in range(FAILOVERS):
                run.await_applied(COMMITS * (number + 1) // (FAILOVERS + 1))
                time.sleep(chance.uniform(0, 0.1))
                pair.fail_over()
                pauses.append(seconds_until_applied(run))
                if number + 1 < FAILOVERS:
                    pair.follow()
            run.await_applied(COMMITS)

        print(run.summary())
        assert findings(run.attempts, run.reads, cluster.find_tables(names)) == []
        assert_sound(pair.url, warehouse=cluster.data / "warehouse")
    show(
        "F4",
        "primary killed, synchronous standby promoted",
        commits=run.applied,
        failovers=FAILOVERS,
        unknown=run.count("unknown"),
        slowest_resume_seconds=round(max(pauses), 2),
        findings=0,
    )


def seconds_until_applied(run: Run) -> float:
    started = time.monotonic()
    run.await_applied(run.applied + 1)
    return time.monotonic() - started


def fail_over_behind_the_standbys_back(tmp_path: Path, *, synchronous: bool) -> tuple[Run, list[str]]:
    """What is found when the standby hears nothing of the last commits before it takes over."""
    chance = seeded(f"frozen {synchronous}")
    with (
        running_pair(synchronous=synchronous) as pair,
        running_cluster(tmp_path / "data", pair.url, count=1) as cluster,
    ):
        create_tables(cluster.ports[0], ["t"])
        run = spread_writers(cluster.ports, ["t"], chance, 4)
        with run.working():
            run.await_applied(8)
            pair.primary.freeze_replication()
            time.sleep(FROZEN_SECONDS)
            before = run.applied
            time.sleep(FROZEN_SECONDS)
            acknowledged = run.applied - before
            pair.fail_over()
            run.await_applied(run.applied + 8)
        print(f"{acknowledged} acknowledged while the standby heard nothing; {run.summary()}")
        assert (acknowledged > 0) == (not synchronous)
        return run, findings(run.attempts, run.reads, cluster.find_tables(["t"]))


def test_a_commit_that_the_standby_has_not_got_is_not_acknowledged(tmp_path: Path) -> None:
    assert fail_over_behind_the_standbys_back(tmp_path, synchronous=True)[1] == []


def test_with_asynchronous_replication_a_failover_loses_and_is_found_out(tmp_path: Path) -> None:
    """The canary, and the reason why docs ask for a synchronous standby."""
    run, found = fail_over_behind_the_standbys_back(tmp_path, synchronous=False)

    lost = kinds_of(found)["lost"]
    assert lost > 0
    show("F4", "asynchronous replication, for comparison: loses", acknowledged=run.applied, lost=lost)


def test_a_commit_that_waits_for_the_standby_for_too_long_is_unknown_and_not_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To cancel it would make it visible here without the standby having it, and found again it would look done."""
    monkeypatch.setattr(postgres_connections, "COMMAND_SECONDS", 0.5)
    monkeypatch.setattr(server_store, "RESOLVE_SECONDS", 1.5)

    async def commit(url: str) -> str:
        store = await open_store(url)
        await store.apply([create_namespace(), insert("t")])
        await asyncio.to_thread(pair.primary.freeze_replication)
        try:
            await store.apply([move("t", insert("t").new, stored("v2"))])
        except OutcomeUnknown:
            return "unknown"
        else:
            return "acknowledged"
        finally:
            await asyncio.to_thread(pair.primary.thaw_replication)
            await store.close()

    with running_pair(synchronous=True) as pair:
        assert asyncio.run(commit(pair.url)) == "unknown"
