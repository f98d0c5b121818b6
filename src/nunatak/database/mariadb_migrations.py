"""Bringing a MariaDB database to this version's schema: one server at a time, going on where one was interrupted."""

import logging
import time
from hashlib import sha256

from nunatak.database.mariadb_connections import BYTE_ORDER, REPEATED, Connections, Session, number_of, said
from nunatak.database.schema import Migration, missing
from nunatak.errors import CatalogError, InternalError, ServiceUnavailable

log = logging.getLogger(__name__)

TURN_SECONDS = 120  # for another server that migrates
TRIES = 10  # for a table that others hold
PAUSE_SECONDS = 1.0  # between them, for those who waited behind it
LONGEST_SECONDS = 3600.0  # one statement of a migration on a large catalog


class MigrationInterrupted(InternalError):
    """Definitions commit by themselves here, so what was done before stays; every step may be taken again."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(
            f"The migration {name} could not be finished: {reason}. Nothing in the catalog was lost. Remove the cause, "
            "then start again or run `nunatak database migrate`: it goes on from there"
        )


def migrate(connections: Connections) -> list[str]:
    """Apply what is missing; returns the names."""
    session = connections.open(command_seconds=LONGEST_SECONDS)
    try:
        if session.flavour == "MySQL":
            log.warning("the database is MySQL: Nunatak is tested on MariaDB, and meant but not known to work here")
        # Without a lock at first: a server that starts on a database of its version waits for nobody.
        if not missing(_applied(session), "mariadb"):
            return []
        _take_turn(session)
        fresh = missing(_applied(session), "mariadb")
        for migration in fresh:
            _apply_patiently(session, migration)
        return [name for _, name, _ in fresh]
    finally:
        session.close()  # and with it the lock


def _apply_patiently(session: Session, migration: Migration) -> None:
    """A definition that waits for a table makes every commit behind it wait too: it gives up soon, and comes again."""
    for attempt in range(1, TRIES + 1):
        try:
            return _apply(session, migration)
        except CatalogError:
            raise
        except Exception as error:
            if number_of(error) not in REPEATED or attempt == TRIES:
                raise MigrationInterrupted(migration[1], said(error)) from error
        time.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _apply(session: Session, migration: Migration) -> None:
    number, name, sql = migration
    session.statement(
        "CREATE TABLE IF NOT EXISTS nunatak_migrations (number INTEGER PRIMARY KEY, name VARCHAR(255) NOT NULL)"
        " ENGINE = InnoDB"
    )
    session.script(sql.replace(BYTE_ORDER["MariaDB"], BYTE_ORDER[session.flavour]))
    session.batch([("note_migration", {"number": number, "name": name})])


def _take_turn(session: Session) -> None:
    """A lock that ends with the session. Its name is known to the whole server, so it tells the database, too."""
    ((database,),) = session.statement("SELECT database()").rows
    digest = sha256(str(database).encode()).hexdigest()[:32]
    (taken,) = session.row("take_turn", {"lock": f"nunatak migration {digest}", "seconds": TURN_SECONDS})
    if taken != 1:
        raise ServiceUnavailable("Another server has been migrating the database for long")


def _applied(session: Session) -> set[int]:
    """The numbers of the migrations that the database has."""
    if not session.rows("migrations_table", {}):
        return set()
    return {row[0] for row in session.rows("applied_migrations", {})}
