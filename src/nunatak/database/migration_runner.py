"""Which migrations a database still needs, in which order and how patiently they are applied; no SQL runs here."""

import time
from collections.abc import Callable, Collection, Generator

from nunatak.database.ddl import Dialect
from nunatak.database.statements import read_migrations
from nunatak.errors import InternalError

Migration = tuple[int, str, str]  # number, name, SQL

TRIES = 10  # for tables that others hold
PAUSE_SECONDS = 1.0  # between them, for those who waited behind a try
TURN_SECONDS = 120  # to wait for another server that migrates
LONGEST_SECONDS = 3600  # one statement of a migration on a large catalog

CREATE_MIGRATIONS = "CREATE TABLE IF NOT EXISTS nunatak_migrations (number INTEGER PRIMARY KEY, name {text} NOT NULL)"


class SchemaTooNew(InternalError):
    """A later version has migrated this database; this one would not understand what it finds."""


class MigrationFailed(InternalError):
    """Nothing of the migration was kept, and no lock."""

    said = (
        "The migration {name} could not be applied: {reason}. Nothing of it was kept, and the version before goes on "
        "working. Remove the cause, then start again or run `nunatak database migrate`"
    )

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(self.said.format(name=name, reason=reason))


class MigrationInterrupted(MigrationFailed):
    """MariaDB commits each definition by itself, so what was done before stays; every step may be taken again."""

    said = (
        "The migration {name} could not be finished: {reason}. Nothing in the catalog was lost. Remove the cause, then "
        "start again or run `nunatak database migrate`: it goes on from there"
    )


class TableHeld(Exception):
    """Raised by a driver for a migration that met a table which others hold: it gave way, and may come again."""


# A migration that waits for a table makes every commit behind it wait too: it gives up soon, and comes again.
Migrating = Generator[Migration | float, bool, list[str]]


def apply_missing(applied: Collection[int], dialect: Dialect) -> Migrating:
    """Yields each missing migration to be applied and is sent whether it was applied here; or seconds to pause.

    Returns the names of those that were.
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
    """Carries out `migrating` with a blocking driver."""
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
    """What is still to be applied, in order."""
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
