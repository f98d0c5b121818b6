"""The telemetry queries: views in the namespace `system`, and the same queries since any time."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nunatak_spark.sql_text import literal, quote_identifier
from nunatak_spark.system_tables import NAMESPACE, system_table_name
from nunatak_spark.telemetry.telemetry_tables import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINCE = "current_timestamp() - INTERVAL 30 DAYS"  # how far a view looks back
TEXT = "nunatak.text"  # view property with the digest of its text
TABLE = "warehouse, namespace, table_name"
LEAVES = "operation IN ('drop-table', 'unregister-table', 'rename-table')"
# Drops and renames: the time a table left its name, and the new name of a rename, escaped like the namespace column.
DEPARTURES = f"""
  SELECT at, {TABLE}, operation = 'rename-table' AS is_renamed,
    left(renamed_to, length(renamed_to) - length(substring_index(renamed_to, '.', -1)) - 1) AS new_namespace,
    replace(replace(substring_index(renamed_to, '.', -1), '%2E', '.'), '%25', '%') AS new_name
  FROM {{events}} WHERE status < 300 AND table_name IS NOT NULL AND {LEAVES}"""
# Tables that exist under this name according to the events, also by a rename.
STANDING = f"""
  SELECT {TABLE} FROM (
    SELECT {TABLE}, at, NOT {LEAVES} AS is_there
    FROM {{events}} WHERE status < 300 AND table_name IS NOT NULL AND operation LIKE '%-table'
    UNION ALL
    SELECT warehouse, new_namespace, new_name, at, true FROM ({DEPARTURES}) WHERE is_renamed
  )
  GROUP BY {TABLE} HAVING max_by(is_there, struct(at, is_there))"""
# For each rename: the earliest and latest time of the old name, and the table's current name, found by following all
# later drops and renames.
MOVES = f"""
  SELECT {TABLE}, since, until, now_called.namespace AS now_namespace, now_called.name AS now_name
  FROM (
    SELECT {TABLE}, since, at AS until, aggregate(
      filter(departures, later -> later.at > moved.at),
      named_struct('namespace', new_namespace, 'name', new_name, 'is_there', true),
      (called, later) -> CASE
        WHEN NOT called.is_there OR later.namespace <> called.namespace OR later.table_name <> called.name THEN called
        WHEN later.is_renamed
          THEN named_struct('namespace', later.new_namespace, 'name', later.new_name, 'is_there', true)
        ELSE named_struct('namespace', called.namespace, 'name', called.name, 'is_there', false) END) AS now_called
    FROM (SELECT *, lag(at) OVER (PARTITION BY {TABLE} ORDER BY at) AS since FROM ({DEPARTURES})) AS moved
    JOIN (
      SELECT warehouse, array_sort(collect_list(
        struct(at, namespace, table_name, is_renamed, new_namespace, new_name))) AS departures
      FROM ({DEPARTURES}) GROUP BY warehouse
    ) USING (warehouse)
    WHERE is_renamed
  )"""
COMMITTED = (
    "operation IN ('commit-table', 'create-table', 'register-table') AND status < 300 AND table_name IS NOT NULL "
    "AND at >= {since}"
)
# Compaction with partial progress conflicts with itself, which is harmless.
CONFLICT = "status = 409 AND coalesce(snapshot_operation, '') <> 'replace'"


def by_current_name(kind: str, *columns: str) -> str:
    """Returns a subquery of the records of a kind, under the current names of their tables."""
    chosen = ", ".join(f"told.{column}" for column in ("at", *columns))
    return f"""(
  SELECT told.warehouse, coalesce(moves.now_namespace, told.namespace) AS namespace,
    coalesce(moves.now_name, told.table_name) AS table_name, {chosen}
  FROM {{{kind}}} AS told LEFT JOIN ({MOVES}) AS moves
  ON told.warehouse = moves.warehouse AND told.namespace = moves.namespace AND told.table_name = moves.table_name
    AND told.at <= moves.until AND (moves.since IS NULL OR told.at > moves.since)
)"""


@dataclass(frozen=True)
class View:
    """A query; `{since}` and the table names are filled in when it is run."""

    name: str
    meaning: str
    text: str

    def sql(self, catalog: str | None = None, since: str = SINCE) -> str:
        """Returns the query; without `catalog` for the current catalog. `since` is an SQL expression."""
        names = {kind: system_table_name(catalog, kind) if catalog else f"{NAMESPACE}.{kind}" for kind in KINDS}
        return self.text.format(**names, since=since).strip()


VIEWS = (
    View(
        "activity",
        "Commits, conflicts, scans and loads of all tables, by the day",
        f"""
SELECT day, sum(commits) AS commits, sum(conflicts) AS conflicts, max(p95_ms) AS p95_ms, sum(scans) AS scans,
  sum(loads) AS loads
