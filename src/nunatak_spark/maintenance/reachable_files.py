"""The files that a table references, as DataFrames of path, kind and size; and the table's names."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nunatak_spark.maintenance.java_class_names import refuse_class_names
from nunatak_spark.maintenance.job_context import JobContext, JobRefused
from nunatak_spark.sql_text import literal, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# content: 0 data files, 1 position deletes and deletion vectors, 2 equality deletes. Many vectors share one file.
FILES = "SELECT file_path AS path, if(content = 0, 'data', 'deletes') AS kind, file_size_in_bytes AS size FROM {0}"
MANIFESTS = "SELECT path, 'manifest' AS kind, length AS size FROM {0}"
LISTS = "SELECT manifest_list AS path, 'manifest-list' AS kind, CAST(NULL AS BIGINT) AS size FROM {0}"
# The metadata tables that maintenance reads.
METADATA_TABLES = (
    "all_files",
    "all_manifests",
    "data_files",
    "entries",
    "files",
    "manifests",
    "position_deletes",
    "snapshots",
)
MAX_SKIPPED = 20  # kept snapshots to subtract from a plan; each costs a scan of its manifests
SCHEME_AND_AUTHORITY = "^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?"  # scheme and authority


def sql_name(context: JobContext) -> str:
    """Returns the SQL name of the table, quoted."""
    return ".".join(map(quote_identifier, (context.catalog, *context.spec.namespace, context.spec.table)))


def display_name(context: JobContext) -> str:
    return ".".join((*context.spec.namespace, context.spec.table))


def refresh(context: JobContext) -> None:
    """Makes Spark reload the table: other clients commit too, and a cached copy must not decide about files.

    Iceberg also drops the cached metadata tables, but finds them by splitting their names at dots, so it misses those
    of a table or namespace with a dot in its name. These are refreshed one by one.
    """
    name, spec = sql_name(context), context.spec
    context.spark.sql(f"REFRESH TABLE {name}")
    if any("." in level for level in (*spec.namespace, spec.table)):
        for each in METADATA_TABLES:
            context.spark.sql(f"REFRESH TABLE {name}.{each}")


def load_metadata(context: JobContext) -> dict[str, Any]:
    """Returns the table's current metadata; raises JobRefused if another table has the name now."""
    loaded = context.client.load_table((*context.spec.namespace, context.spec.table))
    metadata: dict[str, Any] = loaded["metadata"]
    if metadata["table-uuid"] != context.spec.table_uuid:
        raise JobRefused(f"{display_name(context)} is another table by now: plan the job again")
    refuse_class_names(display_name(context), loaded)
    return metadata


def reachable_files(context: JobContext, *, without_files: bool = False) -> "DataFrame":
    """Returns all files that any snapshot references, and statistics files; not the metadata files.

    `without_files` leaves out data and delete files, which need a read of every manifest.
    """
    metadata = load_metadata(context)
    name = sql_name(context)
    refresh(context)
    parts = [
        MANIFESTS.format(f"{name}.all_manifests"),
        f"{LISTS.format(f'{name}.snapshots')} WHERE manifest_list IS NOT NULL",
    ]
    if not without_files:
        parts.append(FILES.format(f"{name}.all_files"))
    statistics = [*metadata.get("statistics", []), *metadata.get("partition-statistics", [])]
    if statistics:
        rows = [f"({literal(each['statistics-path'])}, {int(each['file-size-in-bytes'])})" for each in statistics]
        parts.append(f"SELECT path, 'statistics', size FROM VALUES {', '.join(rows)} AS statistics (path, size)")
    everything = " UNION ALL ".join(parts)
    return context.spark.sql(f"SELECT path, min(kind) AS kind, max(size) AS size FROM ({everything}) GROUP BY path")


