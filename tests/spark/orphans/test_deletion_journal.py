"""The deletion journal: every file that an expiry deletes is noted once, wherever the job is killed; and no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from nunatak.client import Client, Json
from nunatak_spark import system_tables
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.maintenance import reachable_files, snapshot_expiry
from nunatak_spark.maintenance.deletion_journal import DeletionJournal, finish_deletions, record_deletions
from nunatak_spark.maintenance.job_context import JobContext
from tests.spark.orphans.conftest import MakeTable
from tests.spark.orphans.folder import Folder
from tests.support.spark import Sql, local_path, run_together

REASON = "snapshot expired"


class Killed(BaseException):
    """As if the process were gone: nothing between here and the test may catch it."""


@pytest.fixture
def folder(make_table: MakeTable, sql: Sql) -> Folder:
    """A table with delete files, statistics and a tag; but for the tagged snapshot and the last all may be expired."""
    folder = make_table(clauses="TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    sql("ALTER TABLE t CREATE TAG kept")
    sql("INSERT INTO t VALUES (6, 'six')")
    sql("DELETE FROM t WHERE id = 3")
    sql.call("compute_table_stats", f"'{sql.namespace}.t'")
    options = "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
    sql.call("rewrite_data_files", f"table => '{sql.namespace}.t', options => {options}")
    sql("INSERT INTO t VALUES (7, 'seven')")
    return folder


def expire(folder: Folder) -> None:
    folder.sql.call("expire_snapshots", f"table => '{folder.sql.namespace}.t', older_than => TIMESTAMP '2100-01-01'")


def expirable_ids(folder: Folder) -> list[int]:
    """All snapshots but the current one and those of tags."""
    metadata = folder.metadata
    kept = {metadata["current-snapshot-id"], *(ref["snapshot-id"] for ref in metadata["refs"].values())}
    return [each["snapshot-id"] for each in metadata["snapshots"] if each["snapshot-id"] not in kept]


def data_files(folder: Folder) -> set[str]:
    """All but metadata.json, which the server looks after."""
    return {name for name in folder.files() if not name.endswith(".metadata.json")}


def work_on(folder: Folder, job: str = "job", **more: Any) -> JobContext:
    return folder.work(job, type="snapshot-expiry", **more)


def test_what_an_expiry_deletes_is_noted_with_its_reason_and_what_stays_is_not(folder: Folder, sql: Sql) -> None:
    before, rows = data_files(folder), fingerprint(sql.spark, "t")

    with record_deletions(work_on(folder, dry_run=True), REASON, expirable_ids(folder)):
        pass
    assert folder.planned() == []
    with record_deletions(work_on(folder), REASON, expirable_ids(folder)) as noted:
        planned = {row["path"] for row in folder.planned()}
        expire(folder)

    deleted = before - data_files(folder)
    assert folder.noted() == sorted(deleted)
    assert planned == {row["path"] for row in folder.journal()}, "more was planned than what goes"
    kinds = {row["kind"] for row in folder.journal()}
    assert kinds == {"data", "deletes", "manifest", "manifest-list", "statistics"}
    assert {(row["reason"], row["job"], row["table"]) for row in folder.journal()} == {
        (REASON, work_on(folder).job, f"{sql.namespace}.t")
    }
    assert all(row["size"] > 0 for row in folder.journal() if row["kind"] != "manifest-list")
    assert (noted.files, set(noted.by_kind)) == (len(deleted), kinds)
    assert folder.planned() == []
    assert fingerprint(sql.spark, "t") == rows
    assert sql.value("SELECT count(*) FROM t VERSION AS OF 'kept'") == 100


def expired_and_nothing_deleted(folder: Folder) -> None:
    """As if the job were killed between its commit and its first deletion."""
    expired = expirable_ids(folder)
    statistics = [{"action": "remove-statistics", "snapshot-id": each} for each in expired]
    updates: list[Json] = [*statistics, {"action": "remove-snapshots", "snapshot-ids": expired}]
    folder.client.commit_table((folder.sql.namespace, "t"), [], updates)


@pytest.mark.parametrize("moment", [expire, expired_and_nothing_deleted])
def test_a_job_killed_before_it_could_note_anything_notes_it_when_it_comes_back(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, moment: Callable[[Folder], None]
) -> None:
    before = data_files(folder)
    kill_after(moment, folder, work_on(folder))
    assert folder.journal() == []

    # Killed a second time, between the journal and the end of its plan.
    with monkeypatch.context() as patch:
        patch.setattr(DeletionJournal, "_drop_plans", _killed)
        with pytest.raises(Killed):
            finish_deletions(work_on(folder))
    finish_deletions(work_on(folder))

    deleted = before - data_files(folder)
    assert len(deleted) > 5
    assert folder.noted() == sorted(deleted)
    assert folder.planned() == []


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (DeletionJournal, "record_deleted"),
        (DeletionJournal, "_record"),
        (DeletionJournal, "_drop_plans"),
        (DeletionJournal, "count_deletions"),
        (snapshot_expiry, "_outcome"),
    ],
)
def test_an_expiry_that_comes_back_tells_what_the_killed_attempt_deleted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    before, snapshots = data_files(folder), len(folder.metadata["snapshots"])
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, _killed)
        with pytest.raises(Killed):
            snapshot_expiry.expire_snapshots(expiry_of(folder))

    done = snapshot_expiry.expire_snapshots(expiry_of(folder))

    deleted, left = before - data_files(folder), len(folder.metadata["snapshots"])
    assert len(deleted) > 5
    assert done.changed
    assert (done.detail["deleted-files"], done.detail["expired"]) == (len(deleted), snapshots - left)
    assert sum(done.detail["deleted"].values()) == len(deleted)
    assert [(gain.before, gain.after) for gain in done.gains] == [(snapshots, left)]
    assert folder.noted() == sorted(deleted)
    another = snapshot_expiry.expire_snapshots(expiry_of(folder, "another"))
    assert (another.changed, another.gains) == (False, [])


def expiry_of(folder: Folder, job: str = "job") -> JobContext:
    work = work_on(folder, job)
    options = {"older-than-ms": work.now_ms() + 60_000, "min-snapshots-to-keep": 1}
    return replace(work, spec=msgspec.structs.replace(work.spec, options=options))


def test_an_expiry_where_no_manifest_goes_reads_no_manifest(
    make_table: MakeTable, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is only appended to keeps all its files: nothing but manifest lists goes."""
    folder = make_table()
    for number in range(3):
        sql(f"INSERT INTO t VALUES ({1000 + number}, 'later')")
    before, snapshots = data_files(folder), len(folder.metadata["snapshots"])
    monkeypatch.setattr(reachable_files, "FILES", "SELECT raise_error('files were read') FROM {0}")

    done = snapshot_expiry.expire_snapshots(expiry_of(folder))

    deleted = before - data_files(folder)
    assert done.detail["deleted"] == {"manifest-list": snapshots - 1}
    assert (len(deleted), folder.noted()) == (snapshots - 1, sorted(deleted))


