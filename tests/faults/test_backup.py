"""Backups taken under load and restored elsewhere hold every commit that was acknowledged before they began (F22)."""

import dataclasses
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pytest
import zstandard

from nunatak.catalog.write_behind import content_reader
from nunatak.database import backup, postgres_backup, sqlite_backup, statements
from nunatak.database.backup_manifest import BackupRefused, checksum, manifest_path, read_manifest, write_manifest
from nunatak.database.statements import read_migrations
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.store import ObjectStore
from tests.support import mariadb
from tests.support.catalogs.process import running_server
from tests.support.found import await_true, find_tables
from tests.support.history import CONFLICT, Attempt, FoundTable, findings, kinds_of
from tests.support.homes import Home, Homes, lives
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.schemas import migrate, migrations_up_to
from tests.support.workload import TABLES, Caller, Run, Writer, append_to, create_tables, local_path, seeded

NAMES = ("t1", "t2", "t3")
WRITERS = 6
BEFORE, AFTER = 40, 40  # commits that the backup must hold, and that come after it at least
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def homes(request: pytest.FixtureRequest, tmp_path: Path) -> Homes:
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return Homes(request.param, tmp_path, server)


@pytest.fixture
def sqlite_homes(tmp_path: Path) -> Homes:
    return Homes("sqlite", tmp_path, None)


@pytest.fixture
def postgres_homes(tmp_path: Path, postgres: PostgresServer) -> Homes:
    return Homes("postgres", tmp_path, postgres)


def make_backup(home: Home, file: Path, *, force: bool = False) -> None:
    with content_reader(ObjectStore(LocalStorage())) as read_compressed:
        backup.back_up(home.database, file, NOW, lambda _: None, read_compressed, force=force)


def restore(file: Path, home: Home, *, force: bool = False) -> backup.Restored:
    return backup.restore(file, home.database, NOW, lambda _: None, force=force)


def filled(homes: Homes, name: str) -> Home:
    """A catalog with the namespace and one table."""
    home = homes.new(name)
    with running_server(home.data, environment=home.environment) as server:
        create_tables(server.port, ["t1"])
    return home


def empty(homes: Homes, name: str) -> Home:
    """A catalog with nothing in it."""
    home = homes.new(name)
    migrate(home)
    return home


def tables_of(home: Home) -> list[str]:
    """What a server on it lists; no server runs."""
    answered = home.nunatak("get", TABLES)
    assert answered.returncode == 0, answered
    return sorted(name for name in ("t1", "t2", "t3", "made") if f'"name":"{name}"' in answered.stdout)


# The drill


def lacking(attempts: list[Attempt], tables: list[FoundTable], began: float, ended: float) -> list[str]:
    """What a restored catalog lacks of a backup that was taken between two moments, or holds too much."""

    def as_seen_by_backup(attempt: Attempt) -> Attempt:
        if attempt.ended < began:
            return attempt
        # What came after the backup must not be in it; what happened meanwhile may be.
        return dataclasses.replace(attempt, status=CONFLICT if attempt.started > ended else None)

    return findings(map(as_seen_by_backup, attempts), [], tables)


WITHOUT_EVENT = "SELECT commit_id FROM nunatak_commits WHERE commit_id NOT IN (SELECT event_id FROM nunatak_outbox)"


