"""Backs up a PostgreSQL catalog with pg_dump, as a consistent snapshot while servers commit; restores by pg_restore."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from nunatak.database.backup_manifest import BackupFacts, BackupManifest, BackupRefused, check
from nunatak.database.postgres import migrate_url
from nunatak.database.postgres_connections import SETTINGS, PostgresConnections, refusal
from nunatak.database.postgres_migrations import MIGRATION_LOCK
from nunatak.database.statements import read_statements
from nunatak.errors import CatalogError

try:
    import asyncpg  # type: ignore[import-untyped]
except ModuleNotFoundError:  # pragma: no cover - the extra `postgres` brings it
    asyncpg = None

DEBIAN = Path("/usr/lib/postgresql")  # Debian installs the programs of each version here
JDBC_TABLES = ("iceberg_tables", "iceberg_namespace_properties", "iceberg_table_properties")
CONNECT_SECONDS = 10
# URL parameters that libpq and asyncpg share; asyncpg treats any other as a session setting.
SHARED_PARAMETERS = {
    *("host", "port", "dbname", "user", "passfile", "service", "application_name", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "krbsrvname", "gsslib"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
}

Progress = Callable[[str], None]


async def dump(url: str, target: Path, progress: Progress) -> BackupFacts:
    """Writes a dump of the catalog's tables to `target`; returns what it holds."""
    async with _open_session(url) as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        snapshot = await connection.fetchval("SELECT pg_export_snapshot()")
        facts = await _facts(connection)
        names = await _tables(connection, facts.place)
        program = find_program("pg_dump", _major(connection))
        # pg_dump uses the snapshot of this transaction, so the manifest counts exactly what is in the dump.
        options = ["--format=custom", "--verbose", f"--snapshot={snapshot}", f"--file={target}"]
        await _run(
            program, [*options, *(f"--table={_quote_identifier(facts.place, name)}" for name in names)], url, progress
        )
        await connection.execute("ROLLBACK")
    return facts


async def restore_dump(
    file: Path, manifest: BackupManifest, url: str, now: datetime, progress: Progress, *, force: bool
) -> tuple[list[str], str | None]:
    """Restores the dump into the database; returns the migrations applied, and the schema that a previous catalog was
    moved to, if any."""
    progress("checking")
    check(file, manifest, file)
    place = manifest.facts.place
    async with _open_session(url) as connection:
        program = find_program("pg_restore", max(_major(connection), _major_of(manifest.facts.software)))
        await _refuse_unsuitable(connection, place)
        names = await _tables(connection, place)
        if names and not force:
            raise BackupRefused(
                "There is a catalog in this database already",
                hint="Restore into an empty database, or use --force: its tables then move to a schema beside.",
            )
        aside = f"nunatak_replaced_{now:%Y%m%d_%H%M%S}" if names else None
        if aside is not None:
            await connection.execute(f"BEGIN; CREATE SCHEMA {aside}; {_moves(names, place, aside)}; COMMIT")
        try:
            options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", "--verbose"]
            await _run(program, [*options, str(file)], url, progress)
        except BaseException:
            if aside is not None:
                await _move_back(connection, names, aside, place)
            raise
        found = await _facts(connection)
        for name in await _tables(connection, place):
            await connection.execute(f"ANALYZE {_quote_identifier(place, name)}")  # a dump has no planner statistics
    if found.counted() != manifest.facts.counted():
        raise BackupRefused(f"The database does not hold what the manifest says: {found} instead of {manifest.facts}")
    progress("migrating")
    return await migrate_url(url), aside


async def _move_back(connection: Any, names: list[str], aside: str, place: str) -> None:
    try:
        await connection.execute(f"BEGIN; {_moves(names, aside, place)}; DROP SCHEMA {aside}; COMMIT")
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise BackupRefused(
            f"The restore failed, and the tables that were there wait in the schema {aside}: {error}",
            hint=f'Run for each of them: ALTER TABLE {aside}.… SET SCHEMA "{place}".',
        ) from error


async def _refuse_unsuitable(connection: Any, place: str) -> None:
    here = await connection.fetchval("SELECT current_schema()")
    if here != place:
        raise BackupRefused(
            f"The backup is of tables in the schema {place}, and this address leads to {here or 'none that exists'}",
            hint=f"Create the schema, and add ?search_path={place} to the address.",
        )
    servers = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1",
        SETTINGS["application_name"],
    )
    # A server that starts from now on waits for this lock before it reads the schema version.
    if servers or not await connection.fetchval("SELECT pg_try_advisory_lock($1)", MIGRATION_LOCK):
        raise BackupRefused("A server works on this database", hint="Stop all servers first.")


