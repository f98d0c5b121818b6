"""The ingest job: moves the spool into the `system` tables, each line exactly once, even if it is killed.

Structured Streaming records the files of a batch before it reads them, and Iceberg ignores a batch of a query that it
has committed already: an interrupted batch is repeated as a whole. Files are deleted after their batches are committed.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.jobs import Progress, ProgressStep, Report, Spec
from nunatak_spark.sql_text import literal
from nunatak_spark.system_tables import system_table_name
from nunatak_spark.telemetry import spool_files, views
from nunatak_spark.telemetry.rejections import Rejections
from nunatak_spark.telemetry.spool_files import WaitingFiles
from nunatak_spark.telemetry.telemetry_tables import COMMON, KINDS, REJECTED, columns_sql, ensure_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATEST_DAYS = 2  # after this no server writes into a day's folder, even with a wrong clock
BROKEN = "_broken"  # Spark's column for malformed lines
MAX_LINE_LENGTH = 10_000  # characters kept of a rejected line


class IngestSpec(Spec, frozen=True, kw_only=True):
    """`spool` is a folder or location that Spark can read; `checkpoint` defaults to a folder inside it."""

    spool: str
    checkpoint: str | None = None
    catalog: str = "lake"
    files_per_batch: int = 500
    keep_files: bool = False


class IngestReport(Report, frozen=True, kw_only=True):
    """`lines` read by kind, also blank and rejected ones; `files_left` could not be deleted.

    `rejected` counts each line once: lines that a killed run rejected are in the next run's report.
    """

    lines: dict[str, int] = msgspec.field(default_factory=dict)
    rejected: int = 0
    files: int = 0
    files_left: int = 0


def ingest(spark: "SparkSession", spec: IngestSpec, progress: Progress) -> IngestReport:
    """Ingests all waiting files; `ok` is False if lines were rejected."""
    root = spec.spool.rstrip("/")
    checkpoint = (spec.checkpoint or f"{root}/{spool_files.CHECKPOINTS}").rstrip("/")
    folder = spool_files.local_folder(root)
    today = datetime.now(UTC).date()
    with spool_files.lock_spool(folder):
        ensure_tables(spark, spec.catalog)
        days = spool_files.find_waiting(spark, root)
        lines: dict[str, int] = {}
        rejections = Rejections(spark, spec.catalog, root)
        removed = 0
        for number, waiting in enumerate(days):
            progress(ProgressStep("ingesting", number, len(days)))
            queries = _ingest_day(spark, spec, f"{root}/", f"{checkpoint}/{waiting.day}", waiting)
            for kind in waiting.kinds:
                lines[kind] = lines.get(kind, 0) + _count_lines(queries[kind])
            rejections.count(waiting.day, str(queries[REJECTED].id))
            # Every query has committed all files that existed before it started, so they can be deleted.
            removed += 0 if spec.keep_files else spool_files.delete_files(waiting)
        if folder is not None and not spec.keep_files:
            last = today - timedelta(days=LATEST_DAYS)
            spool_files.forget_days(folder, spool_files.local_folder(checkpoint), last.isoformat())
        views.ensure_views(spark, spec.catalog)
        progress(ProgressStep("ingesting", len(days), len(days)))
        files = sum(waiting.count for waiting in days)
        rejected = rejections.report(today)
    return IngestReport(ok=rejected == 0, lines=lines, rejected=rejected, files=files, files_left=files - removed)


def _ingest_day(
    spark: "SparkSession", spec: IngestSpec, root: str, checkpoint: str, waiting: WaitingFiles
) -> "dict[str, StreamingQuery]":
    """Runs one query per kind and one for rejected lines, in parallel, until all waiting files are committed."""
    everything = f"{root}{{{','.join(KINDS)}}}/{waiting.day}"
    frames = {kind: accepted_rows(_lines(spark, spec, f"{root}{kind}/{waiting.day}"), kind) for kind in waiting.kinds}
    frames[REJECTED] = rejected_rows(_lines(spark, spec, everything))
    queries = {
        table: _start_query(frame, f"{checkpoint}/{table}", system_table_name(spec.catalog, table))
        for table, frame in frames.items()
    }
    try:
        for query in queries.values():
            query.awaitTermination()
    finally:
        for query in queries.values():
            query.stop()
    return queries


def _lines(spark: "SparkSession", spec: IngestSpec, path: str) -> "DataFrame":
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", spec.files_per_batch)
    # The server may delete the oldest files. maxFileAge: a file's age does not tell whether it was ingested.
    reader = reader.option("ignoreMissingFiles", "true").option("maxFileAge", "3650d")
    return reader.load(path).selectExpr("value", "_metadata.file_path AS file").where("trim(value) <> ''")


def _start_query(frame: "DataFrame", checkpoint: str, table: str) -> "StreamingQuery":
    writer = frame.writeStream.format("iceberg").outputMode("append").trigger(availableNow=True)
    return writer.option("checkpointLocation", checkpoint).option("fanout-enabled", "true").toTable(table)


def _count_lines(query: "StreamingQuery") -> int:
    told: list[Any] = query.recentProgress
    return sum(int(one["numInputRows"]) for one in told)


# Rows from lines


def accepted_rows(lines: "DataFrame", kind: str) -> "DataFrame":
    """Returns the rows of a kind's table."""
    names = list(KINDS[kind])
    known = ", ".join(literal(name) for name in names)
    unknown = f"map_filter(from_json(value, 'MAP<STRING, STRING>'), (name, _) -> NOT name IN ({known}))"
    parsed = lines.selectExpr(f"{_parse_sql(kind)} AS record", f"{unknown} AS unknown").where(
        f"{_reason_sql('record')} IS NULL"
    )
    return parsed.selectExpr(
        *(f"record.`{name}`" for name in names), "CASE WHEN cardinality(unknown) > 0 THEN to_json(unknown) END AS rest"
    )


def rejected_rows(lines: "DataFrame") -> "DataFrame":
    """Returns the rows of the table of rejected lines, from lines of every kind."""
    cases = " ".join(
        f"WHEN {literal(kind)} THEN transform(array({_parse_sql(kind)}), record -> {_reason_sql('record')})[0]"
        for kind in KINDS
    )
    found = lines.selectExpr("value", "file", "element_at(split(file, '/'), -3) AS kind")
    judged = found.selectExpr("value", "file", "kind", f"CASE kind {cases} END AS reason").where("reason IS NOT NULL")
    return judged.selectExpr(
        "current_timestamp() AS at", "kind", "file", "reason", f"substr(value, 1, {MAX_LINE_LENGTH}) AS line"
    )


def _parse_sql(kind: str) -> str:
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{BROKEN}')"
    schema = columns_sql({**KINDS[kind], BROKEN: "STRING"})
    return f"from_json(value, {literal(schema)}, {options})"


def _reason_sql(record: str) -> str:
    """Returns SQL for the reason of a rejection; NULL for an accepted line."""
    missing = " ".join(f"WHEN {record}.{name} IS NULL THEN '{name} is missing'" for name in COMMON)
    return f"CASE WHEN {record} IS NULL OR {record}.{BROKEN} IS NOT NULL THEN 'not JSON of this kind' {missing} END"
