"""The report job: queries every telemetry view; returns plain values. telemetry_page.py renders them."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.errors import CannotRun
from nunatak_spark.jobs import Progress, ProgressStep, Report, Spec
from nunatak_spark.system_tables import system_table_name
from nunatak_spark.telemetry.telemetry_tables import KINDS, REJECTED
from nunatak_spark.telemetry.views import DEPARTURES, VIEWS, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_ROWS = 500  # per view
Row = dict[str, Any]


class ReportSpec(Spec, frozen=True, kw_only=True):
    catalog: str = "lake"
    days: int = 30


class TelemetryFindings(Report, frozen=True, kw_only=True):
    """The rows of each view since `since`; `rows` of each table in total, and the time of the `newest` event."""

    made_at: str
    since: str
    days: int
    answers: dict[str, list[Row]]
    rows: dict[str, int] = msgspec.field(default_factory=dict)
    newest: str | None = None


def collect(spark: "SparkSession", spec: ReportSpec, progress: Progress) -> TelemetryFindings:
    """Queries every view for the last days."""
    if not spark.catalog.tableExists(system_table_name(spec.catalog, "events")):
        raise CannotRun("There is no telemetry in this catalog", fix="nunatak report ingest")
    now = datetime.now(UTC).replace(microsecond=0)
    since = now - timedelta(days=spec.days)
    answers = {}
    for number, view in enumerate(VIEWS):
        progress(ProgressStep("asking", number, len(VIEWS)))
        answers[view.name] = query_view(spark, spec.catalog, view, since)
    rows = {table: spark.table(system_table_name(spec.catalog, table)).count() for table in (*KINDS, REJECTED)}
    newest = spark.sql(f"SELECT max(at) FROM {system_table_name(spec.catalog, 'events')}").collect()[0][0]
    progress(ProgressStep("asking", len(VIEWS), len(VIEWS)))
    return TelemetryFindings(
        made_at=now.isoformat(),
        since=since.isoformat(),
        days=spec.days,
        answers=answers,
        rows=rows,
        newest=None if newest is None else str(newest),
    )


def unseen_tables(spark: "SparkSession", catalog: str, listed: Collection[str]) -> list[str]:
    """Returns the listed tables that telemetry has never seen."""
    if not listed:
        return []
    wanted = spark.createDataFrame([(name,) for name in sorted(listed)], "name STRING")
    rows = wanted.join(_seen_tables(spark, catalog), "name", "left_anti").collect()
    return sorted(str(row["name"]) for row in rows)


def _seen_tables(spark: "SparkSession", catalog: str) -> "DataFrame":
    """Returns every table in telemetry, by namespace and name."""
    kinds = [kind for kind, columns in KINDS.items() if "table_name" in columns]
    every = " UNION ".join(f"SELECT namespace, table_name FROM {system_table_name(catalog, kind)}" for kind in kinds)
    renamed = DEPARTURES.format(events=system_table_name(catalog, "events"))
    every += f" UNION SELECT new_namespace, new_name FROM ({renamed}) WHERE is_renamed"
    return spark.sql(f"SELECT concat(namespace, '.', table_name) AS name FROM ({every}) WHERE table_name IS NOT NULL")


def query_view(spark: "SparkSession", catalog: str, view: View, since: datetime) -> list[Row]:
    """Returns the first rows of a view since then; dates and times as text."""
    found = spark.sql(view.sql(catalog, f"TIMESTAMP '{since.isoformat()}'")).limit(MAX_ROWS).collect()
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in found]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
