"""Compaction of data files on a live server: how few they become, that no row changes, and who may go on meanwhile."""

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.maintenance import compaction_plan, data_compaction
from nunatak_spark.maintenance.job_context import JobOutcome, JobRefused, JobStopped
from nunatak_spark.maintenance.job_failures import JobFailed, is_conflict
from tests.spark.maintenance.conftest import Maintenance
from tests.support.catalogs.process import RunningServer
from tests.support.spark import local_path

MOST_WRITES = 200
PAUSE_SECONDS = 0.2
SHARED = "'write.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true'"


def a_table(maintenance: Maintenance, name: str, *, files: int, properties: str = SHARED) -> None:
    """A table in ten partitions of `files` files each, one row in every file or more."""
    sql = maintenance.sql
    sql(f"CREATE TABLE {name} (id BIGINT, part INT, word STRING) PARTITIONED BY (part) TBLPROPERTIES ({properties})")
    rows = sql.spark.range(0, 20 * files, 1, files)
    rows.selectExpr("id", "CAST(id % 10 AS INT) AS part", "CAST(hash(id) AS STRING) AS word").writeTo(name).append()


def two_thousand_files(maintenance: Maintenance, uri: str, name: str) -> None:
    """The rows of `a_table` with two hundred files for each of ten partitions; made without Spark, which takes long."""
    catalog = load_catalog("lake", type="rest", uri=uri)
    maintenance.sql(f"CREATE TABLE {name} (id BIGINT, part INT, word STRING) PARTITIONED BY (part)")
    table = catalog.load_table(f"{maintenance.sql.namespace}.{name}")
    folder = local_path(table.location()) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(2000):
        part = number % 10
        ids = [number, number + 2000]
        rows = {
            "id": pa.array(ids, pa.int64()),
            "part": pa.array([part, part], pa.int32()),
            "word": list(map(str, ids)),
        }
        pq.write_table(pa.table(rows), folder / f"{number}.parquet")
    table.add_files([f"file://{path}" for path in sorted(folder.iterdir())], check_duplicate_files=False)


def a_heap(maintenance: Maintenance, name: str, *, files: int = 6, properties: str = SHARED) -> None:
    """A table without partitions."""
    sql = maintenance.sql
    sql(f"CREATE TABLE {name} (id BIGINT, word STRING) TBLPROPERTIES ({properties})")
    rows = sql.spark.range(0, 10 * files, 1, files)
    rows.selectExpr("id", "CAST(hash(id) AS STRING) AS word").writeTo(name).append()


def beside(act: Callable[[int], object], until: threading.Event) -> threading.Thread:
    """Do it again and again in another thread, at most so many times."""

    def run() -> None:
        for number in range(MOST_WRITES):
            act(number)
            if until.wait(PAUSE_SECONDS):
                return

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_two_thousand_files_become_ten_while_a_writer_goes_on(
    maintenance: Maintenance, shared_server: RunningServer
) -> None:
    sql = maintenance.sql
    two_thousand_files(maintenance, shared_server.uri, "events")
    assert maintenance.files("events")["data"] == 2000
    full = f"{sql.catalog}.{sql.namespace}.events"
    written, done = [], threading.Event()

    def write(number: int) -> None:
        sql.spark.sql(f"INSERT INTO {full} VALUES ({-number}, {number % 10}, 'beside')")
        written.append(number)

    writer = beside(write, done)
    outcome = maintenance.run("events", "data-compaction")
    done.set()
    writer.join(60)

    assert (outcome.ok, outcome.changed) == (True, True), outcome
    assert outcome.detail["verified"] == "full"
    summaries = {each["snapshot-id"]: each["summary"] for each in maintenance.metadata("events")["snapshots"]}
    rewritten = [summaries[each] for each in outcome.detail["snapshots"]]
    assert sum(int(each["deleted-data-files"]) for each in rewritten) >= 2000
    assert sum(int(each["added-data-files"]) for each in rewritten) <= 20
    assert written, "the writer never got its turn"
    assert maintenance.pins("events") == []

    maintenance.run("events", "data-compaction", min_input_files=2, verify="metadata")  # what the writer left
    assert maintenance.files("events")["data"] <= 20
    values = ", ".join(f"({-number}L, {number % 10}, 'beside')" for number in written)
    wanted = sql.spark.range(4000).selectExpr("id", "CAST(id % 10 AS INT) AS part", "CAST(id AS STRING) AS word")
    wanted = wanted.union(sql.spark.sql(f"SELECT * FROM VALUES {values}"))
    assert maintenance.fingerprint("events") == fingerprint(sql.spark, wanted)