FROM (
  SELECT CAST(at AS DATE) AS day, count_if(status < 300) AS commits, count_if({CONFLICT}) AS conflicts,
    round(percentile(duration_ms, 0.95) FILTER (WHERE status < 300), 1) AS p95_ms, 0 AS scans, 0 AS loads
  FROM {{events}} WHERE operation IN ('commit-table', 'create-table') AND at >= {{since}} GROUP BY day
  UNION ALL
  SELECT CAST(at AS DATE) AS day, 0, 0, NULL, count(*), 0 FROM {{scan_reports}} WHERE at >= {{since}} GROUP BY day
  UNION ALL
  SELECT CAST(at AS DATE) AS day, 0, 0, NULL, 0, sum(loads) FROM {{table_loads}} WHERE at >= {{since}} GROUP BY day
)
GROUP BY day ORDER BY day""",
    ),
    View(
        "small_files",
        "Tables of many files that are small on average",
        f"""
SELECT {TABLE}, data_files, data_bytes, CAST(data_bytes / data_files AS BIGINT) AS average_bytes
FROM (
  SELECT {TABLE}, max_by(counters['total-data-files'], at) AS data_files,
    max_by(counters['total-files-size'], at) AS data_bytes
  FROM {by_current_name("events", "operation", "status", "counters")}
  WHERE {COMMITTED} AND counters['total-data-files'] IS NOT NULL GROUP BY {TABLE}
) LEFT SEMI JOIN ({STANDING}) USING ({TABLE})
WHERE data_files >= 10 AND data_bytes / data_files < 32 * 1024 * 1024
ORDER BY data_files DESC""",
    ),
    View(
        "growth",
        "What commits added to each namespace, by the day",
        f"""
SELECT warehouse, namespace, CAST(at AS DATE) AS day, count(*) AS commits,
  sum(coalesce(counters['added-records'], 0) - coalesce(counters['deleted-records'], 0)) AS records,
  sum(coalesce(counters['added-files-size'], 0) - coalesce(counters['removed-files-size'], 0)) AS bytes
FROM {{events}} WHERE {COMMITTED} AND snapshot_id IS NOT NULL
GROUP BY warehouse, namespace, day ORDER BY day, warehouse, namespace""",
    ),
    View(
        "conflicts",
        "Commits to each table, and how many were refused because of a conflict, without compaction",
        f"""
SELECT {TABLE}, count_if(status < 300) AS commits, count_if({CONFLICT}) AS conflicts,
  round(count_if({CONFLICT}) / count_if(status < 300 OR {CONFLICT}), 4) AS ratio, sum(tries - 1) AS retries
FROM {by_current_name("events", "operation", "status", "snapshot_operation", "tries")}
WHERE operation = 'commit-table' AND table_name IS NOT NULL AND at >= {{since}}
GROUP BY {TABLE} HAVING count_if(status < 300 OR {CONFLICT}) > 0 ORDER BY ratio DESC, conflicts DESC, {TABLE}""",
    ),
    View(
        "commit_latency",
        "How long the catalog took for commits",
        f"""
SELECT {TABLE}, count(*) AS commits, round(percentile(duration_ms, 0.5), 1) AS p50_ms,
  round(percentile(duration_ms, 0.95), 1) AS p95_ms, round(max(duration_ms), 1) AS max_ms
FROM {by_current_name("events", "operation", "status", "duration_ms")}
WHERE {COMMITTED} GROUP BY {TABLE} ORDER BY p95_ms DESC, {TABLE}""",
    ),
    View(
        "metadata_size",
        "Size of metadata files, which every commit rewrites",
        f"""
SELECT {TABLE}, max_by(metadata_bytes, at) AS metadata_bytes, count(*) AS commits
FROM {by_current_name("events", "operation", "status", "metadata_bytes")} LEFT SEMI JOIN ({STANDING}) USING ({TABLE})
WHERE {COMMITTED} AND metadata_bytes IS NOT NULL GROUP BY {TABLE} ORDER BY metadata_bytes DESC, {TABLE}""",
    ),
    View(
        "unused_tables",
        "Tables without any load, scan or commit",
        f"""
SELECT {TABLE}, max(at) AS last_used, max(at) FILTER (WHERE scanned) AS last_scanned
FROM (
  SELECT {TABLE}, at, false AS scanned FROM {by_current_name("events", "status")} WHERE status < 300
  UNION ALL SELECT {TABLE}, at, false FROM {by_current_name("table_loads")}
  UNION ALL SELECT {TABLE}, at, true FROM {by_current_name("scan_reports")}
) LEFT SEMI JOIN ({STANDING}) USING ({TABLE})
GROUP BY {TABLE} HAVING max(at) < {{since}} ORDER BY last_used, {TABLE}""",
    ),
    View(
        "hot_columns",
        "Which columns scans read, and which they filter by",
        f"""
