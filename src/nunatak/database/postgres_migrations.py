"""Applies migrations to PostgreSQL: one server at a time, each in a transaction, never long in the way of commits."""

import asyncio
import random

from nunatak.database.migration_runner import (
    CREATE_MIGRATIONS,
    LONGEST_SECONDS,
    TURN_SECONDS,
    Migrating,
    Migration,
    MigrationFailed,
    TableHeld,
    apply_missing,
    missing_migrations,
)
from nunatak.database.postgres_connections import (
    PostgresConnections,
    PostgresSession,
    lock_number,
    refusal,
    sqlstate_of,
)
from nunatak.errors import CatalogError

MIGRATION_LOCK = lock_number("migration")
LOCK_SECONDS = 2  # for a table, before the migration gives way
_GIVEN_UP = {"55P03", "40P01", "40001"}  # lock not available, deadlock, serialization failure


async def migrate(connections: PostgresConnections) -> list[str]:
    """Apply what is missing, each migration in a transaction of its own; returns their names."""
    session = await connections.open()
    try:
        # Without a lock at first: a server that starts on a database of its version waits for nobody.
        fresh = await _carry_out(session, apply_missing(await _applied_migrations(session), "postgres"))
        await session.connection.close()
    except CatalogError:
        raise
    except Exception as error:
        raise refusal(error) from error
    finally:
        session.end()  # whatever was not committed is rolled back, and no lock stays
    return fresh


async def _carry_out(session: PostgresSession, steps: Migrating) -> list[str]:
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, float):
                await asyncio.sleep(wanted * random.uniform(0.5, 1.0))
                wanted = next(steps)
                continue
            try:
                done = await _apply(session, wanted)
            except TableHeld as held:
                wanted = steps.throw(held)
            else:
                wanted = steps.send(done)
    except StopIteration as finished:
        names: list[str] = finished.value
        return names


async def _apply(session: PostgresSession, migration: Migration) -> bool:
    """Whether it was applied here: another server may have been faster."""
    number, name, sql = migration
    run = session.connection.execute
    try:
        await run(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0;"
            f"SET LOCAL lock_timeout = '{TURN_SECONDS}s'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK});"
            f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; {CREATE_MIGRATIONS.format(text='TEXT')}",
            timeout=LONGEST_SECONDS,
        )
        needed = number in [each for each, _, _ in missing_migrations(await _applied_migrations(session), "postgres")]
        if needed:
            if sql:
                await run(sql, timeout=LONGEST_SECONDS)
            await run("INSERT INTO nunatak_migrations VALUES ($1, $2)", number, name)
        await run("COMMIT")
    except CatalogError:
        raise
    except Exception as error:
        if sqlstate_of(error) not in _GIVEN_UP:
            raise MigrationFailed(name, error) from error
        await session.script("ROLLBACK")
        raise TableHeld(str(error)) from error
    return needed


async def _applied_migrations(session: PostgresSession) -> set[int]:
    """The numbers of the migrations that the database has."""
    if await session.connection.fetchval("SELECT to_regclass('nunatak_migrations')") is None:
        return set()
    return {row[0] for row in await session.connection.fetch("SELECT number FROM nunatak_migrations")}
