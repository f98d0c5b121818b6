"""What is typed to maintain a table: the words of `nunatak maintain`, and how a table's name is written there."""

import shlex
from dataclasses import dataclass

from nunatak.access import securables
from nunatak.iceberg.identifiers import Identifier

# The word of the command line for each type of job.
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
    """The table that is spoken of."""

    warehouse: str
    identifier: Identifier
    in_default_warehouse: bool = True

    @property
    def securable(self) -> str:
        return securables.entry(self.warehouse, self.identifier.namespace, self.identifier.name)

    @property
    def sql_name(self) -> str:
        """As Spark reads it, below the catalog that is in use."""
        return ".".join(_sql_word(level) for level in (*self.identifier.namespace, self.identifier.name))

    def command(self, words: str) -> str:
        """`nunatak` with these words, and the table behind them."""
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
    """As the command line's names are: in double quotes where a level holds a dot or a quote."""
    return f'"{level.replace(chr(34), chr(34) * 2)}"' if set(level) & set('."') else level