def test_statistics_that_name_a_file_which_is_needed_take_nothing_with_them(
    make_table: MakeTable, sql: Sql, client: Client
) -> None:
    """A client may write any path there. That of a live data file is found to be needed."""
    folder = make_table()
    old = folder.metadata["current-snapshot-id"]
    data = sql.value("SELECT max(file_path) FROM here.t.files")
    statistics = {"snapshot-id": old, "statistics-path": data, "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
    update = {"action": "set-statistics", "snapshot-id": old, "statistics": {**statistics, "blob-metadata": []}}
    client.commit_table((sql.namespace, "t"), [], [update])
    sql("REFRESH TABLE t")
    sql("INSERT INTO t VALUES (1000, 'later')")
    rows = fingerprint(sql.spark, "t")

    done = snapshot_expiry.expire_snapshots(expiry_of(folder))

    assert done.changed
    assert local_path(data).exists()
    assert fingerprint(sql.spark, "t") == rows


def kill_after(happens: Callable[[Folder], None], folder: Folder, work: JobContext) -> None:
    """A job that does this and is gone."""

    def killed() -> None:
        with record_deletions(work, REASON, expirable_ids(folder)):
            happens(folder)
            raise Killed

    with pytest.raises(Killed):
        killed()


def _killed(*_: object, **__: object) -> None:
    raise Killed


def test_a_job_killed_before_it_deleted_anything_leaves_no_trace_in_the_journal(folder: Folder) -> None:
    before = data_files(folder)
    kill_after(lambda _: None, folder, work_on(folder))

    assert folder.planned()
    finish_deletions(work_on(folder, "another"))
    assert folder.planned(), "a job that may be running was robbed of its plan"
    finish_deletions(work_on(folder))

    assert (folder.planned(), folder.journal()) == ([], [])
    assert data_files(folder) == before


def test_a_plan_that_nobody_comes_back_for_is_finished_by_a_later_job(folder: Folder) -> None:
    before = data_files(folder)
    kill_after(expire, folder, work_on(folder, "lost"))

    finish_deletions(folder.work("later", type="snapshot-expiry", after_days=2))

    assert folder.noted() == sorted(before - data_files(folder))
    assert {row["job"] for row in folder.journal()} == {work_on(folder, "lost").job}


def test_many_jobs_may_make_a_system_table_at_once(sql: Sql, client: Client) -> None:
    name = f"made_{sql.namespace}"

    def make() -> None:
        system_tables.ensure_system_table(
            sql.spark, "lake", name, "id BIGINT, at TIMESTAMP", partitioned_by=("days(at)",), comment="it's"
        )

    run_together(make, make, make)
    make()

    metadata = client.load_table(("system", name))["metadata"]
    assert metadata["properties"]["comment"] == "it's"
    assert metadata["partition-specs"][0]["fields"][0]["transform"] == "day"
