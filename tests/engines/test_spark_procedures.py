"""Spark maintains tables through Iceberg's procedures, and the rows stay what they were."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.spark import Sql, local_path

pytestmark = pytest.mark.spark

FUTURE = "TIMESTAMP '2099-01-01 00:00:00'"


@pytest.fixture
def fragmented(sql: Sql) -> str:
    """A table `readings` of 30 rows in 6 files and 6 snapshots."""
    sql("CREATE TABLE readings (id BIGINT, sensor INT, value DOUBLE) USING iceberg")
    for start in range(0, 30, 5):
        rows = f"SELECT /*+ COALESCE(1) */ id, CAST(id % 3 AS INT), id / 2 FROM range({start}, {start + 5})"
        sql(f"INSERT INTO readings {rows}")
    return "readings"


def fingerprint(sql: Sql, table: str) -> tuple[int, int]:
    return tuple(sql(f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38))) FROM {table}")[0])


@pytest.mark.parametrize(
    "strategy",
    [
        "",
        ", strategy => 'sort', sort_order => 'sensor DESC, id'",
        ", strategy => 'sort', sort_order => 'zorder(id, sensor)'",
    ],
    ids=["binpack", "sort", "zorder"],
)
def test_rewrite_data_files_makes_one_file_of_many_and_keeps_the_rows(sql: Sql, fragmented: str, strategy: str) -> None:
    """Compaction works on the new catalog. MISSION: 003-69"""
    before = fingerprint(sql, fragmented)

    done = sql.call("rewrite_data_files", f"table => '{fragmented}'{strategy}, options => map('rewrite-all', 'true')")

    assert (done.rewritten_data_files_count, done.added_data_files_count) == (6, 1)
    assert sql.value(f"SELECT count(*) FROM here.{fragmented}.files") == 1
    assert fingerprint(sql, fragmented) == before


def test_rewrite_data_files_with_partial_progress_commits_group_by_group(sql: Sql) -> None:
    sql("CREATE TABLE parts (id BIGINT, p INT) USING iceberg PARTITIONED BY (p)")
    for _ in range(2):
        sql("INSERT INTO parts SELECT id, CAST(id % 3 AS INT) FROM range(30)")
    before, commits = fingerprint(sql, "parts"), sql.value("SELECT count(*) FROM here.parts.snapshots")

    done = sql.call(
        "rewrite_data_files",
        "table => 'parts', options => map('rewrite-all', 'true', 'partial-progress.enabled', 'true', "
        "'partial-progress.max-commits', '3', 'max-file-group-size-bytes', '1')",
    )

    assert done.failed_data_files_count == 0
    assert sql.value("SELECT count(*) FROM here.parts.snapshots") > commits + 1
    assert fingerprint(sql, "parts") == before


@pytest.mark.parametrize("format_version", [2, 3])
def test_rewriting_removes_delete_files_with_the_rows_they_deleted(sql: Sql, format_version: int) -> None:
    sql(f"""
        CREATE TABLE readings (id BIGINT) USING iceberg
        TBLPROPERTIES ('format-version' = '{format_version}', 'write.delete.mode' = 'merge-on-read')
    """)
    sql("INSERT INTO readings SELECT /*+ COALESCE(1) */ id FROM range(20)")
    sql("DELETE FROM readings WHERE id % 2 = 1")

    sql.call(
        "rewrite_data_files",
        "table => 'readings', options => map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')",
    )

    assert sql("SELECT content, record_count FROM here.readings.files") == [(0, 10)]
    assert sql("SELECT count(*), max(id) FROM readings") == [(10, 18)]


def test_expire_snapshots_forgets_old_versions_and_deletes_their_files(sql: Sql, fragmented: str) -> None:
    """Expiration works on the new catalog. MISSION: 003-69"""
    before, folder = fingerprint(sql, fragmented), sql.location(fragmented)
    sql.call("rewrite_data_files", f"table => '{fragmented}', options => map('rewrite-all', 'true')")
    assert len(list(folder.rglob("*.parquet"))) == 7

    done = sql.call("expire_snapshots", f"table => '{fragmented}', older_than => {FUTURE}, retain_last => 1")

    assert done.deleted_data_files_count == 6
    assert len(list(folder.rglob("*.parquet"))) == 1
    assert sql.value(f"SELECT count(*) FROM here.{fragmented}.snapshots") == 1
    assert fingerprint(sql, fragmented) == before


def test_expire_snapshots_spares_what_a_tag_holds(sql: Sql, fragmented: str) -> None:
    first = sql.value(f"SELECT min_by(snapshot_id, committed_at) FROM here.{fragmented}.snapshots")
    sql(f"ALTER TABLE {fragmented} CREATE TAG keep AS OF VERSION {first}")

    sql.call("expire_snapshots", f"table => '{fragmented}', older_than => {FUTURE}, retain_last => 1")

    assert sql.value(f"SELECT count(*) FROM here.{fragmented}.snapshots") == 2
    assert sql.value(f"SELECT count(*) FROM {fragmented} VERSION AS OF 'keep'") == 5


def test_expire_snapshots_cleans_schemas_and_partition_specs_nobody_uses(sql: Sql) -> None:
    sql("CREATE TABLE parts (id BIGINT, p INT) USING iceberg")
    sql("INSERT INTO parts VALUES (1, 1)")
    sql("ALTER TABLE parts ADD PARTITION FIELD p")
    sql("ALTER TABLE parts ADD COLUMN note STRING")
    sql("INSERT OVERWRITE parts VALUES (2, 2, 'x')")
    sql("INSERT INTO parts VALUES (3, 2, 'y')")  # the overwrite itself still names the file it removed

    sql.call("expire_snapshots", f"table => 'parts', older_than => {FUTURE}, clean_expired_metadata => true")

    assert sql("SELECT * FROM parts ORDER BY id") == [(2, 2, "x"), (3, 2, "y")]
    metadata = json.loads(local_path(sql.metadata_location("parts")).read_text())
    assert (len(metadata["schemas"]), len(metadata["partition-specs"])) == (1, 1)


def test_remove_orphan_files_deletes_strangers_and_only_those(sql: Sql, fragmented: str) -> None:
    before, folder = fingerprint(sql, fragmented), sql.location(fragmented)
    live = set(folder.rglob("*.*"))
    stranger = folder / "data" / "stranger.parquet"
    shutil.copy(next(folder.rglob("*.parquet")), stranger)
    long_ago = time.time() - 10 * 24 * 3600
    for file in [*live, stranger]:
        os.utime(file, (long_ago, long_ago))

    arguments = f"table => '{fragmented}', prefix_listing => true"
    planned = sql(f"CALL lake.system.remove_orphan_files({arguments}, dry_run => true)")
    assert [Path(row.orphan_file_location).name for row in planned] == ["stranger.parquet"]
    assert stranger.exists()
    sql.call("remove_orphan_files", arguments)

    assert set(folder.rglob("*.*")) == live
    assert fingerprint(sql, fragmented) == before


def test_rewrite_manifests_joins_them_and_keeps_the_rows(sql: Sql, fragmented: str) -> None:
    before = fingerprint(sql, fragmented)

    done = sql.call("rewrite_manifests", f"table => '{fragmented}'")

    assert (done.rewritten_manifests_count, done.added_manifests_count) == (6, 1)
    assert sql.value(f"SELECT count(*) FROM here.{fragmented}.manifests") == 1
    assert fingerprint(sql, fragmented) == before


def test_statistics_are_kept_as_long_as_the_snapshot_they_describe(sql: Sql) -> None:
    sql("CREATE TABLE parts (id BIGINT, p INT) USING iceberg PARTITIONED BY (p)")
    sql("INSERT INTO parts SELECT id, CAST(id % 3 AS INT) FROM range(30)")

    whole = local_path(sql.call("compute_table_stats", "table => 'parts'").statistics_file)
    per_partition = local_path(sql.call("compute_partition_stats", "table => 'parts'").partition_statistics_file)
    sql("INSERT INTO parts VALUES (100, 1)")
    assert whole.exists()
    assert per_partition.exists()
    sql.call("expire_snapshots", f"table => 'parts', older_than => {FUTURE}, retain_last => 1")

    assert not whole.exists()
    assert not per_partition.exists()
    assert sql.value("SELECT count(*) FROM parts") == 31


def test_a_registered_table_is_the_table_of_its_metadata_file(sql: Sql, fragmented: str) -> None:
    """MISSION: 003-17, 003-66"""
    before = fingerprint(sql, fragmented)

    done = sql.call(
        "register_table", f"table => '{sql.namespace}.copy', metadata_file => '{sql.metadata_location(fragmented)}'"
    )

    assert done.total_records_count == 30
    assert fingerprint(sql, "copy") == before
    assert sorted(row.tableName for row in sql("SHOW TABLES")) == ["copy", "readings"]


def test_a_dropped_table_comes_back_by_registering_its_last_metadata(sql: Sql, fragmented: str) -> None:
    before, metadata = fingerprint(sql, fragmented), sql.metadata_location(fragmented)
    sql(f"DROP TABLE {fragmented}")

    sql.call("register_table", f"table => '{sql.namespace}.{fragmented}', metadata_file => '{metadata}'")
    sql(f"INSERT INTO {fragmented} VALUES (100, 1, 1.0)")

    assert fingerprint(sql, f"{fragmented} WHERE id < 100") == before
    assert sql.value(f"SELECT count(*) FROM here.{fragmented}.snapshots") == 7


def test_files_of_a_plain_folder_become_a_table_without_copying(sql: Sql, tmp_path: Path) -> None:
    rows = sql.frame("SELECT id, CAST(id % 3 AS INT) AS p FROM range(12)")
    rows.write.partitionBy("p").parquet(str(tmp_path / "plain"))
    sql("CREATE TABLE imported (id BIGINT, p INT) USING iceberg PARTITIONED BY (p)")

    done = sql.call("add_files", f"table => 'imported', source_table => '`parquet`.`{tmp_path / 'plain'}`'")

    assert done.added_files_count == len(list((tmp_path / "plain").rglob("*.parquet")))
    assert sql("SELECT p, sum(id) FROM imported GROUP BY p ORDER BY p") == [(0, 18), (1, 22), (2, 26)]
    referenced = sql("SELECT file_path FROM here.imported.files")
    assert all(local_path(row.file_path).is_relative_to(tmp_path) for row in referenced)


def test_changes_between_snapshots_are_read_as_a_changelog(sql: Sql) -> None:
    sql("CREATE TABLE accounts (id INT, balance INT) USING iceberg")
    sql("INSERT INTO accounts VALUES (1, 10), (2, 20)")
    sql("UPDATE accounts SET balance = 11 WHERE id = 1")

    view = sql.call("create_changelog_view", "table => 'accounts', identifier_columns => array('id')").changelog_view

    assert sql(f"SELECT id, balance, _change_type FROM {view} ORDER BY _change_ordinal, id, _change_type DESC") == [
        (1, 10, "INSERT"),
        (2, 20, "INSERT"),
        (1, 10, "UPDATE_BEFORE"),
        (1, 11, "UPDATE_AFTER"),
    ]
