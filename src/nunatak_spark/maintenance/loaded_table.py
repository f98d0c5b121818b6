"""The table that a job works on: what the catalog says about it, and how SQL names it. Reads no data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nunatak.client import Json
from nunatak.errors import NotFound
from nunatak_spark.maintenance.java_class_names import refuse_class_names
from nunatak_spark.maintenance.job_context import Refused, Work
from nunatak_spark.maintenance.reachable_files import printed_name, refresh, sql_name
from nunatak_spark.sql_text import literal, quote_identifier

REPLACE = "replace"  # the operation of a snapshot that changes files and no rows


@dataclass(frozen=True)
class Snapshot:
    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    sequence_number: int
    operation: str
    summary: Mapping[str, str]

    def count(self, name: str) -> int:
        """A count of its summary; what is not there is none."""
        text = self.summary.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True)
class Table:
    """A table at one moment; `name` is what SQL calls it, in any session and whatever the current namespace is."""

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
        """How new files are partitioned."""
        specs: list[Json] = self.metadata["partition-specs"]
        return next(each for each in specs if each["spec-id"] == self.metadata["default-spec-id"])

    @property
    def is_partitioned(self) -> bool:
        """Whether any file may belong to a partition, also one of an earlier layout."""
        return any(each["fields"] for each in self.metadata["partition-specs"])

    @property
    def columns(self) -> Sequence[Json]:
        """The fields of the current schema, the nested ones inside their parents."""
        schemas: list[Json] = self.metadata["schemas"]
        current = next(each for each in schemas if each["schema-id"] == self.metadata["current-schema-id"])
        fields: list[Json] = current["fields"]
        return fields

    def line(self, since: int | None) -> list[Snapshot]:
        """The ancestors of the current snapshot after `since`, the newest first; all that are known if it is none."""
        found, one = [], self.current
        while one is not None and one.snapshot_id != since:
            found.append(one)
            one = self.snapshots.get(one.parent_id) if one.parent_id is not None else None
        return found

    def comes_from(self, snapshot_id: int) -> bool:
        """Whether the current snapshot is that one, or was made from it."""
        line = self.line(snapshot_id)
        return line[-1].parent_id == snapshot_id if line else self.current is not None

    def metadata_table(self, kind: str, snapshot_id: int | None = None) -> str:
        """One of the tables about the table, such as `files`, as it goes into FROM."""
        name = f"{self.name}.{quote_identifier(kind)}"
        return name if snapshot_id is None else f"{name} VERSION AS OF {snapshot_id}"

    @property
    def argument(self) -> str:
        """The name as an argument of a procedure."""
        return literal(self.name)


def load(work: Work) -> Table:
    """The table as it is now, in Spark too; Refused if another one has taken its name."""
    spec = work.spec
    printed = printed_name(work)
    try:
        loaded = work.client.load_table((*spec.namespace, spec.table))
    except NotFound as error:
        raise Refused(f"{printed} is not there any more: {error}") from error
    metadata = loaded["metadata"]
    if metadata["table-uuid"] != spec.table_uuid:
        raise Refused(
            f"{printed} is another table than the one the job is for: its uuid is {metadata['table-uuid']} and not "
            f"{spec.table_uuid}. Plan the job anew."
        )
    refuse_class_names(printed, loaded)
    name = sql_name(work)
    refresh(work)
    snapshots = {each["snapshot-id"]: _snapshot(each) for each in metadata.get("snapshots") or ()}
    return Table(name, metadata, snapshots)


def _snapshot(found: Json) -> Snapshot:
    summary: dict[str, str] = found.get("summary") or {}
    return Snapshot(
        snapshot_id=found["snapshot-id"],
        parent_id=found.get("parent-snapshot-id"),
        timestamp_ms=found["timestamp-ms"],
        sequence_number=found.get("sequence-number") or 0,
        operation=summary.get("operation", ""),
        summary=summary,
    )


def call(work: Work, procedure: str, arguments: Mapping[str, str]) -> Any:
    """The first row that an Iceberg procedure answers with, None if there is none; the arguments are SQL."""
    given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
    # Each of the procedures that are called here answers with one row.
    rows = work.spark.sql(f"CALL {quote_identifier(work.catalog)}.system.{procedure}({given})").collect()
    return rows[0] if rows else None


def options(values: Mapping[str, object]) -> str:
    """A procedure's options as SQL."""
    return f"map({', '.join(literal(str(each)) for each in _flat(values))})"


def _flat(values: Mapping[str, object]) -> Iterator[object]:
    for name, value in values.items():
        yield name
        yield value
