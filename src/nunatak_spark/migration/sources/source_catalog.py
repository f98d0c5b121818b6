"""The interface of source catalogs, and the base class of those that Spark knows as Iceberg catalogs."""

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

# Environment variables of logins, by Spark catalog property; AWS clients find their own credentials.
VARIABLES = {
    "rest": {"token": "NUNATAK_SOURCE_TOKEN", "credential": "NUNATAK_SOURCE_CREDENTIAL"},
    "jdbc": {"jdbc.password": "NUNATAK_SOURCE_PASSWORD"},
    "hive": {"password": "NUNATAK_SOURCE_PASSWORD"},  # for SASL PLAIN
}


def source_secrets(source: MigrationSource, environment: Mapping[str, str]) -> dict[str, str]:
    variables = VARIABLES.get(source.kind, {})
    return {name: value for name, variable in variables.items() if (value := environment.get(variable))}


class SourceCatalog(Protocol):
    """An open source catalog. Only `rename`, `block` and `unblock` change it, and these can be undone."""

    @property
    def source(self) -> MigrationSource: ...

    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        """Yields all tables, page by page; with the metadata document if the source returns it anyway."""

    def namespace_properties(self, namespace: Levels) -> dict[str, str]:
        """Returns the namespace's properties as Iceberg's catalogs return them; empty if there are none."""

    def find_pointer(self, found: InventoryTable, name: Levels) -> str:
        """Returns what the table of this `name` points at now; empty if it is gone."""

    def reload(self, found: InventoryTable, name: Levels) -> InventoryTable:
        """Returns a table of files as it is now: files and columns may have been added."""

    def metadata_at(self, found: InventoryTable, name: Levels, pointer: str) -> MetadataDocument | None:
        """Returns the metadata file at `pointer`, perhaps an earlier one; None if it is not an Iceberg table."""

    def rows(self, found: InventoryTable, name: Levels) -> "DataFrame":
        """Returns all current rows."""

    def rows_at(self, found: InventoryTable, name: Levels, snapshot_id: int | None) -> "DataFrame":
        """Returns the rows of one snapshot, whatever was committed since; no rows without a snapshot."""

    def freeze_method(self, found: InventoryTable) -> tuple[str, str]:
        """Returns how writers can be stopped (`renamed`, `blocked` or empty), and a note about it."""

    def rename(self, found: InventoryTable, old: Levels, new: Levels) -> None: ...

    def block(self, found: InventoryTable, pointer: str) -> bool:
        """Makes the next commit fail, unless there was one since `pointer`; returns whether it is blocked now."""

    def is_blocked(self, found: InventoryTable, pointer: str) -> bool:
        """Returns whether it is still blocked; changes nothing."""

    def unblock(self, found: InventoryTable, pointer: str) -> None: ...

    def close(self) -> None: ...


class SparkSourceCatalog:
    """A source whose tables Spark reads by name; subclasses add how to list it."""

    def __init__(self, source: MigrationSource, spark: StartSpark, secrets: Mapping[str, str]) -> None:
        self.source = source
        self.spark = spark
        self.secrets = secrets

    def close(self) -> None:
        """Nothing to close."""

    def session(self) -> "SparkSession":
        """Returns the session with the source added as a catalog."""
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
    """Adds the source to a running session, without Iceberg's cache: we have to notice changes."""
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
    """Returns the table's current metadata file: the last entry of its metadata log."""
    try:
        rows = session.sql(f"SELECT file FROM {name}.metadata_log_entries").collect()
    except Exception as error:
        if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
            return ""
        raise CannotRun(
            f"the current metadata of {name} cannot be read: {failure_reason(error)}", fix="Look at the source."
        ) from error
    return str(rows[-1]["file"])


def walk_namespaces(session: "SparkSession", catalog: str, parent: Levels = ()) -> Iterator[Levels]:
    """Yields every namespace, parents first."""
    for row in session.sql(f"SHOW NAMESPACES IN {sql_name(catalog, parent)}").collect():
        namespace = parse_name(row["namespace"])
        if len(namespace) <= len(parent):  # some catalogs return the last level only
            namespace = (*parent, namespace[-1])
        yield namespace
        yield from walk_namespaces(session, catalog, namespace)


def parse_name(text: str) -> Levels:
    """Parses a name as Spark prints it: levels separated by dots, in backticks where needed."""
    quoted = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", text)
    return tuple(plain or inner.replace("``", "`") for inner, plain in quoted)
