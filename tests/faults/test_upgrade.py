"""From every schema to this version's and on to the next, under load and through failures (F21)."""

import asyncio
import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import asyncpg
import pytest
import zstandard

from nunatak.database import migration_runner, postgres_migrations, sqlite, statements
from nunatak.database.ddl import Dialect
from nunatak.database.migration_runner import MigrationFailed, SchemaTooNew
from nunatak.database.statements import read_migrations
from tests.support.catalogs.process import log_of, running_server
from tests.support.found import await_true, find_tables
from tests.support.history import findings
from tests.support.homes import Home, Homes, lives
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.schemas import KINDS, ROWS, migrate, migrations_up_to, script_path
from tests.support.workload import TABLES, Caller, Run, Writer, create_tables, seeded

NUMBERS = [number for number, _, _ in read_migrations()]
NEWEST = NUMBERS[-1]
NAMES = ("t1", "t2", "t3")
WRITERS = 6
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "60"))  # before, during and after an upgrade each

# What a version to come might do: another column and index of the tables that every commit writes, and rows of its own.
NEXT_SQL = """
ALTER TABLE iceberg_tables ADD COLUMN nunatak_next TEXT;
ALTER TABLE nunatak_commits ADD COLUMN next_note TEXT DEFAULT 'none';
CREATE INDEX nunatak_next_index ON nunatak_commits (committed_ms);
CREATE TABLE nunatak_next (id INTEGER PRIMARY KEY, note TEXT);
UPDATE iceberg_tables SET nunatak_next = 'migrated';
"""
FAILING_SQL = NEXT_SQL + "INSERT INTO nunatak_next VALUES (1, 'a'); INSERT INTO nunatak_next VALUES (1, 'b');"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as server:
        yield server


@pytest.fixture(params=KINDS)
def homes(request: pytest.FixtureRequest, tmp_path: Path) -> Homes:
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return Homes(request.param, tmp_path, server)


@pytest.fixture
def postgres_homes(tmp_path: Path, postgres: PostgresServer) -> Homes:
    return Homes("postgres", tmp_path, postgres)


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """The migrations of a version to come."""
    return migrations_up_to(NEWEST, tmp_path / "next", (f"{NEWEST + 1:04}_next.sql", NEXT_SQL))


@pytest.fixture
def failing_version(tmp_path: Path) -> Path:
    """The migrations of a version to come, the last of which fails when it has done nearly everything."""
    return migrations_up_to(NEWEST, tmp_path / "failing", (f"{NEWEST + 1:04}_failing.sql", FAILING_SQL))


# From every schema


def fill(home: Home, script: str) -> None:
    """A database as an earlier version left it, and the files its tables point at."""
    location = f"file://{home.warehouse}/faults"
    home.load(script)
    packed = zstandard.compress(metadata_of("kept", location)).hex()
    content = f"X'{packed}'" if home.url is None else f"decode('{packed}', 'hex')"
    rows = ROWS.read_text().replace("{location}", location).replace("{content}", content)
    home.load(rows)
    for name in ("kept", "filed"):
        file = home.warehouse / "faults" / name / "metadata" / "1.metadata.json"
        file.parent.mkdir(parents=True)
        file.write_bytes(metadata_of(name, location))


def metadata_of(name: str, location: str) -> bytes:
    metadata = {
        "format-version": 2,
        "table-uuid": f"{8 if name == 'kept' else 9}1a66874-f008-4315-ba69-a4bc0b8051a2",
        "location": f"{location}/{name}",
        "last-sequence-number": 0,
        "last-updated-ms": 1794802897190,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "id", "required": False, "type": "long"}]}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"made-by": name},
        "current-snapshot-id": None,
        "refs": {}, "snapshots": [], "statistics": [], "partition-statistics": [],
        "snapshot-log": [], "metadata-log": [],
    }  # fmt: skip
    return json.dumps(metadata).encode()


@pytest.mark.parametrize("number", NUMBERS)
def test_from_every_schema_the_catalog_is_served_and_written(homes: Homes, number: int) -> None:
    home = homes.new("released")
    fill(home, script_path(kind_of(homes), number).read_text())

    with running_server(home.data, environment=home.environment) as server, Caller(server.port) as caller:
        for name in ("kept", "filed"):
            assert caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"]["properties"]["made-by"] == name
        assert caller.expect(200, "GET", "/v1/namespaces/faults")["properties"]["owner"] == "ann"
        lives(server.port)

    applied = [row[0] for row in home.execute("SELECT number FROM nunatak_migrations ORDER BY number")]
    assert applied == NUMBERS


