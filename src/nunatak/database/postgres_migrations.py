"""Applies migrations to PostgreSQL: one server at a time, each in a transaction, with short lock timeouts."""

import asyncio
import random

from nunatak.database.migration_runner import (
    CREATE_MIGRATIONS,
    MAX_SECONDS,
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
LOCK_SECONDS = 2  # for a table lock: commits queue behind the waiting migration
_GIVEN_UP = {"55P03", "40P01", "40001"}  # lock not available, deadlock, serialization failure


async def migrate(connections: PostgresConnections) -> list[str]:
    """Applies missing migrations, each in a transaction of its own; returns their names."""
    session = await connections.open()
    try:
        # Checked without a lock first: on an up-to-date database a starting server need not wait.
        fresh = await _carry_out(session, apply_missing(await _applied_migrations(session), "postgres"))
        await session.connection.close()
    except CatalogError:
        raise
    except Exception as error:
        raise refusal(error) from error
    finally:
        session.end()  # the server rolls back and releases the locks
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
    """Applies a migration; returns False if another server has applied it meanwhile."""
    number, name, sql = migration
    run = session.connection.execute
    try:
        await run(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0;"
            f"SET LOCAL lock_timeout = '{TURN_SECONDS}s'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK});"
            f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; {CREATE_MIGRATIONS.format(text='TEXT')}",
            timeout=MAX_SECONDS,
        )
        needed = number in [each for each, _, _ in missing_migrations(await _applied_migrations(session), "postgres")]
        if needed:
            if sql:
                await run(sql, timeout=MAX_SECONDS)
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
    """Returns the numbers of the migrations that were applied to the database."""
    if await session.connection.fetchval("SELECT to_regclass('nunatak_migrations')") is None:
        return set()
    return {row[0] for row in await session.connection.fetch("SELECT number FROM nunatak_migrations")}