def test_a_backup_under_load_restored_elsewhere_holds_what_was_acknowledged(homes: Homes, tmp_path: Path) -> None:
    """MISSION: 003-46"""
    chance = seeded(f"backup-{homes.kind}")
    file = tmp_path / "lake.backup"
    home = homes.new("first")
    with running_server(home.data, environment=home.environment) as server:
        create_tables(server.port, NAMES)
        run = Run([Writer(n, server.port, NAMES, random.Random(chance.random()), n % 2 == 0) for n in range(WRITERS)])
        with run.working():
            run.await_applied(BEFORE)
            began = time.monotonic()
            made = home.nunatak("backup", str(file))
            ended = time.monotonic()
            run.await_applied(run.applied + AFTER)
        after = time.monotonic()
        server.kill()

        assert made.returncode == 0, made
        second = homes.new("second", warehouse=home.warehouse)
        restored = second.nunatak("restore", str(file))
        assert restored.returncode == 0, restored
        assert "nunatak fsck --repair" in restored.stdout
        with running_server(second.data, environment=second.environment) as heir:
            tables = find_tables(second.catalog, heir.port, NAMES)
            lives(heir.port)

    assert second.execute(WITHOUT_EVENT) == []
    held = sum(len(table.chain) for table in tables)
    print(f"{run.summary()}; the backup holds {held}")
    assert BEFORE <= held < run.applied
    assert lacking(run.attempts, tables, began, ended) == []
    # The canary: had the backup been due after the commits that followed it, the same check would find it wanting.
    assert kinds_of(lacking(run.attempts, tables, after, after))["lost"] >= AFTER
    manifest = read_manifest(file)
    assert (manifest.facts.tables, manifest.facts.commits) == (len(NAMES), held + len(NAMES))
    assert [path.name for path in tmp_path.iterdir() if "incoming" in path.name] == []


def test_a_copy_of_the_file_without_its_log_is_found_wanting(sqlite_homes: Homes) -> None:
    """The canary of the drill: this is what a backup made by `cp` under load lacks."""
    home = sqlite_homes.new("first")
    attempts = []
    with running_server(home.data, environment=home.environment) as server, Caller(server.port) as caller:
        create_tables(server.port, ["t1"])
        for number in range(1, 9):
            if number == 4:
                home.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            metadata = caller.expect(200, "GET", f"{TABLES}/t1")["metadata"]
            started = time.monotonic()
            caller.expect(200, "POST", f"{TABLES}/t1", append_to("t1", metadata, number, f"i{number}"))
            attempts.append(Attempt(f"i{number}", {"t1": number}, started, time.monotonic(), 200))
        began = time.monotonic()
        second = sqlite_homes.new("second", warehouse=home.warehouse)
        shutil.copyfile(home.data / "nunatak.db", second.data / "nunatak.db")
        make_backup(home, second.data / "real.backup")
        ended = time.monotonic()

    with running_server(second.data, environment=second.environment) as heir:
        found = lacking(attempts, find_tables(second.catalog, heir.port, ["t1"]), began, ended)
    assert found == [f"lost: i{number} was answered 200 but is not in t1" for number in range(4, 9)]

    third = sqlite_homes.new("third", warehouse=home.warehouse)
    restore(second.data / "real.backup", third)
    with running_server(third.data, environment=third.environment) as heir:
        assert lacking(attempts, find_tables(third.catalog, heir.port, ["t1"]), began, ended) == []


