"""A migration that the catalog itself remembers: the same commands, from several machines, one at a time."""

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from nunatak.client import Client
from nunatak.errors import CatalogError, Conflict
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration import catalog_state
from nunatak_spark.migration.catalog_state import CatalogState, MigrationDocuments, migration_name, open_catalog_state
from nunatak_spark.migration.model import (
    CopiedNamespace,
    Evidence,
    InventoryTable,
    MigrationSource,
    MigrationTable,
    TablePlan,
    table_title,
)
from tests.support.catalogs.process import RunningServer, running_server
from tests.unit.cli.conftest import run_command

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
TABLE = MigrationTable(
    found=InventoryTable(source="old", name=("a", "t"), kind="iceberg"),
    state="planned",
    planned=TablePlan("register", ("a", "t"), 2, "because"),
)
CLOCK = itertools.count(1)
HOLD = """
import sys
from nunatak.client import Client
from nunatak_spark.migration.catalog_state import open_catalog_state
with open_catalog_state(lambda: Client(sys.argv[1]), "m", "shadow", create=True) as state:
    state.keep_target("", "")
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    everything = {"NUNATAK_ALLOWED_LOCATIONS": f"file://{tmp_path}"}
    with running_server(tmp_path / "target", environment=everything) as started:
        yield started


@contextmanager
def state_of(server: RunningServer, command: str = "shadow", name: str = "m") -> Iterator[CatalogState]:
    with open_catalog_state(
        lambda: Client(server.uri), name, command, create=True, now_ms=lambda: next(CLOCK)
    ) as state:
        yield state


def test_what_was_saved_is_there_for_the_next_command(server: RunningServer) -> None:
    source = MigrationSource(kind="hadoop", name="old", address="/srv")
    carried = CopiedNamespace(source="old", name=("a",), target=("b",), properties={"owner": "ana"})
    evidence = [Evidence(level=level, ok=True, facts={"n": 1}, started_ms=1, ended_ms=2) for level in ("L0", "L1")]
    with state_of(server) as state:
        state.keep_target("", "main")
        state.save_source(source)
        saved = state.save_table(TABLE, "planned it")
        state.save_table(
            msgspec.structs.replace(TABLE, found=InventoryTable(source="old", name=("a", "u"), kind="view"))
        )
        state.save_evidence(TABLE, evidence)
        state.save_namespace(carried, "carried it")

    with state_of(server, "report") as state:
        state.forget_table(state.list_tables()[1], "gone")
        whole = state.whole()
        assert state.find_table(table_title(TABLE.found)) == saved
        assert state.find_namespace("old", ("a",), ("b",)) == carried

    assert whole.tables == (saved,)
    assert (whole.sources, whole.namespaces, whole.warehouse) == ((source,), (carried,), "main")
    assert whole.evidence == {table_title(TABLE.found): tuple(evidence)}
    assert [(line.command, line.text) for line in whole.log] == [
        ("shadow", "planned it"),
        ("shadow", "carried it"),
        ("report", "gone"),
    ]
    with state_of(server, name="another") as state:
        assert state.list_tables() == []


def test_a_second_command_at_the_same_time_is_refused_and_a_killed_one_is_in_the_way_for_a_while(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", HOLD, server.uri]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(CannotRun, match=f"Another command uses .*: shadow on .*:{other.pid}"),
            state_of(server),
        ):
            pass

        other.kill()
        other.wait()

    with pytest.raises(CannotRun, match="Another command uses"), state_of(server):
        pass  # nobody knows yet that it is dead
    monkeypatch.setattr(catalog_state, "LEASE_SECONDS", 0)
    with state_of(server):
        pass


def test_a_lease_is_renewed_while_a_command_works(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_state, "RENEW_SECONDS", 0.05)
    with state_of(server), Client(server.uri) as client:
        documents = MigrationDocuments(client, "m")
        first = documents.find("lease")
        deadline = time.monotonic() + 60
        while (
            (now := documents.find("lease")) is not None and first is not None and now["version"] < first["version"] + 3
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    with Client(server.uri) as client:
        assert MigrationDocuments(client, "m").find("lease") is None


def test_a_command_that_lost_its_lease_changes_nothing(server: RunningServer) -> None:
    with state_of(server) as state, Client(server.uri) as client:
        state.save_table(TABLE)
        thief = MigrationDocuments(client, "m")
        ((key, content),) = thief.list("table:")
        thief.save(key, {**content, "state": "shadowed"})

        with pytest.raises(CannotRun, match="Another command changed the migration meanwhile"):
            state.save_table(msgspec.structs.replace(TABLE, state="done"))

    with state_of(server) as state:
        assert [table.state for table in state.list_tables()] == ["shadowed"]


@pytest.mark.parametrize(
    ("state", "name"),
    [("catalog", "default"), ("nunatak://", "default"), ("nunatak://spring", "spring"), ("./catalog", None)],
)
def test_how_a_migration_in_the_catalog_is_named(state: str, name: str | None) -> None:
    assert migration_name(state) == name


def test_the_commands_work_with_a_state_in_the_catalog(server: RunningServer, tmp_path: Path) -> None:
    by_name = server.uri.replace("127.0.0.1", "localhost")  # as another machine may call the catalog
    with running_server(tmp_path / "old") as old, Client(old.uri) as here, Client(server.uri) as there:
        here.create_namespace(("shop",), {"owner": "ana"})
        here.create_table(("shop", "orders"), {"schema": SCHEMA})

        def migrate(*words: str, uri: str = server.uri) -> str:
            outcome = run_command("migrate", *words, "--state", "nunatak://spring", "--uri", uri)
            assert outcome.code == 0, outcome
            return outcome.out

        early = run_command("migrate", "status", "--state", "nunatak://spring", "--uri", server.uri)
        assert (early.code, "There is no migration" in early.err) == (1, True)
        migrate("inventory", "--rest", old.uri, "--as", "old")
        migrate("plan", uri=by_name)
        migrate("shadow")
        assert "1 shadowed" in migrate("status", uri=by_name)
        migrate("report", "--to", str(tmp_path / "report.json"))
        assert there.table_exists(("shop", "orders"))
        migrate("rollback")
        assert "1 rolled-back" in migrate("status")
    assert not (tmp_path / "nunatak-migration").exists()


def test_only_administrators_see_what_a_migration_remembers(tmp_path: Path) -> None:
    with running_server(tmp_path / "secured", auth=True) as secured:
        nobody = secured.principal("nobody", warehouse="ADMIN").api_key
        keeper = secured.principal("keeper", server="WAREHOUSE_ADMIN").api_key
        with Client(secured.uri, token=keeper) as client:
            MigrationDocuments(client, "m").save("table:1", {})
        with Client(secured.uri, token=nobody) as client:
            for action in (
                lambda: list(MigrationDocuments(client, "m").list("")),
                lambda: MigrationDocuments(client, "m").find("table:1"),
                lambda: MigrationDocuments(client, "m").save("table:2", {}),
            ):
                with pytest.raises(CatalogError, match="lacks"):
                    action()


def test_documents_and_their_names_are_bounded(server: RunningServer) -> None:
    with Client(server.uri) as client:
        path = ("migrations", "m", "documents")
        client.manage("PUT", (*path, "a" * 200), {"content": "x" * ((1 << 20) - 2)})
        for name, content in (("a" * 201, {}), ("a b", {}), ("a/b", {}), ("big", "x" * (1 << 20))):
            with pytest.raises(CatalogError):
                client.manage("PUT", (*path, name), {"content": content})
        with pytest.raises(CatalogError):
            client.manage("PUT", ("migrations", "m" * 65, "documents", "a"), {"content": {}})
        with pytest.raises(Conflict):
            client.manage("PUT", (*path, "new"), {"content": {}, "version": 4})
