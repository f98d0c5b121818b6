"""Which files a table leads to, as DataFrames of path, kind and size; and how the table is named in SQL."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nunatak_spark.maintenance.class_names import refuse_class_names
from nunatak_spark.maintenance.work import Refused, Work
from nunatak_spark.sql_text import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# content: 0 are data files, 1 position deletes and deletion vectors, 2 equality deletes. Many vectors share a file.
FILES = "SELECT file_path AS path, if(content = 0, 'data', 'deletes') AS kind, file_size_in_bytes AS size FROM {0}"
MANIFESTS = "SELECT path, 'manifest' AS kind, length AS size FROM {0}"
LISTS = "SELECT manifest_list AS path, 'manifest-list' AS kind, CAST(NULL AS BIGINT) AS size FROM {0}"
PLACE = "^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?"  # scheme and authority


def sql_name(work: Work) -> str:
    """The table as SQL names it, whatever letters its name has."""
    return ".".join(map(quoted, (work.catalog, *work.spec.namespace, work.spec.table)))


def printed_name(work: Work) -> str:
    return ".".join((*work.spec.namespace, work.spec.table))


def load_metadata(work: Work) -> dict[str, Any]:
    """The table's metadata as the catalog has it now; Refused if another table has the name by now."""
    loaded = work.client.load_table((*work.spec.namespace, work.spec.table))
    metadata: dict[str, Any] = loaded["metadata"]
    if metadata["table-uuid"] != work.spec.table_uuid:
        raise Refused(f"{printed_name(work)} is another table by now: plan the job again")
    refuse_class_names(printed_name(work), loaded)
    return metadata


def reachable_files(work: Work) -> "DataFrame":
    """All that any snapshot of the table leads to, and its statistics; not the metadata files."""
    metadata = load_metadata(work)
    name = sql_name(work)
    # A copy that Spark has kept must not decide about files: other clients commit as well.
    work.spark.sql(f"REFRESH TABLE {name}")
    parts = [
        FILES.format(f"{name}.all_files"),
        MANIFESTS.format(f"{name}.all_manifests"),
        f"{LISTS.format(f'{name}.snapshots')} WHERE manifest_list IS NOT NULL",
    ]
    statistics = [*metadata.get("statistics", []), *metadata.get("partition-statistics", [])]
    if statistics:
        rows = [f"({literal(each['statistics-path'])}, {int(each['file-size-in-bytes'])})" for each in statistics]
        parts.append(f"SELECT path, 'statistics', size FROM VALUES {', '.join(rows)} AS statistics (path, size)")
    everything = " UNION ALL ".join(parts)
    return work.spark.sql(f"SELECT path, min(kind) AS kind, max(size) AS size FROM ({everything}) GROUP BY path")


def forgettable_files(work: Work) -> "DataFrame | None":
    """What may become unreachable when snapshots are forgotten: all but what the current one leads to, which stays."""
    if len(load_metadata(work).get("snapshots", [])) < 2:
        return None
    everything = reachable_files(work)
    name = sql_name(work)
    current = work.spark.sql(f"{FILES.format(f'{name}.files')} UNION ALL {MANIFESTS.format(f'{name}.manifests')}")
    return everything.join(current.select("path"), "path", "left_anti")


def paths_frame(work: Work, paths: Sequence[str], kind: str) -> "DataFrame":
    """Files that are known by their paths alone."""
    return work.spark.createDataFrame([(path, kind, None) for path in paths], "path STRING, kind STRING, size BIGINT")


def reachable_among(work: Work, paths: Sequence[str]) -> list[str]:
    """Those that the table leads to, whichever way it spells them."""
    wanted = work.spark.createDataFrame([(path, path_of(path)) for path in paths], "path STRING, plain STRING")
    plain = f"regexp_replace(path, {literal(PLACE)}, '') AS plain"
    rows = wanted.join(reachable_files(work).selectExpr(plain), "plain", "left_semi").select("path").collect()
    return sorted(str(row["path"]) for row in rows)


def path_of(location: str) -> str:
    """A location without scheme, authority and a slash at the end: one store's files differ in nothing else."""
    return re.sub(PLACE, "", location).rstrip("/")