def test_a_dry_run_says_what_would_be_done_and_a_second_run_does_nothing(maintenance: Maintenance) -> None:
    a_heap(maintenance, "t")
    before = maintenance.load("t")["metadata-location"]

    told = maintenance.run("t", "data-compaction", dry_run=True)
    assert [(gain.of, gain.before, gain.after) for gain in told.gains] == [("data files", 6, 1)]
    assert not told.changed
    assert maintenance.load("t")["metadata-location"] == before

    done = maintenance.run("t", "data-compaction", verify="metadata")
    assert (done.ok, done.changed, maintenance.files("t")["data"]) == (True, True, 1)
    assert done.size_bytes > 0
    after = maintenance.load("t")["metadata-location"]

    again = maintenance.run("t", "data-compaction")
    assert (again.ok, again.changed) == (True, False)
    assert maintenance.load("t")["metadata-location"] == after


@pytest.mark.parametrize("strategy", ["sort", "zorder"])
def test_rows_are_in_the_order_that_the_policy_asks_for(maintenance: Maintenance, strategy: str) -> None:
    a_heap(maintenance, "t")
    before = maintenance.fingerprint("t")
    columns = ["word"] if strategy == "sort" else ["word", "id"]

    outcome = maintenance.run("t", "data-compaction", strategy=strategy, columns=columns)

    assert (outcome.ok, outcome.changed) == (True, True)
    assert maintenance.files("t")["data"] == 1
    assert maintenance.fingerprint("t") == before
    rows = maintenance.sql("SELECT id, word FROM t ORDER BY _pos")
    assert [row["id"] for row in rows] != list(range(60)), "as they were written"
    if strategy == "sort":
        assert [row["word"] for row in rows] == sorted(row["word"] for row in rows)


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_are_gone_from_the_files_they_belong_to(maintenance: Maintenance, version: int) -> None:
    merge = f"{SHARED}, 'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read'"
    a_heap(maintenance, "t", properties=merge)
    maintenance.sql("DELETE FROM t WHERE id % 7 = 0")
    before = maintenance.fingerprint("t")
    assert maintenance.files("t")["deletes"] > 0

    outcome = maintenance.run("t", "data-compaction")

    assert (outcome.ok, outcome.changed) == (True, True)
    assert maintenance.files("t") == {"data": 1, "deletes": 0}
    assert maintenance.fingerprint("t") == before
    assert not maintenance.run("t", "data-compaction").changed


