"""Which migrations a database needs, in which order, and with which retries; drivers run the SQL."""

import time
from collections.abc import Callable, Collection, Generator

from nunatak.database.ddl import Dialect
from nunatak.database.statements import read_migrations
from nunatak.errors import InternalError

Migration = tuple[int, str, str]  # number, name, SQL

TRIES = 10  # for a table lock that other transactions hold
PAUSE_SECONDS = 1.0  # between tries, so that commits queued behind one can finish
TURN_SECONDS = 120  # to wait for another server that migrates
MAX_SECONDS = 3600  # limit of one statement of a migration on a large catalog

CREATE_MIGRATIONS = "CREATE TABLE IF NOT EXISTS nunatak_migrations (number INTEGER PRIMARY KEY, name {text} NOT NULL)"


class SchemaTooNew(InternalError):
    """A later version has migrated this database to a schema that this version does not know."""


class MigrationFailed(InternalError):
    """The migration was rolled back, and its locks were released."""

    said = (
        "The migration {name} could not be applied: {reason}. Nothing of it was kept, and the version before goes on "
        "working. Remove the cause, then start again or run `nunatak database migrate`"
    )

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(self.said.format(name=name, reason=reason))


class MigrationInterrupted(MigrationFailed):
    """The migration stopped half-way: MariaDB commits each DDL statement; every step can be repeated."""

    said = (
        "The migration {name} could not be finished: {reason}. Nothing in the catalog was lost. Remove the cause, then "
        "start again or run `nunatak database migrate`: it goes on from there"
    )


class TableHeld(Exception):
    """Raised by a driver when a migration timed out on a table lock; the migration may be retried."""


# Commits queue behind a migration that waits for a table lock, so it times out soon and is retried.
Migrating = Generator[Migration | float, bool, list[str]]


def apply_missing(applied: Collection[int], dialect: Dialect) -> Migrating:
    """Yields each missing migration and is sent whether this process applied it; or yields seconds to pause.

    Returns the names of the migrations applied.
    """
    failed = MigrationInterrupted if dialect == "mariadb" else MigrationFailed
    fresh = []
    for migration in missing_migrations(applied, dialect):
        for attempt in range(1, TRIES + 1):
            try:
                if (yield migration):
                    fresh.append(migration[1])
                break
            except TableHeld as held:
                if attempt == TRIES:
                    raise failed(migration[1], held) from held.__cause__
            yield PAUSE_SECONDS
    return fresh


def migrate_blocking(steps: Migrating, apply: Callable[[Migration], bool]) -> list[str]:
    """Runs `apply_missing` with a blocking driver."""
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, float):
                time.sleep(wanted)
                wanted = next(steps)
                continue
            try:
                done = apply(wanted)
            except TableHeld as held:
                wanted = steps.throw(held)
            else:
                wanted = steps.send(done)
    except StopIteration as finished:
        names: list[str] = finished.value
        return names


def missing_migrations(applied: Collection[int], dialect: Dialect) -> list[Migration]:
    """Returns the migrations that are still to be applied, in order; raises SchemaTooNew."""
    known = read_migrations(dialect)
    found, newest = max(applied, default=0), known[-1][0]
    if found > newest:
        raise SchemaTooNew(
            f"The database was migrated by a later version: it has schema {found}, this version knows up to {newest}. "
            "Start that version or a later one; the way back is a backup made before"
        )
    return [migration for migration in known if migration[0] not in applied]


def newest_schema(dialect: Dialect) -> int:
    return read_migrations(dialect)[-1][0]
