"""What every source can be asked and told, and what those have in common that Spark knows as a catalog of Iceberg's."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from nunatak_spark.configuration import CATALOG, CATALOG_CLASS, missing_settings
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.migration.model import InventoryTable, MigrationSource, sql_name
from nunatak_spark.migration.source_files import MetadataDocument, StartSpark, read_document
from nunatak_spark.sql_text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Levels = tuple[str, ...]

# How to log in, by the property of the Spark catalog; AWS has its own ways.
VARIABLES = {
    "rest": {"token": "NUNATAK_SOURCE_TOKEN", "credential": "NUNATAK_SOURCE_CREDENTIAL"},
    "jdbc": {"jdbc.password": "NUNATAK_SOURCE_PASSWORD"},
    "hive": {"password": "NUNATAK_SOURCE_PASSWORD"},  # for SASL PLAIN
}


def source_secrets(source: MigrationSource, environment: Mapping[str, str]) -> dict[str, str]:
    variables = VARIABLES.get(source.kind, {})
    return {name: value for name, variable in variables.items() if (value := environment.get(variable))}


class SourceCatalog(Protocol):
    """One source, open. Nothing but `rename`, `block` and `unblock` changes it, and these can be undone."""

    @property
    def source(self) -> MigrationSource: ...

    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        """Everything there is, by pages; a metadata document comes along where the source hands it out anyway."""

    def namespace_properties(self, namespace: Levels) -> dict[str, str]:
        """The properties of a namespace as Iceberg's own catalogs give them; none where namespaces have none."""

    def find_pointer(self, found: InventoryTable, name: Levels) -> str:
        """What the table of this `name` points at now, or nothing if it is gone."""

    def reload(self, found: InventoryTable, name: Levels) -> InventoryTable:
        """A table of files as it is now, for somebody may have added files, and columns with them."""

    def metadata_at(self, found: InventoryTable, name: Levels, pointer: str) -> MetadataDocument | None:
        """What the metadata file at `pointer` says, which may be an earlier one; None if it is not Iceberg's table."""

    def rows(self, found: InventoryTable, name: Levels) -> "DataFrame":
        """All rows of it, read anew."""

    def rows_at(self, found: InventoryTable, name: Levels, snapshot_id: int | None) -> "DataFrame":
        """The rows of one snapshot of a table of Iceberg's, whatever was committed since; none without a snapshot."""

    def freeze_method(self, found: InventoryTable) -> tuple[str, str]:
        """How writers can be kept away, `renamed` or `blocked`, or nothing; and what to know about that."""

    def rename(self, found: InventoryTable, old: Levels, new: Levels) -> None: ...

    def block(self, found: InventoryTable, pointer: str) -> bool:
        """Make the next commit fail unless there was one since `pointer`; return whether that is so now."""

    def is_blocked(self, found: InventoryTable, pointer: str) -> bool:
        """Whether it still is; nothing is changed."""

    def unblock(self, found: InventoryTable, pointer: str) -> None: ...

    def close(self) -> None: ...


class SparkSourceCatalog:
    """A source whose tables Spark reads by name; the kinds of catalogs add how to list it."""

    def __init__(self, source: MigrationSource, spark: StartSpark, secrets: Mapping[str, str]) -> None:
        self.source = source
        self.spark = spark
        self.secrets = secrets

    def close(self) -> None:
        """Nothing is held open."""

    def session(self) -> "SparkSession":
        """The session, in which the catalog is known by the source's name."""
        session = self.spark()
        add_source_catalog(session, self.source, self.secrets)
        return session

    def namespace_properties(self, namespace: Levels) -> dict[str, str]:
        return {}

    def find_pointer(self, found: InventoryTable, name: Levels) -> str:
        return read_pointer(self.session(), sql_name(self.source.name, name))

    def reload(self, found: InventoryTable, name: Levels) -> InventoryTable:
        return found

    def metadata_at(self, found: InventoryTable, name: Levels, pointer: str) -> MetadataDocument | None:
        return read_document(self.spark, pointer) if found.kind == "iceberg" else None

    def rows(self, found: InventoryTable, name: Levels) -> "DataFrame":
        return self.session().table(sql_name(self.source.name, name))

    def rows_at(self, found: InventoryTable, name: Levels, snapshot_id: int | None) -> "DataFrame":
        session, table = self.session(), sql_name(self.source.name, name)
        if snapshot_id is None:
            return session.table(table).where("false")
        return session.read.option("versionAsOf", snapshot_id).table(table)

    def freeze_method(self, found: InventoryTable) -> tuple[str, str]:
        return "renamed", "the table has another name at the source, under which it can still be read"

    def rename(self, found: InventoryTable, old: Levels, new: Levels) -> None:
        target = quote_name(new)
        self.session().sql(f"ALTER TABLE {sql_name(self.source.name, old)} RENAME TO {target}")

    def block(self, found: InventoryTable, pointer: str) -> bool:
        raise NotImplementedError(f"{self.source.kind} is frozen by renaming")

    def is_blocked(self, found: InventoryTable, pointer: str) -> bool:
        raise NotImplementedError(f"{self.source.kind} is frozen by renaming")

    def unblock(self, found: InventoryTable, pointer: str) -> None:
        raise NotImplementedError(f"{self.source.kind} is frozen by renaming")


def add_source_catalog(session: "SparkSession", source: MigrationSource, secrets: Mapping[str, str]) -> None:
    """Make the source known to a running session; nothing is cached, for we ask whether something changed."""
    prefix = f"{CATALOG}{source.name}"
    settings = {
        prefix: CATALOG_CLASS,
        f"{prefix}.cache-enabled": "false",
        **{f"{prefix}.{key}": value for key, value in {**source.properties, **secrets}.items()},
    }
    present = {key: value for key in settings if (value := session.conf.get(key, None)) is not None}
    for key, value in missing_settings(present, settings).items():
        session.conf.set(key, value)


def require_catalog_name(name: str) -> str:
    if not re.fullmatch(r"[^.`\s]+", name) or name == "spark_catalog":
        raise CannotRun(f"{name!r} cannot name a catalog in Spark", fix="Choose another name with --as.")
    return name


def read_pointer(session: "SparkSession", name: str) -> str:
    """The metadata file that a table stands at now, by its own history, whose last line is the present."""
    try:
        rows = session.sql(f"SELECT file FROM {name}.metadata_log_entries").collect()
    except Exception as error:
        if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
            return ""
        raise CannotRun(
            f"{name} cannot be asked where it stands: {failure_reason(error)}", fix="Look at the source."
        ) from error
    return str(rows[-1]["file"])


def walk_namespaces(session: "SparkSession", catalog: str, parent: Levels = ()) -> Iterator[Levels]:
    """Every namespace, each before its children."""
    for row in session.sql(f"SHOW NAMESPACES IN {sql_name(catalog, parent)}").collect():
        namespace = parse_name(row["namespace"])
        if len(namespace) <= len(parent):  # some catalogs answer with the last level alone
            namespace = (*parent, namespace[-1])
        yield namespace
        yield from walk_namespaces(session, catalog, namespace)


def parse_name(text: str) -> Levels:
    """Levels as Spark prints them: parted by dots, in backquotes where one has to be."""
    quoted = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", text)
    return tuple(plain or inner.replace("``", "`") for inner, plain in quoted)