def test_many_files_are_counted_by_spark_with_the_same_result(
    maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_table(maintenance, "t", files=2)
    maintenance.sql("ALTER TABLE t REPLACE PARTITION FIELD part WITH bucket(2, id)")
    maintenance.sql("INSERT INTO t VALUES (1, 0, 'alone')")
    few = maintenance.run("t", "data-compaction", dry_run=True, min_input_files=2)

    monkeypatch.setattr(data_compaction, "FEW_FILES", 0)
    many = maintenance.run("t", "data-compaction", dry_run=True, min_input_files=2)

    assert few == many
    assert (few.detail["partitions"], few.detail["files"]) == (1, 20), "those of the earlier layout are one"


def test_a_job_does_not_rewrite_more_than_its_budget(maintenance: Maintenance) -> None:
    a_heap(maintenance, "t", files=8)
    size = maintenance.sql.value("SELECT max(file_size_in_bytes) FROM here.t.files")

    outcome = maintenance.run("t", "data-compaction", max_bytes=3 * size, min_input_files=2)

    assert (outcome.ok, outcome.changed) == (True, True)
    assert 2 * size < outcome.size_bytes <= 3 * size
    assert maintenance.files("t")["data"] == 6


def test_a_writer_that_is_in_the_way_is_evaded_with_smaller_groups(maintenance: Maintenance) -> None:
    merge = f"{SHARED}, 'write.delete.mode' = 'merge-on-read', 'commit.retry.num-retries' = '20'"
    a_table(maintenance, "t", files=20, properties=merge)
    sql, full = maintenance.sql, f"{maintenance.sql.catalog}.{maintenance.sql.namespace}.t"
    attempts, given_way = [0], threading.Event()

    def look() -> None:
        """Called before each rewrite: the writer stops once one was in vain."""
        attempts[0] += 1
        if attempts[0] > 2:
            given_way.set()

    # Every row of a partition lies in a file that is being rewritten: to delete one of them spoils the whole commit.
    writer = beside(lambda number: sql.spark.sql(f"DELETE FROM {full} WHERE id = {10 * number % 400}"), given_way)
    try:
        outcome = maintenance.run("t", "data-compaction", check=look)
    finally:
        given_way.set()
        writer.join(60)

    assert (outcome.ok, outcome.changed) == (True, True), outcome
    assert outcome.detail["conflicts"] >= 1
    assert outcome.detail["calls"] >= 2
    assert maintenance.files("t")["data"] == 10
    assert maintenance.pins("t") == []


def test_a_job_that_was_stopped_is_taken_up_by_its_next_attempt(maintenance: Maintenance) -> None:
    a_heap(maintenance, "t")
    current = maintenance.metadata("t")["current-snapshot-id"]
    calls: list[int] = []

    def stop_late() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise JobStopped

    with pytest.raises(JobStopped):
        maintenance.run("t", "data-compaction", job="7", check=stop_late)
    ref = maintenance.metadata("t")["refs"]["nunatak-pin-7"]
    assert (ref["snapshot-id"], ref["type"]) == (current, "tag")

    maintenance.sql("INSERT INTO t VALUES (1000, 'meanwhile')")
    outcome = maintenance.run("t", "data-compaction", job="7")

    assert (outcome.ok, outcome.changed) == (True, True)
    assert outcome.gains[0].before == 6, "counted from where the first attempt began"
    assert maintenance.files("t")["data"] == 1
    assert maintenance.pins("t") == []


def test_what_makes_no_sense_is_refused_and_nothing_is_changed(maintenance: Maintenance) -> None:
    a_heap(maintenance, "t")
    refusals: dict[str, dict[str, Any]] = {
        "another table": {"table_uuid": "00000000-0000-0000-0000-000000000000"},
        "no sort order": {"strategy": "sort"},
        "no column size": {"strategy": "zorder", "columns": ["size"]},
        "use one of rows, metadata, full, none": {"verify": "twice"},
    }

    for text, more in refusals.items():
        with pytest.raises(JobRefused, match=text):
            maintenance.run("t", "data-compaction", **more)
    with pytest.raises(JobFailed) as failed:
        maintenance.run("t", "data-compaction", target_file_size_bytes=-1)

    reason = "'target-file-size-bytes' is set to -1 but must be > 0"
    assert str(failed.value) == f"java.lang.IllegalArgumentException: {reason}"
    assert len(maintenance.metadata("t")["snapshots"]) == 1
    assert maintenance.pins("t") == []


def updated_all_the_time(maintenance: Maintenance, name: str, files: int) -> JobOutcome:
    """Compact a table without partitions; every commit of a writer meanwhile touches one of its files."""
    merge = f"{SHARED}, 'write.update.mode' = 'merge-on-read', 'commit.retry.num-retries' = '50'"
    a_heap(maintenance, name, files=files, properties=merge)
    sql, full = maintenance.sql, f"{maintenance.sql.catalog}.{maintenance.sql.namespace}.{name}"
    ended = threading.Event()

    def update(number: int) -> None:
        row = (7 * number) % (10 * files)
        try:
            sql.spark.sql(f"UPDATE {full} SET word = '{number}' WHERE id = {row}").collect()
        except Exception as error:
            if not is_conflict(error):  # a rewrite that was quicker makes the update begin again, as in any engine
                raise

    writer = beside(update, ended)
    try:
        return maintenance.run(name, "data-compaction", verify="rows")
    finally:
        ended.set()
        writer.join(120)


def test_a_heap_whose_rows_are_updated_all_the_time_is_compacted_in_small_pieces(maintenance: Maintenance) -> None:
    """A rewrite of the whole table gets through only if no update comes meanwhile, which so many tries rule out."""
    files, sql = 24, maintenance.sql
    for name in (f"t{number}" for number in range(15)):
        outcome = updated_all_the_time(maintenance, name, files)
        assert (outcome.ok, outcome.changed) == (True, True), outcome
        if outcome.detail["conflicts"]:
            break

    assert outcome.detail["conflicts"] >= 1, "no update came in the way: the test showed nothing"
    assert outcome.detail["conflicts"] < outcome.detail["calls"] <= compaction_plan.MAX_PIECES + 1
    there = f"FROM here.{name}.entries WHERE status < 2 AND data_file.content = 0 AND file_sequence_number = 1"
    assert sql.value(f"SELECT count(*) {there}") < files // 2
    assert sql.value(f"SELECT count(DISTINCT id) FROM {name}") == 10 * files
    assert sql.value(f"SELECT count(*) FROM {name}") == 10 * files
    assert maintenance.pins(name) == []
