"""Applies migrations to MariaDB: one server at a time; an interrupted migration is resumed."""

import logging
from functools import partial
from hashlib import sha256

from nunatak.database.mariadb_connections import (
    BYTE_ORDER,
    REPEATED,
    MariadbConnections,
    MariadbSession,
    error_text,
    number_of,
)
from nunatak.database.migration_runner import (
    CREATE_MIGRATIONS,
    MAX_SECONDS,
    TURN_SECONDS,
    Migration,
    MigrationInterrupted,
    TableHeld,
    apply_missing,
    migrate_blocking,
    missing_migrations,
)
from nunatak.errors import CatalogError, ServiceUnavailable

log = logging.getLogger(__name__)


def migrate(connections: MariadbConnections) -> list[str]:
    """Applies missing migrations; returns their names."""
    session = connections.open(command_seconds=MAX_SECONDS)
    try:
        if session.flavour == "MySQL":
            log.warning("the database is MySQL, which is not tested: the migrations use SQL that MySQL 8 lacks")
        # Checked without a lock first: on an up-to-date database a starting server need not wait.
        return migrate_blocking(apply_missing(_applied_migrations(session), "mariadb"), partial(_apply, session))
    finally:
        session.close()  # releases the lock, too


def _apply(session: MariadbSession, migration: Migration) -> bool:
    """Applies a migration; returns False if another server has applied it meanwhile."""
    number, name, sql = migration
    try:
        _take_turn(session)
        if number not in [each for each, _, _ in missing_migrations(_applied_migrations(session), "mariadb")]:
            return False
        session.statement(f"{CREATE_MIGRATIONS.format(text='VARCHAR(255)')} ENGINE = InnoDB")
        if sql:
            session.script(sql.replace(BYTE_ORDER["MariaDB"], BYTE_ORDER[session.flavour]))
        session.batch([("note_migration", {"number": number, "name": name})])
    except CatalogError:
        raise
    except Exception as error:
        if number_of(error) not in REPEATED:
            raise MigrationInterrupted(name, error_text(error)) from error
        raise TableHeld(error_text(error)) from error
    return True


def _take_turn(session: MariadbSession) -> None:
    """Takes the migration lock until the session ends. Lock names are server-wide: this one includes the database."""
    ((database,),) = session.statement("SELECT database()").rows
    digest = sha256(str(database).encode()).hexdigest()[:32]
    (taken,) = session.row("take_turn", {"lock": f"nunatak migration {digest}", "seconds": TURN_SECONDS})
    if taken != 1:
        raise ServiceUnavailable("Another server has been migrating the database for long")


def _applied_migrations(session: MariadbSession) -> set[int]:
    """Returns the numbers of the migrations that were applied to the database."""
    if not session.rows("migrations_table", {}):
        return set()
    return {row[0] for row in session.rows("applied_migrations", {})}