async def _facts(connection: Any) -> BackupFacts:
    place = await connection.fetchval(
        "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE pg_class.oid = to_regclass('nunatak_migrations')"
    )
    if place is None:
        raise BackupRefused("There is no catalog in this database")
    schema, tables, views, commits = await connection.fetchrow(read_statements("postgres")["count_catalog"])
    software = f"PostgreSQL {await connection.fetchval('SHOW server_version')}"
    return BackupFacts("postgres", software, place, schema, tables, views, commits)


async def _tables(connection: Any, place: str) -> list[str]:
    """Returns the tables of the catalog; the database may hold unrelated ones."""
    found = await connection.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = $1"
        " AND (starts_with(tablename, 'nunatak_') OR tablename = ANY($2)) ORDER BY tablename",
        place,
        list(JDBC_TABLES),
    )
    return [row[0] for row in found]


def _moves(names: list[str], place: str, to: str) -> str:
    return "; ".join(f'ALTER TABLE {_quote_identifier(place, name)} SET SCHEMA "{to}"' for name in names)


def _quote_identifier(place: str, name: str) -> str:
    return '"{}"."{}"'.format(place.replace('"', '""'), name)


@contextlib.asynccontextmanager
async def _open_session(url: str) -> AsyncIterator[Any]:
    """Opens a session without an idle timeout, as pg_dump and pg_restore may run long."""
    PostgresConnections(url, {}, 1)  # raises PostgresNotInstalled without a driver
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, server_settings={"jit": "off"})
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise refusal(error) from error
    try:
        await connection.execute("SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s'")
        yield connection
        await connection.close()
    except (CatalogError, asyncio.CancelledError):
        raise
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise BackupRefused(f"The database said: {error or 'nothing'}") from error
    finally:
        connection.terminate()


# The programs


def find_program(name: str, oldest: int) -> Path:
    """Returns the program of the lowest version from `oldest` on, on the PATH or in Debian's folder; BackupRefused."""
    on_path = shutil.which(name)
    places = ([Path(on_path)] if on_path else []) + sorted(DEBIAN.glob(f"*/bin/{name}"))
    versions = {path: _version(path) for path in places}
    suitable = [path for path in places if versions[path] >= oldest]
    if suitable:
        return min(suitable, key=lambda path: versions[path])
    seen = f"only version {max(versions.values())}" if versions else "none"
    raise BackupRefused(
        f"{name} of version {oldest} or newer is needed for this database, and {seen} is installed",
        hint=f"Install the PostgreSQL client programs of version {oldest} (Debian: postgresql-client-{oldest}).",
    )


def _version(program: Path) -> int:
    """Returns the major version of a program; 0 if it cannot be run."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return _major_of(said)


def _major_of(software: str) -> int:
    found = re.search(r"\d+", software.replace("(PostgreSQL)", ""))
    return int(found.group()) if found else 0


def _major(connection: Any) -> int:
    return int(connection.get_server_version().major)


async def _run(program: Path, arguments: list[str], url: str, progress: Progress) -> None:
    address, variables = without_password(url)
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        f"--dbname={address}",
        "--no-password",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C.UTF-8", **variables},
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        async for line in process.stderr:
            text = line.decode(errors="replace").strip()
            said.append(text)
            progress(text)
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status != 0:
        errors = [line for line in said if "error:" in line] or said[-3:]
        raise BackupRefused(f"{program.name} failed: {'; '.join(errors)}")


def without_password(url: str) -> tuple[str, Mapping[str, str]]:
    """Splits a URL into one without a password, as command lines are visible to all users, and environment variables
    for the password and session settings."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    password = unquote(password)
    kept, options = [], []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "password":
            password = value
        elif name == "options":
            options.append(value)
        elif name in SHARED_PARAMETERS:
            kept.append((name, value))
        elif name == "database":
            kept.append(("dbname", value))
        else:
            options.append(f"-c{name}={value}".replace("\\", "\\\\").replace(" ", "\\ "))
    variables = {"PGPASSWORD": password} if password else {}
    if options:
        variables["PGOPTIONS"] = " ".join(options)
    query = urlencode(kept, safe="/", quote_via=quote)
    return f"{parts.scheme}://{user}{at}{hosts}{parts.path}{'?' if query else ''}{query}", variables
