"""The data of a migration: sources, tables, plans, states and evidence.

Saved as JSON: field names are a file format.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from nunatak.client import Client
from nunatak_spark.sql_text import quote_identifier, quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SourceKind = Literal["hive", "glue", "jdbc", "hadoop", "rest", "folder"]
TableKind = Literal["iceberg", "hive", "files", "view"]  # hive: a metastore table that is not Iceberg
Method = Literal["register", "adopt", "add_files", "copy", "refused"]
State = Literal["discovered", "planned", "shadowed", "verified", "cutover", "done", "retired", "rolled-back", "failed"]
LevelName = Literal["L0", "L1", "L2", "L3"]

STATES: tuple[State, ...] = (
    "discovered",
    "planned",
    "shadowed",
    "verified",
    "cutover",
    "done",
    "retired",
    "rolled-back",
    "failed",
)
LEVELS: tuple[LevelName, ...] = ("L0", "L1", "L2", "L3")


class MigrationSource(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """A source of tables: `name` is its catalog name in SQL, `properties` are those of the Spark catalog.

    Contains no secrets; logins come from the environment each time.
    """

    kind: SourceKind
    name: str
    address: str
    properties: dict[str, str] = {}
    options: dict[str, str] = {}


class MigrationFinding(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A finding: `kind` for programs, `text` for people, and `where`: a column, file or partition."""

    kind: str
    text: str
    where: str = ""


class SourcePermission(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A permission at the source, in its own terms."""

    principal: str
    privilege: str
    principal_type: str = "user"


class SourceColumn(msgspec.Struct, frozen=True, rename="kebab"):
    """A column as the source declares it; `type` is a Spark type such as `decimal(9,2)` or `char(3)`."""

    name: str
    type: str


class InventoryTable(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """An inventory entry: a table or view of a source, and facts from its metadata.

    `name` are its levels at the source. `pointer` is the metadata file of an Iceberg table, or a digest of the file
    list: either one changes with every write. `columns` and `partitioned_by` are set for tables that are not Iceberg,
    whose data are files of `format` below `location`.
    """

    source: str
    name: tuple[str, ...]
    kind: TableKind
    pointer: str = ""
    location: str = ""
    format: str = ""
    uuid: str = ""
    format_version: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None
    delete_files: int | None = None
    snapshots: int | None = None
    metadata_bytes: int | None = None
    last_write_ms: int | None = None
    owner: str = ""
    properties: dict[str, str] = {}
    columns: tuple[SourceColumn, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    read_options: dict[str, str] = {}
    permissions: tuple[SourcePermission, ...] = ()
    risks: tuple[MigrationFinding, ...] = ()


class TablePlan(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The method and the target name of a table; `because` is the reason, above all of a refusal."""

    method: Method
    target: tuple[str, ...]
    wave: int = 1
    because: str = ""


class Evidence(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """The result of one verification level, with everything needed to repeat it."""

    level: LevelName
    ok: bool
    findings: tuple[MigrationFinding, ...] = ()
    facts: dict[str, Any] = {}
    statements: tuple[str, ...] = ()
    started_ms: int
    ended_ms: int
    source_pointer: str = ""
    target_pointer: str = ""


class LevelResult(msgspec.Struct, frozen=True):
    """The result of one verification level, before times and pointers are added."""

    findings: tuple[MigrationFinding, ...] = ()
    facts: dict[str, Any] = {}
    statements: tuple[str, ...] = ()


class SourceFreeze(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """How the source was frozen, and what is needed to undo it; `how` is empty if it is not frozen."""

    how: Literal["", "renamed", "blocked"] = ""
    pointer: str = ""
    to: str = ""
    because: str = ""


class MigrationTable(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """One table of a migration and its state.

    `source_pointer` and `target_pointer` are what the last refresh read and wrote; another pointer at the target means
    that somebody committed there. `problem` is why the last step failed, `failed_at` which step; the state stays that
    of the step before. Evidence from before `rolled_back_ms` is not about the current table.
    """

    found: InventoryTable
    state: State = "discovered"
    planned: TablePlan | None = None
    source_pointer: str = ""
    target_pointer: str = ""
    frozen: SourceFreeze = SourceFreeze()
    problem: str = ""
    failed_at: str = ""
    rolled_back_ms: int = 0
    changed_ms: int = 0


class CopiedNamespace(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """A source namespace, its name at the target, and the properties that were set there.

    `kept` are properties that had another value at the target before, which is kept.
    """

    source: str
    name: tuple[str, ...]
    target: tuple[str, ...]
    properties: dict[str, str] = {}
    kept: tuple[str, ...] = ()


class LogEntry(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """One action of a command."""

    at_ms: int
    command: str
    text: str
    table: str = ""


class Migration(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """The whole state of a migration, for the report. `evidence` is by table title.

    `grants` are commands that give people at the target what they have at the source; `unmapped` is the rest.
    """

    target_uri: str
    warehouse: str
    sources: tuple[MigrationSource, ...]
    tables: tuple[MigrationTable, ...]
    evidence: dict[str, tuple[Evidence, ...]]
    log: tuple[LogEntry, ...]
    namespaces: tuple[CopiedNamespace, ...] = ()
    grants: tuple[str, ...] = ()
    unmapped: tuple[MigrationFinding, ...] = ()


@dataclass(frozen=True)
class NamespacePair:
    """A namespace at both ends with its properties; for those in `kept` the target has its own value."""

    name: tuple[str, ...]
    target: tuple[str, ...]
    before: dict[str, str]
    after: dict[str, str]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class TablePair:
    """A table at both ends, as the verification levels see it.

    `catalog` is the target's name in SQL. `source_pointer` returns the source's current pointer, empty if the table is
    gone. `source_metadata` and `source_rows` return the metadata document (None if it is not Iceberg) and the rows;
    with `may_move` those of `table.source_pointer`, whatever was committed since. `reached` is the L1 result of a
    batch. `namespaces` were read by the main thread, which alone may use the state.
    """

    spark: "SparkSession"
    client: Client
    catalog: str
    table: MigrationTable
    planned: TablePlan
    source_pointer: Callable[[], str]
    source_metadata: Callable[[], dict[str, Any] | None]
    source_rows: "Callable[[], DataFrame]"
    may_move: bool = False
    reached: LevelResult | None = None
    namespaces: Sequence[NamespacePair] = ()

    @property
    def target_name(self) -> str:
        """The SQL name."""
        return sql_name(self.catalog, self.planned.target)


def sql_name(catalog: str, levels: tuple[str, ...]) -> str:
    return quote_name((catalog, *levels))


def display_name(levels: tuple[str, ...]) -> str:
    """Returns a name as the command line prints and takes it: levels with a dot or quote in double quotes."""
    return ".".join('"' + level.replace('"', '""') + '"' if set(level) & set('."') else level for level in levels)


def table_title(found: InventoryTable) -> str:
    """Returns a unique name of the table among all sources: a key of the state, and a property at the target."""
    return f"{found.source}:{'.'.join(map(_quote_level, found.name))}"


def _quote_level(level: str) -> str:
    return level if level and not re.search(r"[.`]", level) else quote_identifier(level)
