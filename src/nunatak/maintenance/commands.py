"""Command lines and SQL that maintain a table: the words of `nunatak maintain`, and the quoting of table names."""

import shlex
from dataclasses import dataclass

from nunatak.access import securables
from nunatak.iceberg.identifiers import Identifier

# The subcommand of `nunatak maintain` for each type of job.
WORDS = {
    "row-retention": "retain",
    "data-compaction": "compact",
    "delete-compaction": "deletes",
    "manifest-rewrite": "manifests",
    "statistics": "statistics",
    "snapshot-expiry": "expire",
    "metadata-retention": "metadata",
    "orphan-removal": "orphans",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The table that a command, a plan or a health check is about."""

    warehouse: str
    identifier: Identifier
    in_default_warehouse: bool = True

    @property
    def securable(self) -> str:
        return securables.entry(self.warehouse, self.identifier.namespace, self.identifier.name)

    @property
    def sql_name(self) -> str:
        """Returns the table's name as Spark SQL reads it, relative to the current catalog."""
        return ".".join(_sql_word(level) for level in (*self.identifier.namespace, self.identifier.name))

    def command(self, words: str) -> str:
        """Returns a `nunatak` command line with these words, followed by the table."""
        name = ".".join(_argument(level) for level in (*self.identifier.namespace, self.identifier.name))
        place = "" if self.in_default_warehouse else f" --warehouse {shlex.quote(self.warehouse)}"
        return f"nunatak {words} {shlex.quote(name)}{place}"

    def maintain(self, job_type: str) -> str:
        return self.command(f"maintain {WORDS[job_type]}")

    def alter(self, change: str) -> str:
        return f"ALTER TABLE {self.sql_name} {change}"


def sql_identifier(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _sql_word(level: str) -> str:
    return level if level.isascii() and level.isidentifier() else sql_identifier(level)


def _argument(level: str) -> str:
    """Quotes a level as the command line expects: in double quotes if it contains a dot or a double quote."""
    return f'"{level.replace(chr(34), chr(34) * 2)}"' if set(level) & set('."') else level