def test_commits_between_two_steps_of_a_copy_are_not_in_it(
    sqlite_homes: Homes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that began anew at each commit would never end, or hold what was made while it was taken."""
    monkeypatch.setattr(sqlite_backup, "STEP_PAGES", 3)
    home = sqlite_homes.new("first")
    said: list[str] = []
    with running_server(home.data, environment=home.environment) as server, Caller(server.port) as caller:
        create_tables(server.port, ["t1"])

        def append_meanwhile(text: str) -> None:
            said.append(text)
            metadata = caller.expect(200, "GET", f"{TABLES}/t1")["metadata"]
            caller.expect(200, "POST", f"{TABLES}/t1", append_to("t1", metadata, len(said), text))

        with content_reader(ObjectStore(LocalStorage())) as read_compressed:
            backup.back_up(home.database, tmp_path / "b", NOW, append_meanwhile, read_compressed, force=False)
        assert len(caller.expect(200, "GET", f"{TABLES}/t1")["metadata"]["snapshots"]) == len(said) > 5

    second = sqlite_homes.new("second", warehouse=home.warehouse)
    restore(tmp_path / "b", second)
    with running_server(second.data, environment=second.environment) as heir:
        assert [table.chain for table in find_tables(second.catalog, heir.port, ["t1"])] == [[]]


def test_a_restored_catalog_heals_a_metadata_file_that_was_deleted_since(homes: Homes, tmp_path: Path) -> None:
    home = filled(homes, "first")
    make_backup(home, tmp_path / "b")
    for file in home.warehouse.rglob("*.metadata.json"):
        file.unlink()

    second = homes.new("second", warehouse=home.warehouse)
    restore(tmp_path / "b", second)

    with running_server(second.data, environment=second.environment) as heir, Caller(heir.port) as caller:
        caller.expect(404, "GET", f"{TABLES}/t1")
    repaired = second.nunatak("fsck", "--repair")
    with running_server(second.data, environment=second.environment) as heir, Caller(heir.port) as caller:
        loaded = caller.expect(200, "GET", f"{TABLES}/t1")
    assert repaired.returncode in (0, 1), repaired
    assert json.loads(local_path(loaded["metadata-location"]).read_bytes()) == loaded["metadata"]


def test_a_backup_holds_the_bytes_of_a_commit_that_the_server_has_yet_to_store(
    sqlite_homes: Homes, tmp_path: Path
) -> None:
    home = sqlite_homes.new("first")
    with running_server(home.data, environment=home.environment) as server, Caller(server.port) as caller:
        create_tables(server.port, ["t1", "t2"])
        loaded = {}
        for name in ("t1", "t2"):
            metadata = caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"]
            loaded[name] = caller.expect(200, "POST", f"{TABLES}/{name}", append_to(name, metadata, 1, name))
    home.execute("UPDATE nunatak_heads SET content = NULL")  # as if it had been killed
    foreign = local_path(loaded["t2"]["metadata-location"])
    real = foreign.read_text()
    foreign.write_text(real.replace(loaded["t2"]["metadata"]["table-uuid"], str(uuid4())))
    make_backup(home, tmp_path / "b")
    foreign.write_text(real)

    second = sqlite_homes.new("second", warehouse=home.warehouse)
    restore(tmp_path / "b", second)
    stored = dict(second.execute("SELECT table_name, content FROM nunatak_heads"))
    assert json.loads(zstandard.decompress(stored["t1"])) == loaded["t1"]["metadata"]
    assert stored["t2"] is None


def test_a_database_brought_back_to_a_moment_holds_what_was_acknowledged_by_then(tmp_path: Path) -> None:
    """Step by step what docs/how-to/back-up-and-restore.md says about PostgreSQL. MISSION: 003-44"""
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    chance = seeded("moment")
    archiving = ("archive_mode=on", "archive_command=test ! -f ../archive/%f && cp %p ../archive/%f", "fsync=off")
    with running_postgres(*archiving) as database:
        archive, recovered = (folder_of(database, name) for name in ("archive", "recovered"))
        home = Home(tmp_path / "data", database.new_database(), tmp_path / "data" / "warehouse")
        with running_server(home.data, environment=home.environment) as server:
            create_tables(server.port, NAMES)
            run = Run([Writer(n, server.port, NAMES, random.Random(chance.random()), n % 2 == 0) for n in range(4)])
            with run.working():
                run.await_applied(5)
                base = ["pg_basebackup", "--checkpoint=fast", "--no-sync", f"--pgdata={recovered / 'data'}"]
                run_beside(database, *base, "-h127.0.0.1", f"-p{database.port}", "-Upostgres")
                run.await_applied(run.applied + BEFORE // 2)
                began = time.monotonic()
                database.execute("SELECT pg_create_restore_point('before-the-upgrade')")
                ended = time.monotonic()
                run.await_applied(run.applied + AFTER // 2)
            server.kill()
            database.execute("SELECT pg_switch_wal()")
            database.stop()

            (recovered / "data" / "recovery.signal").touch()
            recovery = {
                "restore_command": f"cp {archive}/%f %p",
                "recovery_target_name": "before-the-upgrade",
                "recovery_target_action": "promote",
            }
            database.folder, database.options = recovered, tuple(f"{name}={value}" for name, value in recovery.items())
            database.start()
            await_true("the recovery is over", lambda: database.execute("SELECT pg_is_in_recovery()") == [(False,)])
            server.restart()
            tables = find_tables(home.catalog, server.port, NAMES)
            lives(server.port)

    print(f"{run.summary()}; recovered {sum(len(table.chain) for table in tables)}")
    assert lacking(run.attempts, tables, began, ended) == []
    assert kinds_of(lacking(run.attempts, tables, time.monotonic(), time.monotonic()))["lost"] >= AFTER // 2


def test_mariadb_s_own_dump_brings_a_catalog_back(tmp_path: Path) -> None:
    """What docs/how-to/back-up-and-restore.md says about MariaDB."""
    if mariadb.find_server() is None:
        pytest.skip(mariadb.NOT_INSTALLED)
    with mariadb.running_mariadb() as database:
        first, second = (
            Home(tmp_path / name, database.new_database(), tmp_path / "warehouse") for name in ("first", "second")
        )
        with running_server(first.data, environment=first.environment) as server:
            create_tables(server.port, ["t1"])
            dumped = run_client(["mariadb-dump", "--single-transaction", "--skip-lock-tables"], first)
        run_client(["mariadb"], second, dumped)
        with running_server(second.data, environment=second.environment) as heir:
            lives(heir.port)


def run_client(command: list[str], home: Home, script: bytes = b"") -> bytes:
    """One of MariaDB's programs on the database of this place; returns what it printed."""
    address = urlsplit(home.url or "")
    login = ["--host=127.0.0.1", f"--port={address.port}", f"--user={address.username}", address.path[1:]]
    password = {"MYSQL_PWD": unquote(address.password or "")}
    ended = subprocess.run(
        [*command, *login], input=script, env={**os.environ, **password}, capture_output=True, check=True
    )
    return ended.stdout


def folder_of(database: PostgresServer, name: str) -> Path:
    """A folder that the database may write."""
    folder = database.folder / name
    folder.mkdir()
    owner = database.folder.stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    return folder


def run_beside(database: PostgresServer, program: str, *arguments: str) -> None:
    """One of PostgreSQL's programs, as the user whose files it writes."""
    owner = database.folder.stat()
    user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    command = [database.binaries / program, *arguments]
    subprocess.run(command, cwd=database.folder, check=True, capture_output=True, **user)  # type: ignore[call-overload]


# What is refused, and leaves everything as it was


def test_a_backup_replaces_a_file_only_when_told_to(homes: Homes, tmp_path: Path) -> None:
    home = empty(homes, "first")
    file = tmp_path / "b"
    file.write_text("precious")

    with pytest.raises(BackupRefused, match="is there already"):
        make_backup(home, file)
    assert file.read_text() == "precious"
    assert not manifest_path(file).exists()

    make_backup(home, file, force=True)
    assert read_manifest(file).sha256 == checksum(file)
    assert file.stat().st_mode & 0o077 == 0


def test_there_is_nothing_to_back_up_where_no_catalog_is(homes: Homes, tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="There is no catalog"):
        make_backup(homes.new("empty"), tmp_path / "b")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


def test_a_restore_refuses_a_catalog_that_is_there_and_keeps_it_when_forced(homes: Homes, tmp_path: Path) -> None:
    home = filled(homes, "first")
    make_backup(home, tmp_path / "b")
    other = homes.new("other", warehouse=home.warehouse)
    with running_server(other.data, environment=other.environment) as server:
        create_tables(server.port, ["t2", "t3"])

    with pytest.raises(BackupRefused, match="There is a catalog"):
        restore(tmp_path / "b", other)
    assert tables_of(other) == ["t2", "t3"]

    aside = restore(tmp_path / "b", other, force=True).aside
    assert tables_of(other) == ["t1"]
    assert aside is not None
    if other.url is None:
        assert dataclasses.replace(other, url=None).execute(
            f"ATTACH '{aside}' AS old; SELECT count(*) FROM old.iceberg_tables"
        ) == [(2,)]
    else:
        assert other.execute(f"SELECT count(*) FROM {aside}.iceberg_tables") == [(2,)]


def test_a_restore_refuses_a_place_where_a_server_works(homes: Homes, tmp_path: Path) -> None:
    home = filled(homes, "first")
    make_backup(home, tmp_path / "b")

    with running_server(home.data, environment=home.environment) as server:
        refused = home.nunatak("restore", str(tmp_path / "b"), "--force")
        with Caller(server.port) as caller:
            caller.expect(200, "GET", f"{TABLES}/t1")

    assert refused.returncode == 1
    assert "server" in refused.stderr
    assert "Hint: Stop" in refused.stderr
    assert "Traceback" not in refused.stderr
    restore(tmp_path / "b", home, force=True)


@pytest.mark.parametrize("damage", ["a byte", "the end", "the manifest", "a later version"])
def test_a_restore_refuses_a_backup_that_is_not_whole(homes: Homes, tmp_path: Path, damage: str) -> None:
    home = empty(homes, "first")
    file = tmp_path / "b"
    make_backup(home, file)
    content, manifest = file.read_bytes(), read_manifest(file)
    expected = {"the manifest": "manifest.json is missing", "a later version": "by a later version"}
    match damage:
        case "a byte":
            middle = len(content) // 2
            file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        case "the end":
            file.write_bytes(content[:-1])
        case "the manifest":
            manifest_path(file).unlink()
        case _:
            facts = dataclasses.replace(manifest.facts, schema=9999)
            write_manifest(file, dataclasses.replace(manifest, facts=facts))

    second = homes.new("second")
    with pytest.raises(BackupRefused, match=expected.get(damage, f"^{file} is damaged")):
        restore(file, second)
    assert second.url is not None or sorted(path.name for path in second.data.iterdir()) in ([], ["nunatak.db.lock"])
    assert second.schema() == []


def test_a_backup_of_one_database_is_not_restored_to_the_other(sqlite_homes: Homes, tmp_path: Path) -> None:
    make_backup(empty(sqlite_homes, "first"), tmp_path / "b")

    with pytest.raises(BackupRefused, match="is a backup of SQLite, and the settings name PostgreSQL"):
        backup.restore(tmp_path / "b", "postgresql://nobody@127.0.0.1:1/x", NOW, lambda _: None, force=False)


def test_a_dump_that_cannot_be_restored_leaves_the_catalog_that_was_there(
    postgres_homes: Homes, tmp_path: Path
) -> None:
    """One that is damaged in spite of its checksum: pg_restore notices in the middle of its transaction."""
    home = filled(postgres_homes, "first")
    file = tmp_path / "b"
    make_backup(home, file)
    shorter = file.read_bytes()[: -file.stat().st_size // 3]
    manifest = dataclasses.replace(read_manifest(file), size_bytes=len(shorter))
    file.write_bytes(shorter)
    write_manifest(file, dataclasses.replace(manifest, sha256=checksum(file)))
    before = home.schema()

    with pytest.raises(BackupRefused, match="pg_restore failed"):
        restore(file, home, force=True)

    assert home.schema() == before
    assert tables_of(home) == ["t1"]
    assert home.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'nunatak%'") == [(0,)]
    assert home.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


# Versions


def test_a_backup_of_an_earlier_version_is_migrated_when_restored(
    homes: Homes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes.new("first")
    with monkeypatch.context() as earlier:
        earlier.setattr(statements, "MIGRATIONS", migrations_up_to(1, tmp_path / "migrations"))
        migrate(home)
        make_backup(home, tmp_path / "b")
    assert read_manifest(tmp_path / "b").facts.schema == 1
    second = homes.new("second")

    restored = restore(tmp_path / "b", second)

    assert restored.applied == [name for number, name, _ in read_migrations() if number > 1]
    with running_server(second.data, environment=second.environment) as server:
        create_tables(server.port, ["t1"])
        lives(server.port)


def test_a_version_that_is_too_old_for_the_database_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (program(tmp_path / name, "pg_dump", version) for name, version in (("old", 14), ("new", 17)))
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setattr(postgres_backup, "DEBIAN", tmp_path / "none")
    assert postgres_backup.find_program("pg_dump", 14) == old
    with pytest.raises(BackupRefused, match=r"pg_dump of version 15 or newer is needed .* only version 14") as refused:
        postgres_backup.find_program("pg_dump", 15)
    assert "postgresql-client-15" in (refused.value.hint or "")

    monkeypatch.setattr(postgres_backup, "DEBIAN", tmp_path)
    new.parent.rename(tmp_path / "17")
    (tmp_path / "17" / "bin").mkdir()
    (tmp_path / "17" / "pg_dump").rename(tmp_path / "17" / "bin" / "pg_dump")
    assert postgres_backup.find_program("pg_dump", 15) == tmp_path / "17" / "bin" / "pg_dump"


def program(folder: Path, name: str, version: int) -> Path:
    folder.mkdir()
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}.3 (Debian {version}.3-1)'\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("url", "shown", "variables"),
    [
        ("postgresql://ann@db/lake", "postgresql://ann@db/lake", {}),
        ("postgresql://ann:p%40ss@db:5/lake", "postgresql://ann@db:5/lake", {"PGPASSWORD": "p@ss"}),
        ("postgres://a:b@h1:1,h2:2/x?sslmode=require", "postgres://a@h1:1,h2:2/x?sslmode=require", {"PGPASSWORD": "b"}),
        ("postgresql:///x?host=/run/pg&password=s3", "postgresql:///x?host=/run/pg", {"PGPASSWORD": "s3"}),
        ("postgresql://db/x?search_path=my lake", "postgresql://db/x", {"PGOPTIONS": "-csearch_path=my\\ lake"}),
        (
            "postgresql://db/x?options=-cjit%3Doff&work_mem=1",
            "postgresql://db/x",
            {"PGOPTIONS": "-cjit=off -cwork_mem=1"},
        ),
    ],
)
def test_a_password_is_not_shown_to_who_lists_processes(url: str, shown: str, variables: dict[str, str]) -> None:
    assert postgres_backup.without_password(url) == (shown, variables)


def test_tables_in_a_schema_of_their_own_come_back_there(postgres_homes: Homes, tmp_path: Path) -> None:
    first, second = (postgres_homes.new(name) for name in ("first", "second"))
    for home in (first, second):
        home.execute('CREATE SCHEMA "My Lake"')
    address = "?search_path=%22My%20Lake%22"
    first, second = (dataclasses.replace(home, url=f"{home.url}{address}") for home in (first, second))
    first.execute("CREATE TABLE public.of_somebody_else (id INTEGER)")
    migrate(first)
    make_backup(first, tmp_path / "b")

    with pytest.raises(BackupRefused, match="tables in the schema My Lake, and this address leads to public"):
        restore(tmp_path / "b", dataclasses.replace(second, url=(second.url or "").partition("?")[0]))
    restore(tmp_path / "b", second)

    assert second.execute("SELECT to_regclass('\"My Lake\".nunatak_commits') IS NOT NULL") == [(True,)]
    assert second.execute("SELECT to_regclass('public.of_somebody_else') IS NULL") == [(True,)]
