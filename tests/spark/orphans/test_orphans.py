"""Orphan files: found, quarantined, seen again, deleted and noted; and all that keeps a file from being deleted."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from nunatak.client import Client
from nunatak_spark.configuration import CatalogConfig
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.maintenance.deletion_journal import DeletionJournal
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.job_context import JobOutcome, JobRefused, JobStopped
from nunatak_spark.spark_session import add_catalog
from tests.spark.orphans.conftest import MakeTable
from tests.spark.orphans.folder import Folder
from tests.support.catalogs.process import RunningServer
from tests.support.spark import Sql

ORPHANS = (
    "data/plain.parquet",
    "data/word=x/deeper/nested.parquet",
    "data/odd % 100%25 name.parquet",
    "data/it's [ünï] {code} * #1.orc",
    "metadata/lost-m0.avro",
    "metadata/snap-1-1-lost.avro",
)
MESSY = """PARTITIONED BY (truncate(word, 2)) TBLPROPERTIES (
    'write.delete.mode'='merge-on-read', 'write.metadata.previous-versions-max'='2',
    'write.metadata.delete-after-commit.enabled'='false')"""


def test_orphans_go_at_the_second_sighting_and_nothing_else_goes(make_table: MakeTable, sql: Sql) -> None:
    folder = make_table(clauses=MESSY)
    sql("DELETE FROM t WHERE id % 10 = 3")
    sql("ALTER TABLE t CREATE BRANCH audit")
    sql("INSERT INTO here.t.branch_audit VALUES (1000, 'branch')")
    sql.call("compute_table_stats", f"'{sql.namespace}.t'")
    known = set(folder.metadata["metadata-log"][0]["metadata-file"].rsplit("/", 1)[1:])
    passed = {f"metadata/{file.name}" for file in (folder.path / "metadata").glob("0000[0-2]-*.metadata.json")}
    assert passed
    assert not {Path(name).name for name in passed} & known
    live = folder.files() - passed
    planted = folder.plant(*ORPHANS) | passed
    folder.grow_old()
    young = folder.plant("data/young.parquet", age_days=50)
    before = fingerprint(sql.spark, "t"), fingerprint(sql.spark, f"lake.{sql.namespace}.t.branch_audit")

    foreseen = maintain(folder.work("first", dry_run=True))
    assert folder.quarantined() == set()
    first = maintain(folder.work("first"))
    assert folder.quarantined() == planted
    soon = maintain(folder.work("second", after_days=2))
    due = maintain(folder.work("third", after_days=4, dry_run=True))
    assert folder.files() == live | planted | young
    assert folder.journal() == []
    third = maintain(folder.work("third", after_days=4))
    fourth = maintain(folder.work("fourth", after_days=8))

    assert folder.files() == live | young
    assert (fingerprint(sql.spark, "t"), fingerprint(sql.spark, f"lake.{sql.namespace}.t.branch_audit")) == before
    assert folder.noted() == sorted(planted)
    assert {row["job"] for row in folder.journal()} == {folder.work("third").job}
    assert {(row["kind"], row["table"], row["deleted_at"] is not None) for row in folder.journal()} == {
        ("orphan", f"{sql.namespace}.t", True)
    }
    assert all("two runs" in row["reason"] for row in folder.journal())
    assert (folder.quarantined(), folder.planned()) == (set(), [])
    told = [(each.changed, each.detail["orphans"]) for each in (foreseen, first, soon, due, third, fourth)]
    count = len(planted)
    assert told == [(False, count), (True, count), (False, count), (False, count), (True, count), (False, 0)]
    assert (foreseen.detail["due"], due.detail["due"], third.detail["deleted"]) == (0, count, count)


def test_a_file_that_another_client_made_part_of_the_table_leaves_the_quarantine(
    make_table: MakeTable, sql: Sql, shared_server: RunningServer, tmp_path: Path
) -> None:
    folder = make_table()
    sql.spark.range(500, 501).selectExpr("id", "'added' AS word").coalesce(1).write.parquet(str(tmp_path / "made"))
    (made,) = (tmp_path / "made").glob("*.parquet")
    shutil.copy(made, folder.path / "data" / "added.parquet")
    folder.plant("data/orphan.parquet")
    folder.grow_old()
    maintain(folder.work("first"))
    assert folder.quarantined() == {"data/added.parquet", "data/orphan.parquet"}

    # In a session of its own, so that ours knows nothing of it: Spark remembers tables for a while.
    other = sql.spark.newSession()
    add_catalog(other, CatalogConfig(shared_server.uri, "elsewhere"))
    added = folder.path / "data" / "added.parquet"
    other.sql(
        f"CALL elsewhere.system.add_files(table => '{sql.namespace}.t', source_table => '`parquet`.`{added}`')"
    ).collect()
    outcome = maintain(folder.work("second", after_days=4))

    assert outcome.detail["became-reachable"] == [f"file:{added}"]
    assert folder.noted() == ["data/orphan.parquet"]
    assert folder.quarantined() == set()
    assert sql.value("SELECT count(*) FROM t WHERE word = 'added'") == 1
    assert fingerprint(sql.spark, "t").rows == 101


# Others in the folder


def refused(folder: Folder, **options: Any) -> str:
    """What the job says that must not do anything, not even note what it saw."""
    before, old = folder.files(), (folder.journal(), folder.quarantined())
    with pytest.raises(JobRefused) as refusal:
        maintain(folder.work("refused", **options))
    assert folder.files() == before
    assert (folder.journal(), folder.quarantined()) == old
    return str(refusal.value)


def test_a_neighbours_files_in_the_folder_keep_all_of_it(make_table: MakeTable, sql: Sql, client: Client) -> None:
    street = f"{client.load_namespace((sql.namespace,))['properties'].get('location') or _warehouse(sql)}/street"
    neighbour = make_table("neighbour", f"TBLPROPERTIES ('write.data.path'='{street}/home/lodger')")
    home = make_table("home", f"LOCATION '{street}/home'")
    home.grow_old()
    home.plant("data/orphan.parquet")
    lodged = [name for name in home.files() if name.startswith("lodger/")]
    assert lodged
    before = fingerprint(sql.spark, "neighbour")

    text = refused(home)

    assert f"table:default/{sql.namespace}/neighbour" in text
    assert fingerprint(sql.spark, "neighbour") == before
    assert neighbour.noted() == []


def _warehouse(sql: Sql) -> str:
    sql("CREATE TABLE where_tables_lie (id INT) USING iceberg")
    location: str = sql.pairs("DESCRIBE TABLE EXTENDED where_tables_lie")["Location"]
    return location.rpartition("/")[0]


FOREIGN = {
    "lodger/metadata/00000-a.metadata.json": "another table",
    "deep/er/metadata/snap-1-1-a.avro": "another table",
    "metadata/00009-7d9f5a5e-0000-4000-8000-000000000000.metadata.json": "another catalog",
    "metadata/v9.metadata.json": "another catalog",
}


def test_metadata_of_a_table_that_the_catalog_does_not_know_keeps_all_of_the_folder(make_table: MakeTable) -> None:
    folder = make_table()
    folder.plant("data/orphan.parquet")
    for name, says in FOREIGN.items():
        folder.plant(name)

        text = refused(folder)

        (folder.path / name).unlink()
        assert says in text
        assert name in text


def test_a_table_whose_files_are_not_its_own_is_left_alone(make_table: MakeTable, sql: Sql) -> None:
    folder = make_table(clauses="TBLPROPERTIES ('gc.enabled'='false')")
    folder.plant("data/orphan.parquet")

    assert "gc.enabled=false" in refused(folder)


def test_another_table_of_the_name_is_left_alone(make_table: MakeTable, sql: Sql) -> None:
    planned = make_table().work("first")
    sql("DROP TABLE t")
    folder = make_table()
    orphan = folder.plant("data/orphan.parquet")

    with pytest.raises(JobRefused, match="another table"):
        maintain(planned)

    assert orphan <= folder.files()
    assert folder.quarantined() == set()


def test_a_file_that_may_be_the_tables_own_by_another_spelling_keeps_all_of_the_folder(
    make_table: MakeTable, sql: Sql, shared_server: RunningServer
) -> None:
    folder = make_table()
    folder.plant("data/orphan.parquet", "data/spelled.parquet")
    # No engine would write this path here; after a move from one store to another it is what metadata says.
    appended = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://bucket{folder.path}/data/spelled.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=7,
    )
    table = load_catalog("rest", type="rest", uri=shared_server.uri).load_table((sql.namespace, "t"))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(appended)

    text = refused(folder)

    assert "equal-schemes" in text
    assert "s3" in text
    assert "java" not in text


# Killed, and begun again


class Killed(BaseException):
    """As if the process were gone: nothing between here and the test may catch it."""


def killed_at(text: str) -> Callable[[ProgressStep], None]:
    def kill(step: ProgressStep) -> None:
        if text in step.text:
            raise Killed

    return kill


def test_a_job_killed_again_and_again_deletes_and_notes_all_of_it_once(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_table()
    live = folder.files()
    folder.grow_old()
    planted = folder.plant(*ORPHANS)
    maintain(folder.work("first"))

    with pytest.raises(Killed):
        maintain(folder.work("second", after_days=4, progress=killed_at("deleting")))
    assert (folder.files(), folder.journal(), len(folder.planned())) == (live | planted, [], len(planted))
    with pytest.raises(Killed):
        maintain(folder.work("second", after_days=4, progress=killed_at("making sure")))
    assert (folder.files(), folder.journal(), len(folder.planned())) == (live, [], len(planted))
    with monkeypatch.context() as patch:
        patch.setattr(DeletionJournal, "_drop_plans", _killed)
        with pytest.raises(Killed):
            maintain(folder.work("second", after_days=4))
    assert folder.noted() == sorted(planted)
    with pytest.raises(Killed):
        maintain(folder.work("second", after_days=4, progress=killed_at("noting")))
    again = maintain(folder.work("second", after_days=4))

    assert again.ok
    assert (again.changed, again.detail["deleted"]) == (True, len(planted))  # what killed attempts deleted
    assert [(gain.before, gain.after) for gain in again.gains] == [(len(planted), 0)]
    assert folder.files() == live
    assert folder.noted() == sorted(planted)
    assert (folder.planned(), folder.quarantined()) == ([], set())


def _killed(*_: object) -> None:
    raise Killed


def test_a_job_stops_before_it_deletes_and_tells_what_the_store_did_not_delete(make_table: MakeTable) -> None:
    folder = make_table()
    folder.grow_old()
    planted = folder.plant("data/goes.parquet", "data/stays.parquet")
    maintain(folder.work("first"))

    def stop() -> None:
        raise JobStopped

    with pytest.raises(JobStopped):
        maintain(folder.work("second", after_days=4, check=stop))
    assert planted <= folder.files()
    assert folder.journal() == []

    outcome = _with_files_that_come_back(folder, "data/stays.parquet")

    assert not outcome.ok
    assert [Path(path).name for path in outcome.detail["not-deleted"]] == ["stays.parquet"]
    assert folder.noted() == ["data/goes.parquet"]
    assert folder.quarantined() == {"data/stays.parquet"}


def _with_files_that_come_back(folder: Folder, name: str) -> JobOutcome:
    """A store that answers as if it had deleted, and has not."""

    def put_back(step: ProgressStep) -> None:
        if "making sure" in step.text:
            folder.plant(name)

    return maintain(folder.work("second", after_days=4, progress=put_back))
