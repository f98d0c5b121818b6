"""Which files a table leads to, as DataFrames of path, kind and size; and how the table is named in SQL."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nunatak_spark.maintenance.java_class_names import refuse_class_names
from nunatak_spark.maintenance.job_context import Refused, Work
from nunatak_spark.sql_text import literal, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# content: 0 are data files, 1 position deletes and deletion vectors, 2 equality deletes. Many vectors share a file.
FILES = "SELECT file_path AS path, if(content = 0, 'data', 'deletes') AS kind, file_size_in_bytes AS size FROM {0}"
MANIFESTS = "SELECT path, 'manifest' AS kind, length AS size FROM {0}"
LISTS = "SELECT manifest_list AS path, 'manifest-list' AS kind, CAST(NULL AS BIGINT) AS size FROM {0}"
# Those that maintenance reads.
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
MOST_LEFT_OUT = 20  # snapshots whose files a plan is compared with, each by a scan of its manifests
PLACE = "^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?"  # scheme and authority


def sql_name(work: Work) -> str:
    """The table as SQL names it, whatever letters its name has."""
    return ".".join(map(quote_identifier, (work.catalog, *work.spec.namespace, work.spec.table)))


def printed_name(work: Work) -> str:
    return ".".join((*work.spec.namespace, work.spec.table))


def refresh(work: Work) -> None:
    """Make Spark load the table anew: other clients commit as well, and an old copy must not decide about files.

    Iceberg forgets the metadata tables of a table along with it, but puts their names together as text, which it splits
    at dots: it misses those of a table or namespace that has a dot in its name.
    """
    name, spec = sql_name(work), work.spec
    work.spark.sql(f"REFRESH TABLE {name}")
    if any("." in level for level in (*spec.namespace, spec.table)):
        for each in METADATA_TABLES:
            work.spark.sql(f"REFRESH TABLE {name}.{each}")


def load_metadata(work: Work) -> dict[str, Any]:
    """The table's metadata as the catalog has it now; Refused if another table has the name by now."""
    loaded = work.client.load_table((*work.spec.namespace, work.spec.table))
    metadata: dict[str, Any] = loaded["metadata"]
    if metadata["table-uuid"] != work.spec.table_uuid:
        raise Refused(f"{printed_name(work)} is another table by now: plan the job again")
    refuse_class_names(printed_name(work), loaded)
    return metadata


def reachable_files(work: Work, *, without_files: bool = False) -> "DataFrame":
    """All that any snapshot of the table leads to, and its statistics; not the metadata files.

    `without_files` leaves out data and delete files, for which every manifest is read.
    """
    metadata = load_metadata(work)
    name = sql_name(work)
    refresh(work)
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
    return work.spark.sql(f"SELECT path, min(kind) AS kind, max(size) AS size FROM ({everything}) GROUP BY path")


def forgettable_files(work: Work, forgotten: Collection[int]) -> "DataFrame | None":
    """What becomes unreachable when these snapshots are forgotten; None if nothing does.

    Manifest lists and statistics of a snapshot are its own. Manifests are listed by the manifest lists. Files are read
    only where a manifest goes: of tables that are only appended to none does.
    """
    metadata = load_metadata(work)
    own = _own_files(metadata, set(forgotten))
    if not own:
        return None
    name = sql_name(work)
    refresh(work)
    found = work.spark.createDataFrame(own, "path STRING, kind STRING, size BIGINT")
    manifests = work.spark.sql(
        f"SELECT path, 'manifest' AS kind, max(length) AS size FROM {name}.all_manifests GROUP BY path "
        f"HAVING bool_and(reference_snapshot_id IN ({', '.join(map(str, forgotten))}))"
    )
    if not manifests.limit(1).collect():
        return found
    files = work.spark.sql(FILES.format(f"{name}.all_files"))
    kept = [f"SELECT file_path AS path FROM {name}.files VERSION AS OF {each}" for each in _kept(metadata, forgotten)]
    if kept:
        files = files.join(work.spark.sql(" UNION ALL ".join(kept)), "path", "left_anti")
    everything = found.union(manifests).union(files.select("path", "kind", "size"))
    once = everything.groupBy("path").agg({"kind": "min", "size": "max"})  # many deletion vectors share a file
    return once.selectExpr("path", "`min(kind)` AS kind", "`max(size)` AS size")


def _own_files(metadata: Mapping[str, Any], forgotten: set[int]) -> list[tuple[str, str, int | None]]:
    """Path, kind and size of the files that the metadata name for these snapshots; as few as there are snapshots."""
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


def _kept(metadata: Mapping[str, Any], forgotten: Collection[int]) -> list[int]:
    """Snapshots whose files are left out of a plan: all that stay, of many the heads of branches and tags and the
    newest. What the others need is planned in vain, and found to be needed afterwards."""
    left = [each for each in metadata.get("snapshots") or () if each["snapshot-id"] not in forgotten]
    newest = sorted(left, key=lambda each: each.get("sequence-number") or 0, reverse=True)
    heads = [ref["snapshot-id"] for ref in (metadata.get("refs") or {}).values()]
    known = {each["snapshot-id"] for each in left}
    ordered = [*(each for each in heads if each in known), *(each["snapshot-id"] for each in newest)]
    return list(dict.fromkeys(ordered))[:MOST_LEFT_OUT]


def paths_frame(work: Work, paths: Sequence[str], kind: str) -> "DataFrame":
    """Files that are known by their paths alone."""
    return work.spark.createDataFrame([(path, kind, None) for path in paths], "path STRING, kind STRING, size BIGINT")


def reachable_among(work: Work, paths: Sequence[str]) -> list[str]:
    """Those that the table leads to, whichever way it spells them; no more than were given reach the driver."""
    wanted = work.spark.createDataFrame([(path, path_of(path)) for path in paths], "path STRING, plain STRING")
    plain = f"regexp_replace(path, {literal(PLACE)}, '') AS plain"
    rows = wanted.join(reachable_files(work).selectExpr(plain), "plain", "left_semi").select("path").collect()
    return sorted(str(row["path"]) for row in rows)


def path_of(location: str) -> str:
    """A location without scheme, authority and a slash at the end: one store's files differ in nothing else."""
    return re.sub(PLACE, "", location).rstrip("/")
