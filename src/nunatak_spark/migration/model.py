"""What a migration speaks of: sources, tables found there, how each gets over, where it stands, and the evidence."""

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
TableKind = Literal["iceberg", "hive", "files", "view"]  # hive: a table of a metastore that is not Iceberg's
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
    """Where tables come from: `name` is what it is called in SQL, `properties` are those of the Spark catalog.

    Nothing here is secret; how to log in comes from the environment each time.
    """

    kind: SourceKind
    name: str
    address: str
    properties: dict[str, str] = {}
    options: dict[str, str] = {}


class MigrationFinding(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """Something to know: a `kind` for programs, a sentence for people, and where: a column, a file, a partition."""

    kind: str
    text: str
    where: str = ""


class SourcePermission(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """What somebody may do at the source, in its own words."""

    principal: str
    privilege: str
    principal_type: str = "user"


class SourceColumn(msgspec.Struct, frozen=True, rename="kebab"):
    """One column as the source declares it; `type` is in Spark's words, such as `decimal(9,2)` or `char(3)`."""

    name: str
    type: str


class InventoryTable(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """One line of the inventory: a table or view of a source, and what its metadata tell for free.

    `name` are its levels there. `pointer` is the metadata file of an Iceberg table, and of files a digest of their
    list: either way it is another one after the source was written to. `columns` and `partitioned_by` are of tables
    that are not Iceberg's, whose data are files of `format` below `location`.
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
    """How a table gets over, and under which name; `because` is the reason for the method, above all of a refusal."""

    method: Method
    target: tuple[str, ...]
    wave: int = 1
    because: str = ""


class Evidence(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """What one level of verification showed, with all that is needed to look again."""

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
    """What one level of verification found out, before it becomes evidence with its times and pointers."""

    findings: tuple[MigrationFinding, ...] = ()
    facts: dict[str, Any] = {}
    statements: tuple[str, ...] = ()


class SourceFreeze(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """How the source was kept from being written to, and what is needed to undo it; `how` is empty if it was not."""

    how: Literal["", "renamed", "blocked"] = ""
    pointer: str = ""
    to: str = ""
    because: str = ""


class MigrationTable(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """One table of a migration and where it stands.

    `source_pointer` and `target_pointer` are what the last copy read and made; another pointer at the target means
    that somebody wrote there. `problem` is why the last step failed, and `failed_at` which one that was; the state
    stays that of the step before. Evidence from before `rolled_back_ms` says nothing about the table of today.
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
    """A namespace of a source, what it is called at the target, and which of its properties were set there.

    `kept` are properties for which the target had another value before, which it keeps.
    """

    source: str
    name: tuple[str, ...]
    target: tuple[str, ...]
    properties: dict[str, str] = {}
    kept: tuple[str, ...] = ()


class LogEntry(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """One thing that a command did."""

    at_ms: int
    command: str
    text: str
    table: str = ""


class Migration(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """All that the folder of a migration knows; what the report is made of. `evidence` is by title of the table.

    `grants` are the commands that would give at the target what people hold at the source; `unmapped` is the rest.
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
    """One namespace at both ends: its properties there and here; of those in `kept` the target has its own value."""

    name: tuple[str, ...]
    target: tuple[str, ...]
    before: dict[str, str]
    after: dict[str, str]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class TablePair:
    """One table at both ends, as the levels of verification look at it.

    `catalog` is what the target is called in SQL. `source_pointer` asks the source where it stands now, and answers
    with an empty text if the table is gone. `source_metadata` and `source_rows` give the metadata document (None if it
    is not an Iceberg table) and the rows; if the source `may_move`, they are those of `table.source_pointer`, whatever
    was committed since. `reached` is what L1 found if it looked at many tables together. `namespaces` were read when
    the pair was made, by the thread that may use the migration's state.
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
        """In SQL."""
        return sql_name(self.catalog, self.planned.target)


def sql_name(catalog: str, levels: tuple[str, ...]) -> str:
    return quote_name((catalog, *levels))


def display_name(levels: tuple[str, ...]) -> str:
    """As the command line prints and takes names: in double quotes where a level holds a dot or a quote."""
    return ".".join('"' + level.replace('"', '""') + '"' if set(level) & set('."') else level for level in levels)


def table_title(found: InventoryTable) -> str:
    """One name for a table among all sources: a key of the folder, and a property of what we make at the target."""
    return f"{found.source}:{'.'.join(map(_quote_level, found.name))}"


def _quote_level(level: str) -> str:
    return level if level and not re.search(r"[.`]", level) else quote_identifier(level)
