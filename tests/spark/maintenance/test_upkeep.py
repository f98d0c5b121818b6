"""The other jobs on a live server: deletes, manifests, statistics, expiry, metadata files and old rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from nunatak.maintenance.job_spec import JobType
from nunatak_spark.maintenance.job_context import JobOutcome, JobRefused
from tests.spark.maintenance.conftest import Maintenance, later
from tests.support.catalogs.process import RunningServer
from tests.support.spark import local_path

DAY = 86_400
MERGE = "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition'"
TIMES = "timestamp_seconds(id * 86400) AS at, CAST(timestamp_seconds(id * 86400) AS TIMESTAMP_NTZ) AS clock"


def a_messy_table(maintenance: Maintenance, version: int) -> None:
    """A hundred days in two partitions, in many files, manifests and deletes."""
    sql = maintenance.sql
    sql(
        "CREATE TABLE t (id BIGINT, part INT, at TIMESTAMP, clock TIMESTAMP_NTZ, day DATE) PARTITIONED BY (part) "
        f"TBLPROPERTIES ({MERGE}, 'format-version' = '{version}')"
    )
    for first in (0, 50):
        sql(
            f"INSERT INTO t SELECT id, CAST(id % 2 AS INT), {TIMES}, date_from_unix_date(CAST(id AS INT)) "
            f"FROM range({first}, {first + 50})"
        )
    for rest in (1, 2, 3):
        sql(f"DELETE FROM t WHERE id % 10 = {rest}")


def done_once(maintenance: Maintenance, kind: JobType, **more: Any) -> JobOutcome:
    """Tell what would be done and change nothing, do it, and find nothing more to do; the rows stay as they were."""
    rows, place = maintenance.fingerprint("t"), maintenance.load("t")["metadata-location"]
    told = maintenance.run("t", kind, dry_run=True, **more)
    assert (told.ok, told.changed, maintenance.load("t")["metadata-location"]) == (True, False, place)

    done = maintenance.run("t", kind, **more)
    assert (done.ok, done.changed, maintenance.pins("t")) == (True, True, []), done
    if kind != "row-retention":
        assert maintenance.fingerprint("t") == rows

    place = maintenance.load("t")["metadata-location"]
    again = maintenance.run("t", kind, **more)
    assert (again.ok, again.changed, maintenance.load("t")["metadata-location"]) == (True, False, place), again
    for before, after in zip(told.gains, done.gains, strict=False):
        assert (before.of, before.before) == (after.of, after.before)
    return done


def test_a_messy_table_is_put_in_order_job_by_job(maintenance: Maintenance) -> None:
    a_messy_table(maintenance, 2)

    deletes = done_once(maintenance, "delete-compaction")
    assert [(gain.of, gain.after) for gain in deletes.gains] == [("delete files", 2)]
    manifests = done_once(maintenance, "manifest-rewrite")
    assert [(gain.of, gain.after) for gain in manifests.gains] == [("manifests", 2)]
    done_once(maintenance, "statistics", columns=["id"])
    metadata = maintenance.metadata("t")
    (table,), (partition,) = metadata["statistics"], metadata["partition-statistics"]
    assert table["snapshot-id"] == partition["snapshot-id"] == metadata["current-snapshot-id"]
    assert [blob["fields"] for blob in table["blob-metadata"]] == [[1]]
    files = [local_path(each["metadata-file"]) for each in metadata["metadata-log"]]
    assert all(map(Path.exists, files))
    shorter = done_once(maintenance, "metadata-retention", previous_versions_max=2)
    assert [(gain.of, gain.after) for gain in shorter.gains] == [("metadata files", 2)]
    assert maintenance.metadata("t")["properties"]["write.metadata.delete-after-commit.enabled"] == "true"


def test_deletion_vectors_go_with_the_files_they_belong_to(maintenance: Maintenance) -> None:
    a_messy_table(maintenance, 3)

    done = done_once(maintenance, "delete-compaction")

    assert [(gain.of, gain.after) for gain in done.gains] == [("data files", 2), ("delete files", 0)]


@pytest.mark.parametrize(("column", "version"), [("at", 2), ("clock", 3), ("day", 2)])
def test_rows_older_than_the_policy_keeps_are_deleted(maintenance: Maintenance, column: str, version: int) -> None:
    a_messy_table(maintenance, version)
    maintenance.sql("INSERT INTO t VALUES (1000, 0, NULL, NULL, NULL)")

    # A hundred days after the first one all that lie in the first forty go, and what has no time stays.
    done = done_once(
        maintenance, "row-retention", column=column, max_age_seconds=60 * DAY, now_ms=lambda: 100 * DAY * 1000
    )

    assert done.detail["deleted-rows"] == 28
    assert sorted(row[0] for row in maintenance.sql("SELECT id FROM t")) == [
        *(number for number in range(40, 100) if number % 10 not in (1, 2, 3)),
        1000,
    ]


def test_a_column_that_is_no_time_keeps_its_rows(maintenance: Maintenance) -> None:
    maintenance.sql("CREATE TABLE t AS SELECT 1 AS id")

    for column, text in {"id": "its type is int", "at": "there is no such column"}.items():
        with pytest.raises(JobRefused, match=text):
            maintenance.run("t", "row-retention", column=column, max_age_seconds=1)


def test_a_hundred_snapshots_expire_with_the_files_that_only_they_need(
    maintenance: Maintenance, shared_server: RunningServer
) -> None:
    namespace = maintenance.sql.namespace
    catalog = load_catalog("lake", type="rest", uri=shared_server.uri)
    rows = pa.table({"id": pa.array(range(5), pa.int64())})
    table = catalog.create_table(f"{namespace}.t", schema=rows.schema)
    table.append(rows)
    for _ in range(50):
        table.overwrite(rows)  # two snapshots each: the old rows go, the new ones come
    assert len(maintenance.metadata("t")["snapshots"]) == 101
    folder = local_path(table.location())
    assert len(set(folder.rglob("*.parquet"))) == 51

    done = done_once(maintenance, "snapshot-expiry", max_snapshot_age_seconds=1, now_ms=later(60))

    assert [(gain.of, gain.before, gain.after) for gain in done.gains] == [("snapshots", 101, 1)]
    assert done.detail["deleted"]["data"] == 50
    assert len(set(folder.rglob("*.parquet"))) == 1
    assert maintenance.sql.value("SELECT sum(id) FROM t") == 10


def test_nothing_expires_where_the_files_are_not_the_tables_alone(maintenance: Maintenance) -> None:
    maintenance.sql("CREATE TABLE t TBLPROPERTIES ('gc.enabled' = 'false') AS SELECT 1 AS id")

    with pytest.raises(JobRefused, match=r"gc\.enabled=false"):
        maintenance.run("t", "snapshot-expiry", max_snapshot_age_seconds=1)