SELECT {TABLE}, column_name, sum(projected) AS projected, sum(filtered) AS filtered
FROM (
  SELECT {TABLE}, explode(projected_fields) AS column_name, 1 AS projected, 0 AS filtered
  FROM {by_current_name("scan_reports", "projected_fields")} WHERE at >= {{since}}
  UNION ALL
  SELECT {TABLE}, explode(filter_columns), 0, 1
  FROM {by_current_name("scan_reports", "filter_columns")} WHERE at >= {{since}}
)
GROUP BY {TABLE}, column_name ORDER BY filtered DESC, projected DESC, {TABLE}, column_name""",
    ),
    View(
        "scan_planning",
        "How long engines planned scans, and how many files they could leave out",
        f"""
SELECT {TABLE}, count(*) AS scans, round(percentile(timers_ms['total-planning-duration'], 0.5), 1) AS p50_ms,
  round(percentile(timers_ms['total-planning-duration'], 0.95), 1) AS p95_ms,
  sum(coalesce(counters['result-data-files'], 0)) AS files_scanned,
  sum(coalesce(counters['skipped-data-files'], 0)) AS files_skipped,
  sum(coalesce(counters['scanned-data-manifests'], 0)) AS manifests_scanned,
  sum(coalesce(counters['skipped-data-manifests'], 0)) AS manifests_skipped
FROM {by_current_name("scan_reports", "counters", "timers_ms")}
WHERE at >= {{since}} GROUP BY {TABLE} ORDER BY scans DESC, {TABLE}""",
    ),
    View(
        "delete_drag",
        "How many delete files scans had to read beside data files",
        f"""
SELECT {TABLE}, count(*) AS scans, sum(counters['result-delete-files']) AS delete_files,
  sum(counters['result-data-files']) AS data_files,
  round(sum(counters['result-delete-files']) / greatest(sum(counters['result-data-files']), 1), 3) AS deletes_per_file
FROM {by_current_name("scan_reports", "counters")} WHERE at >= {{since}} AND counters['result-delete-files'] > 0
GROUP BY {TABLE} ORDER BY deletes_per_file DESC, {TABLE}""",
    ),
    View(
        "top_principals",
        "Who changes, scans and is denied how much",
        """
SELECT principal, sum(changes) AS changes, sum(refused) AS refused, sum(scans) AS scans, sum(denied) AS denied,
  max(at) AS last_seen
FROM (
  SELECT principal, at, if(status < 300, 1, 0) AS changes, if(status < 300, 0, 1) AS refused, 0 AS scans, 0 AS denied
  FROM {events} WHERE at >= {since}
  UNION ALL SELECT principal, at, 0, 0, 1, 0 FROM {scan_reports} WHERE at >= {since}
  UNION ALL
  SELECT principal, at, 0, 0, 0, if(outcome = 'denied', repeats, 0) FROM {audit} WHERE at >= {since}
)
GROUP BY principal ORDER BY changes + scans DESC, principal""",
    ),
    View(
        "maintenance_outcomes",
        "What became of maintenance jobs",
        """
SELECT type, state, count(*) AS jobs, count_if(changed) AS changed, sum(size_bytes) AS bytes, max(at) AS last_finished,
  max_by(nullif(error, ''), at) AS last_error
FROM (
  SELECT at, inline(array(from_json(detail,
    'type STRING, state STRING, changed BOOLEAN, size_bytes BIGINT, error STRING')))
  FROM {audit} WHERE action = 'finishMaintenanceJob' AND at >= {since}
)
GROUP BY type, state ORDER BY type, state""",
    ),
)
BY_NAME = {view.name: view for view in VIEWS}


def ensure_views(spark: "SparkSession", catalog: str) -> None:
    """Creates the views that are missing or whose text has changed."""
    made = {
        row.viewName
        for row in spark.sql(f"SHOW VIEWS IN {quote_identifier(catalog)}.{quote_identifier(NAMESPACE)}").collect()
    }
    current = spark.catalog.currentCatalog()
    # The view's text names no catalog, so that it works under any catalog name of a session.
    spark.catalog.setCurrentCatalog(catalog)
    try:
        for view in VIEWS:
            name, mark = system_table_name(catalog, view.name), text_digest(view)
            if view.name not in made or mark != _stored_digest(spark, name):
                spark.sql(
                    f"CREATE OR REPLACE VIEW {name} COMMENT {literal(view.meaning)} "
                    f"TBLPROPERTIES ({literal(TEXT)} = {literal(mark)}) AS {view.sql()}"
                )
    finally:
        spark.catalog.setCurrentCatalog(current)


def text_digest(view: View) -> str:
    return hashlib.sha256(f"{view.meaning}\n{view.sql()}".encode()).hexdigest()[:16]


def _stored_digest(spark: "SparkSession", name: str) -> str | None:
    properties = {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    return properties.get(TEXT)
