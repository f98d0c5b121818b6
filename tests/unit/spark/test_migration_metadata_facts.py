"""What metadata documents, declarations and file names tell about a table, and its risks."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from nunatak_spark.migration.metadata_facts import with_document
from nunatak_spark.migration.model import InventoryTable, SourceColumn
from nunatak_spark.migration.risks import declared_risks, file_risks, name_risks, with_overlaps
from nunatak_spark.migration.source_files import MetadataDocument, SourceFile, files_digest, location_segments
from nunatak_spark.migration.sources.folder import common_format, group_by_table, partition_keys, plain_type
from nunatak_spark.migration.sources.metastore_tables import format_and_options
from nunatak_spark.migration.sources.source_catalog import parse_name

DOCUMENT: dict[str, Any] = {
    "format-version": 1,
    "table-uuid": "u-1",
    "location": "file:/lake/t",
    "last-updated-ms": 5,
    "current-schema-id": 1,
    "schemas": [
        {"schema-id": 1, "fields": [{"id": 1, "name": "day"}, {"id": 2, "name": "a`b"}, {"id": 3, "name": "x"}]}
    ],
    "default-spec-id": 2,
    "partition-specs": [
        {"spec-id": 1, "fields": []},
        {
            "spec-id": 2,
            "fields": [
                {"source-id": 1, "transform": "day"},
                {"source-id": 2, "transform": "bucket[16]"},
                {"source-id": 3, "transform": "identity"},
                {"source-id": 3, "transform": "void"},
                {"source-id": 9, "transform": "identity"},
            ],
        },
    ],
    "current-snapshot-id": 11,
    "snapshots": [
        {"snapshot-id": 10, "summary": {"total-data-files": "1"}},
        {"snapshot-id": 11, "summary": {"total-data-files": "4", "total-records": "40", "total-delete-files": "2"}},
    ],
    "properties": {"owner": "ann", "gc.enabled": "false", "write.location-provider.impl": "com.example.Places"},
}


def a_table(**more: Any) -> InventoryTable:
    return InventoryTable(**{"source": "old", "name": ("a", "t"), "kind": "iceberg", **more})


def kinds(risks: Any) -> list[str]:
    return sorted(risk.kind for risk in risks)


def test_a_metadata_document_tells_numbers_owner_and_risks() -> None:
    found = with_document(a_table(), MetadataDocument(DOCUMENT, 9 << 20))

    assert (found.files, found.rows, found.delete_files, found.snapshots, found.size_bytes) == (4, 40, 2, 2, None)
    assert (found.uuid, found.format_version, found.owner, found.last_write_ms) == ("u-1", 1, "ann", 5)
    assert found.partitioned_by == ("days(`day`)", "bucket(16, `a``b`)", "`x`")
    assert kinds(found.risks) == ["format-1", "gc-disabled", "large-metadata", "location-provider"]


def test_a_table_without_a_snapshot_is_known_to_be_empty() -> None:
    found = with_document(a_table(), MetadataDocument({"location": "x", "format-version": 2}, 1))

    assert (found.files, found.rows, found.snapshots) == (0, 0, 0)


def test_declared_columns_and_folders_tell_their_risks() -> None:
    found = a_table(
        kind="hive",
        columns=(SourceColumn("code", "char(3)"), SourceColumn("At", "timestamp"), SourceColumn("n", "int")),
        partitioned_by=("At",),
        properties={"hive.table-type": "MANAGED_TABLE"},
    )
    files = [SourceFile("/x/At=__HIVE_DEFAULT_PARTITION__/f", 1, 1)]

    assert kinds(declared_risks(found)) == ["char", "managed", "timestamp-partition"]
    assert kinds(file_risks(found, files)) == ["null-partition"]
    assert kinds(name_risks(found)) == ["mixed-case"]


def test_tables_that_share_a_folder_are_told_of_each_other() -> None:
    outer = a_table(name=("a", "outer"), location="file:///lake/x")
    inner = a_table(name=("a", "inner"), location="file:/lake/x/y")
    beside = a_table(name=("a", "beside"), location="/lake/xy")
    far = a_table(name=("a", "far"), location="s3://lake/x")

    risky = [kinds(found.risks) for found in with_overlaps([outer, inner, beside, far])]

    assert risky == [["location-overlap"], ["location-overlap"], [], []]
    again = with_overlaps(with_overlaps([outer, inner]))
    assert kinds(again[0].risks) == ["location-overlap"]


def test_one_place_has_one_spelling() -> None:
    assert location_segments("file:/a//b/") == location_segments("file:///a/b") == location_segments("/a/b")
    assert location_segments("s3a://bucket/x") == location_segments("s3://bucket/x")
    assert location_segments("s3://bucket/x") != location_segments("file:/bucket/x")


def test_a_digest_changes_with_every_file() -> None:
    files = [SourceFile("/a", 1, 1), SourceFile("/b", 2, 2)]

    assert files_digest(files) == files_digest(list(files))
    assert (
        len(
            {
                files_digest(files),
                files_digest(files[:1]),
                files_digest([SourceFile("/a", 1, 2), files[1]]),
                files_digest([]),
            }
        )
        == 4
    )


def test_folders_become_tables_up_to_the_first_partition() -> None:
    files = [
        SourceFile("/root/sales/orders/day=1/a.parquet", 1, 1),
        SourceFile("/root/sales/orders/day=2/b.parquet", 1, 1),
        SourceFile("/root/sales/notes/a.csv.gz", 1, 1),
        SourceFile("/root/odd/a.parquet", 1, 1),
        SourceFile("/root/odd/b.csv", 1, 1),
    ]

    tables = group_by_table("/root", files)

    assert {name: common_format(inside) for name, inside in tables.items()} == {
        ("sales", "orders"): "parquet",
        ("sales", "notes"): "csv",
        ("odd",): "",
    }
    assert partition_keys("file:/root/sales/orders", tables["sales", "orders"]) == ("day",)


def test_hive_says_how_its_files_are_read() -> None:
    assert format_and_options("org.apache.hadoop.hive.ql.io.orc.OrcSerde", {}) == ("orc", {})
    text, options = format_and_options("org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", {"field.delim": "|"})
    assert (text, options["sep"], options["nullValue"], options["quote"]) == ("csv", "|", "\\N", "")
    assert format_and_options("com.example.Unknown", {})[0] == ""


def test_types_that_iceberg_lacks_become_those_that_hold_them() -> None:
    assert plain_type("struct<a:varchar(3),b:array<smallint>>") == "struct<a:string,b:array<int>>"
    assert plain_type("decimal(9,2)") == "decimal(9,2)"


def test_names_are_read_as_spark_prints_them() -> None:
    assert parse_name("a.`b.c`.`d``e`") == ("a", "b.c", "d`e")


def test_timestamps_of_the_old_kind_are_noticed(tmp_path: Path) -> None:
    rows = pyarrow.table({"at": pyarrow.array([datetime(2024, 1, 1)], pyarrow.timestamp("us")), "id": [1]})
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pyarrow.parquet.write_table(rows, old, use_deprecated_int96_timestamps=True)
    pyarrow.parquet.write_table(rows, new)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    found = a_table(kind="files", format="parquet")

    assert kinds(file_risks(found, [SourceFile(str(old), 1, 1)])) == ["int96"]
    assert kinds(file_risks(found, [SourceFile(str(new), 1, 1)])) == []
    assert kinds(file_risks(found, [SourceFile(str(tmp_path / "broken.parquet"), 1, 1)])) == []
