"""Which migrations a database still needs, and what is said when they cannot be applied; no SQL runs here."""

from collections.abc import Collection

from nunatak.database.statements import Dialect, read_migrations
from nunatak.errors import InternalError

Migration = tuple[int, str, str]  # number, name, SQL


class SchemaTooNew(InternalError):
    """A later version has migrated this database; this one would not understand what it finds."""


class MigrationFailed(InternalError):
    """Nothing of the migration was kept, and no lock."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(
            f"The migration {name} could not be applied: {reason}. Nothing of it was kept, and the version before "
            "goes on working. Remove the cause, then start again or run `nunatak database migrate`"
        )


def missing(applied: Collection[int], dialect: Dialect) -> list[Migration]:
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
