"""The table that a job works on: its metadata from the catalog, and its SQL name. Reads no data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nunatak.client import Json
from nunatak.errors import NotFound
from nunatak_spark.maintenance.java_class_names import refuse_class_names
from nunatak_spark.maintenance.job_context import JobContext, JobRefused
from nunatak_spark.maintenance.reachable_files import display_name, refresh, sql_name
from nunatak_spark.sql_text import literal, quote_identifier

REPLACE = "replace"  # operation of a snapshot that changes files but no rows


@dataclass(frozen=True)
class Snapshot:
    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    sequence_number: int
    operation: str
    summary: Mapping[str, str]

    def count(self, name: str) -> int:
        """Returns a count of the summary; 0 if it is missing."""
        text = self.summary.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True)
class LoadedTable:
    """A table as loaded at one moment; `name` is its full SQL name."""

    name: str
    metadata: Json
    snapshots: Mapping[int, Snapshot]

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.metadata.get("properties") or {}
        return found

    @property
    def refs(self) -> Mapping[str, Json]:
        found: Mapping[str, Json] = self.metadata.get("refs") or {}
        return found

    @property
    def current(self) -> Snapshot | None:
        return self.snapshots.get(self.metadata.get("current-snapshot-id") or -1)

    @property
    def spec(self) -> Json:
        """The current partition spec."""
        specs: list[Json] = self.metadata["partition-specs"]
        return next(each for each in specs if each["spec-id"] == self.metadata["default-spec-id"])

    @property
    def is_partitioned(self) -> bool:
        """Whether any partition spec, also an earlier one, has fields."""
        return any(each["fields"] for each in self.metadata["partition-specs"])

    @property
    def columns(self) -> Sequence[Json]:
        """The fields of the current schema; nested fields are inside their parents."""
        schemas: list[Json] = self.metadata["schemas"]
        current = next(each for each in schemas if each["schema-id"] == self.metadata["current-schema-id"])
        fields: list[Json] = current["fields"]
        return fields

    def ancestors(self, since: int | None) -> list[Snapshot]:
        """Returns the current snapshot and its ancestors after `since`, newest first; all known ones for None."""
        found, one = [], self.current
        while one is not None and one.snapshot_id != since:
            found.append(one)
            one = self.snapshots.get(one.parent_id) if one.parent_id is not None else None
        return found

    def descends_from(self, snapshot_id: int) -> bool:
        """Returns whether the current snapshot is that one or descends from it."""
        line = self.ancestors(snapshot_id)
        return line[-1].parent_id == snapshot_id if line else self.current is not None

    def metadata_table(self, kind: str, snapshot_id: int | None = None) -> str:
        """Returns the SQL name of a metadata table such as `files`, for FROM."""
        name = f"{self.name}.{quote_identifier(kind)}"
        return name if snapshot_id is None else f"{name} VERSION AS OF {snapshot_id}"

    @property
    def argument(self) -> str:
        """The name as a procedure argument."""
        return literal(self.name)


def load_table(context: JobContext) -> LoadedTable:
    """Loads the table from the catalog and refreshes it in Spark; raises JobRefused if another table has the name."""
    spec = context.spec
    printed = display_name(context)
    try:
        loaded = context.client.load_table((*spec.namespace, spec.table))
    except NotFound as error:
        raise JobRefused(f"{printed} does not exist any more: {error}") from error
    metadata = loaded["metadata"]
    if metadata["table-uuid"] != spec.table_uuid:
        raise JobRefused(
            f"{printed} is another table than the one the job is for: its uuid is {metadata['table-uuid']} and not "
            f"{spec.table_uuid}. Plan the job again."
        )
    refuse_class_names(printed, loaded)
    name = sql_name(context)
    refresh(context)
    snapshots = {each["snapshot-id"]: _parse_snapshot(each) for each in metadata.get("snapshots") or ()}
    return LoadedTable(name, metadata, snapshots)


def _parse_snapshot(found: Json) -> Snapshot:
    summary: dict[str, str] = found.get("summary") or {}
    return Snapshot(
        snapshot_id=found["snapshot-id"],
        parent_id=found.get("parent-snapshot-id"),
        timestamp_ms=found["timestamp-ms"],
        sequence_number=found.get("sequence-number") or 0,
        operation=summary.get("operation", ""),
        summary=summary,
    )


def call_procedure(context: JobContext, procedure: str, arguments: Mapping[str, str]) -> Any:
    """Calls an Iceberg procedure with SQL arguments; returns its first row, or None."""
    given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
    # Every procedure that is called here returns one row.
    rows = context.spark.sql(f"CALL {quote_identifier(context.catalog)}.system.{procedure}({given})").collect()
    return rows[0] if rows else None


def options_sql(values: Mapping[str, object]) -> str:
    """Returns procedure options as SQL."""
    return f"map({', '.join(literal(str(each)) for each in _flat(values))})"


def _flat(values: Mapping[str, object]) -> Iterator[object]:
    for name, value in values.items():
        yield name
        yield value