def test_a_schema_that_is_no_version_s_is_found_by_the_same_test(homes: Homes) -> None:
    """The canary: it says to have every migration, and lacks what commits are noted in."""
    home = homes.new("broken")
    fill(home, script_path(kind_of(homes), NEWEST).read_text())
    home.execute("ALTER TABLE nunatak_commits DROP COLUMN request_hash")

    with (
        running_server(home.data, environment=home.environment) as server,
        pytest.raises(AssertionError, match="'POST'"),
    ):
        lives(server.port)


def kind_of(homes: Homes) -> Dialect:
    return "postgres" if homes.kind == "postgres" else "sqlite"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_migration_that_was_released_has_not_changed(
    homes: Homes, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = homes.new("kept")
    path = script_path(kind_of(homes), number)
    assert path.exists(), "a migration was added: python -m tests.support.schemas"
    kept.load(path.read_text())
    made = homes.new("made")
    monkeypatch.setattr(statements, "MIGRATIONS", migrations_up_to(number, tmp_path / "migrations"))
    migrate(made)

    assert made.schema() == kept.schema(), f"not released yet? Delete {path} and run python -m tests.support.schemas"


# Under load


def test_servers_of_the_next_version_take_over_while_writers_append(homes: Homes, next_version: Path) -> None:
    """On SQLite the next server starts after the last has stopped; on PostgreSQL, beside it."""
    chance = seeded(f"upgrade-{homes.kind}")
    home = homes.new("home")
    later = {**home.environment, "NUNATAK_TEST_MIGRATIONS": str(next_version)}
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(running_server(home.data, environment=home.environment))
        create_tables(old.port, NAMES)
        run = Run([Writer(n, old.port, NAMES, random.Random(chance.random()), n % 2 == 0) for n in range(WRITERS)])
        with run.working():
            run.await_applied(COMMITS)
            if home.url is not None:
                with running_server(home.data, environment=later, broken="later-version") as beside:
                    assert_migrated(home)
                    run.await_applied(run.applied + COMMITS)  # by the old server, on the new schema
                    assert beside.stop() == 0
            old.stop()
            new = running_server(home.data, port=old.port, environment=later, broken="later-version")
            after = stack.enter_context(new)
            assert_migrated(home)
            run.await_applied(run.applied + COMMITS)
        tables = find_tables(home.catalog, after.port, NAMES)
        assert after.stop() == 0
        print(run.summary())
        assert {attempt.status for attempt in run.attempts} <= {200, 409, None}
        assert findings(run.attempts, run.reads, tables) == []

        refused = home.nunatak("serve", "--port", "0")
        assert refused.returncode != 0
        assert f"has schema {NEWEST + 1}, this version knows up to {NEWEST}" in refused.stderr
        assert "Traceback" not in refused.stderr
        home.execute(
            f"DELETE FROM nunatak_migrations WHERE number = {NEWEST + 1}"
        )  # for fsck, which is of this version


def assert_migrated(home: Home) -> None:
    assert home.execute("SELECT DISTINCT nunatak_next FROM iceberg_tables") == [("migrated",)]


@pytest.mark.parametrize("patient", [False, True], ids=["gives way", "canary: waits for ever"])
def test_a_migration_that_cannot_have_a_table_gives_way_to_commits(
    postgres_homes: Homes, next_version: Path, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    """Somebody reads for long; a migration that waited for them would make everybody else wait behind it."""
    chance = seeded(f"give-way-{patient}")
    home = postgres_homes.new("home")
    assert home.url is not None
    monkeypatch.setattr(migration_runner, "TRIES", 1000)
    monkeypatch.setattr(postgres_migrations, "LOCK_SECONDS", 0 if patient else 0.2)
    with running_server(home.data, environment=home.environment) as server:
        create_tables(server.port, NAMES)
        run = Run([Writer(n, server.port, NAMES, random.Random(chance.random()), n % 2 == 0) for n in range(WRITERS)])
        with run.working(), ThreadPoolExecutor(1) as pool, long_reader(home.url) as let_go:
            run.await_applied(10)
            monkeypatch.setattr(statements, "MIGRATIONS", next_version)
            migrating = pool.submit(migrate, home)
            await_true("the migration waits", lambda: waits_for_a_table(home))
            if patient:
                await_true("nobody commits any more", lambda: stands_still(run))
            else:
                run.await_applied(run.applied + WRITERS + 10)  # more than those that were ahead of it
                assert not migrating.done()
            let_go.set()
            assert migrating.result(60) == [f"{NEWEST + 1:04}_next"]
            run.await_applied(run.applied + 10)
        assert {attempt.status for attempt in run.attempts} <= {200, 409, None}
        assert findings(run.attempts, run.reads, find_tables(home.catalog, server.port, NAMES)) == []
    assert advisory_locks(home) == [(0,)]


def stands_still(run: Run) -> bool:
    before = run.applied
    time.sleep(2)
    return run.applied == before


@contextlib.contextmanager
def long_reader(url: str) -> Iterator[threading.Event]:
    """A transaction that has read the tables and stays open until told to end."""
    reading, let_go = threading.Event(), threading.Event()

    async def read() -> None:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            await connection.fetch("SELECT count(*) FROM iceberg_tables")
            reading.set()
            await asyncio.to_thread(let_go.wait, 120)
        await connection.close()

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(asyncio.run, read())
        try:
            assert reading.wait(30)
            yield let_go
        finally:
            let_go.set()
        reader.result(30)


def waits_for_a_table(home: Home) -> bool:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
    return home.execute(waiting) != [(0,)]


def advisory_locks(home: Home) -> list[tuple[object, ...]]:
    return home.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")


# What goes wrong


def test_a_failed_migration_leaves_no_half_and_no_lock_and_the_version_before_goes_on(
    homes: Homes, failing_version: Path
) -> None:
    """What was there before serves on."""
    home = homes.new("home")
    with running_server(home.data, environment=home.environment) as server:
        create_tables(server.port, ["t1"])
        before = home.schema()
        if home.url is not None:
            refused = serve_later(home, failing_version)
            assert_explained(refused)
            with Caller(server.port) as caller:
                caller.expect(200, "GET", "/ready")
    refused = serve_later(home, failing_version)
    assert_explained(refused)

    assert home.schema() == before
    assert home.execute("SELECT max(number) FROM nunatak_migrations") == [(NEWEST,)]
    assert home.url is None or advisory_locks(home) == [(0,)]
    with running_server(home.data, environment=home.environment) as server:
        lives(server.port)


def serve_later(home: Home, migrations: Path) -> str:
    """What a server of a version to come says when it does not start."""
    later = {**home.environment, "NUNATAK_TEST_MIGRATIONS": str(migrations)}
    with (
        pytest.raises(RuntimeError, match=r"the server did not start"),
        running_server(home.data, environment=later, broken="later-version"),
    ):
        pass
    return log_of(home.data).read_text()


def assert_explained(log: str) -> None:
    assert f"The migration {NEWEST + 1:04}_failing could not be applied" in log
    assert "Nothing of it was kept" in log
    assert "nunatak database migrate" in log
    assert "Traceback" not in log


def test_without_a_transaction_the_same_migration_would_leave_a_half(homes: Homes) -> None:
    """The canary of the test above: its script does much before it fails."""
    home = homes.new("home")
    migrate(home)
    before = home.schema()

    with contextlib.suppress(apsw.Error, asyncpg.PostgresError):
        for statement in FAILING_SQL.split(";"):
            home.execute(statement)

    assert home.schema() != before


def test_processes_that_migrate_at_once_migrate_once(homes: Homes) -> None:
    """Servers may start at once on a database that nobody has migrated."""
    home = homes.new("home")

    def start(_: int) -> list[str]:
        if isinstance(home.database, Path):  # without the lock file, which would let only one try
            with contextlib.closing(sqlite._connect(home.database)) as connection:
                return sqlite.migrate(connection)
        return migrate(home)

    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(start, range(4)))

    assert sorted(name for names in applied for name in names) == [name for _, name, _ in read_migrations()]
    with running_server(home.data, environment=home.environment) as server:
        create_tables(server.port, ["t1"])
        lives(server.port)


def test_nobody_opens_a_database_of_a_later_version(homes: Homes) -> None:
    home = homes.new("home")
    migrate(home)
    home.execute("INSERT INTO nunatak_migrations VALUES (9999, '9999_far')")

    with pytest.raises(SchemaTooNew, match="has schema 9999"):
        migrate(home)
    told = home.nunatak("database", "migrate")
    assert told.returncode == 1
    assert "Start that version or a later one" in told.stderr


def test_a_migration_is_told_what_hinders_it(postgres_homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that nobody lets go of: it comes again and again, and at last says so."""
    home = postgres_homes.new("home")
    assert home.url is not None
    home.execute("CREATE TABLE iceberg_tables (catalog_name VARCHAR(255))")
    monkeypatch.setattr(postgres_migrations, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(migration_runner, "TRIES", 2)
    monkeypatch.setattr(migration_runner, "PAUSE_SECONDS", 0.01)

    with long_reader(home.url), pytest.raises(MigrationFailed, match="lock timeout"):
        migrate(home)

    assert home.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'nunatak%'") == [(0,)]