def files_only_of_snapshots(context: JobContext, forgotten: Collection[int]) -> "DataFrame | None":
    """Returns the files that become unreachable when these snapshots are removed; None if there are none.

    Manifest lists and statistics belong to one snapshot each. Manifests come from the manifest lists. Data files are
    read only if a manifest becomes unreachable, which never happens for tables with appends only.
    """
    metadata = load_metadata(context)
    own = _own_files(metadata, set(forgotten))
    if not own:
        return None
    name = sql_name(context)
    refresh(context)
    found = context.spark.createDataFrame(own, "path STRING, kind STRING, size BIGINT")
    manifests = context.spark.sql(
        f"SELECT path, 'manifest' AS kind, max(length) AS size FROM {name}.all_manifests GROUP BY path "
        f"HAVING bool_and(reference_snapshot_id IN ({', '.join(map(str, forgotten))}))"
    )
    if not manifests.limit(1).collect():
        return found
    files = context.spark.sql(FILES.format(f"{name}.all_files"))
    kept = [
        f"SELECT file_path AS path FROM {name}.files VERSION AS OF {each}"
        for each in _kept_snapshots(metadata, forgotten)
    ]
    if kept:
        files = files.join(context.spark.sql(" UNION ALL ".join(kept)), "path", "left_anti")
    everything = found.union(manifests).union(files.select("path", "kind", "size"))
    once = everything.groupBy("path").agg({"kind": "min", "size": "max"})  # many deletion vectors share a file
    return once.selectExpr("path", "`min(kind)` AS kind", "`max(size)` AS size")


def _own_files(metadata: Mapping[str, Any], forgotten: set[int]) -> list[tuple[str, str, int | None]]:
    """Returns path, kind and size of the files that the metadata names for these snapshots."""
    lists = [
        (each["manifest-list"], "manifest-list", None)
        for each in metadata.get("snapshots") or ()
        if each["snapshot-id"] in forgotten and each.get("manifest-list")
    ]
    statistics = [
        (each["statistics-path"], "statistics", int(each["file-size-in-bytes"]))
        for member in ("statistics", "partition-statistics")
        for each in metadata.get(member) or ()
        if each["snapshot-id"] in forgotten
    ]
    return [*lists, *statistics]


def _kept_snapshots(metadata: Mapping[str, Any], forgotten: Collection[int]) -> list[int]:
    """Returns the snapshots whose files are subtracted from a plan: refs first, then the newest, at most MAX_SKIPPED.

    Files that other kept snapshots need are planned in vain; the check before the deletion keeps them.
    """
    left = [each for each in metadata.get("snapshots") or () if each["snapshot-id"] not in forgotten]
    newest = sorted(left, key=lambda each: each.get("sequence-number") or 0, reverse=True)
    heads = [ref["snapshot-id"] for ref in (metadata.get("refs") or {}).values()]
    known = {each["snapshot-id"] for each in left}
    ordered = [*(each for each in heads if each in known), *(each["snapshot-id"] for each in newest)]
    return list(dict.fromkeys(ordered))[:MAX_SKIPPED]


def paths_frame(context: JobContext, paths: Sequence[str], kind: str) -> "DataFrame":
    """Returns a frame of files of which only the path is known."""
    return context.spark.createDataFrame(
        [(path, kind, None) for path in paths], "path STRING, kind STRING, size BIGINT"
    )


def filter_reachable(context: JobContext, paths: Sequence[str]) -> list[str]:
    """Returns the paths that the table references, however it spells them."""
    wanted = context.spark.createDataFrame([(path, plain_path(path)) for path in paths], "path STRING, plain STRING")
    plain = f"regexp_replace(path, {literal(SCHEME_AND_AUTHORITY)}, '') AS plain"
    rows = wanted.join(reachable_files(context).selectExpr(plain), "plain", "left_semi").select("path").collect()
    return sorted(str(row["path"]) for row in rows)


def plain_path(location: str) -> str:
    """Returns a location without scheme, authority and trailing slash."""
    return re.sub(SCHEME_AND_AUTHORITY, "", location).rstrip("/")
