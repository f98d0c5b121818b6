"""PostgreSQL brought to this version's schema: one server at a time, and never long in the way of commits."""

import asyncio
import random

from nunatak.database.postgres_connections import Connections, Session, lock_number, refusal, sqlstate_of
from nunatak.database.schema import Migration, MigrationFailed, missing
from nunatak.errors import CatalogError

MIGRATION_LOCK = lock_number("migration")
TURN_SECONDS = 120  # for another server that migrates
# A migration that waits for a table makes every commit behind it wait too: it gives up soon, and comes again.
LOCK_SECONDS = 2
TRIES = 10
PAUSE_SECONDS = 1.0  # between them, for those who waited behind it
LONGEST_SECONDS = 3600  # one statement of a migration on a large catalog
_GIVEN_UP = {"55P03", "40P01", "40001"}  # lock not available, deadlock, serialization failure


async def migrate(connections: Connections) -> list[str]:
    """Apply what is missing, each migration in a transaction of its own; returns their names."""
    session = await connections.open()
    try:
        # Without a lock at first: a server that starts on a database of its version waits for nobody.
        needed = missing(await _applied(session), "postgres")
        fresh = [migration[1] for migration in needed if await _apply_patiently(session, migration)]
        await session.connection.close()
    except CatalogError:
        raise
    except Exception as error:
        raise refusal(error) from error
    finally:
        session.end()  # whatever was not committed is rolled back, and no lock stays
    return fresh


async def _apply_patiently(session: Session, migration: Migration) -> bool:
    for attempt in range(1, TRIES + 1):
        try:
            return await _apply(session, migration)
        except CatalogError:
            raise
        except Exception as error:
            if sqlstate_of(error) not in _GIVEN_UP or attempt == TRIES:
                raise MigrationFailed(migration[1], error) from error
            await session.script("ROLLBACK")
        await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.0))
    raise AssertionError("unreachable")


async def _apply(session: Session, migration: Migration) -> bool:
    """Whether it was applied here: another server may have been faster."""
    number, name, sql = migration
    run = session.connection.execute
    await run(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0;"
        f"SET LOCAL lock_timeout = '{TURN_SECONDS}s'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK});"
        f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s';"
        "CREATE TABLE IF NOT EXISTS nunatak_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        timeout=LONGEST_SECONDS,
    )
    needed = number in [each for each, _, _ in missing(await _applied(session), "postgres")]
    if needed:
        await run(sql, timeout=LONGEST_SECONDS)
        await run("INSERT INTO nunatak_migrations VALUES ($1, $2)", number, name)
    await run("COMMIT")
    return needed


async def _applied(session: Session) -> set[int]:
    """The numbers of the migrations that the database has."""
    if await session.connection.fetchval("SELECT to_regclass('nunatak_migrations')") is None:
        return set()
    return {row[0] for row in await session.connection.fetch("SELECT number FROM nunatak_migrations")}
