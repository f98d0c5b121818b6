"""What others keep beside a table under names that begin with an underscore or a dot is neither seen nor deleted."""

from pathlib import Path

from nunatak_spark.maintenance.deletion_journal import DeletionJournal
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.reachable_files import paths_frame
from tests.spark.orphans.conftest import MakeTable

HIDDEN = (
    "_checkpoint/offsets/0",
    "_delta_log/00000000000000000000.json",
    ".hoodie/metadata/files/x.avro",
    ".hoodie/metadata/y.avro",
    "_SUCCESS",
    "data/_SUCCESS",
    "data/_temporary/0/part-0.parquet",
    "data/.part-0.parquet.inprogress",
    "deep/er/_state/metadata/v1.metadata.json",
    "data/_other=1/part-0.parquet",
)


def test_hidden_names_survive_and_orphans_in_hidden_partitions_go(make_table: MakeTable) -> None:
    folder = make_table(clauses="PARTITIONED BY (truncate(1, word))")
    folder.sql("ALTER TABLE t ADD COLUMN _day INT")
    folder.sql("ALTER TABLE t ADD PARTITION FIELD _day")
    folder.sql("INSERT INTO t VALUES (1, 'x', 7)")
    needed = folder.files()
    hidden = folder.plant(*HIDDEN)
    orphans = folder.plant("data/orphan.parquet", "data/_day=7/orphan.parquet")
    folder.grow_old()

    first = maintain(folder.work("first"))
    assert folder.quarantined() == orphans
    second = maintain(folder.work("second", after_days=4))

    assert (first.detail["orphans"], second.detail["deleted"]) == (2, 2)
    assert folder.files() == needed | hidden
    assert folder.noted() == sorted(orphans)


def test_the_plan_of_an_earlier_version_deletes_no_hidden_file(make_table: MakeTable) -> None:
    """One that looked at hidden names was killed between its plan and its deletions."""
    folder = make_table()
    hidden, orphan = folder.plant("_delta_log/0.json", "_SUCCESS"), folder.plant("data/orphan.parquet")
    work = folder.work("killed")
    planned = [f"file:{folder.path}/{name}" for name in sorted(hidden | orphan)]
    DeletionJournal(work).plan(paths_frame(work, planned, "orphan"), "orphan")

    outcome = maintain(folder.work("killed"))

    assert outcome.ok
    assert hidden <= folder.files()
    assert not orphan & folder.files()
    assert folder.noted() == sorted(orphan)
    assert folder.planned() == []


def test_files_behind_a_link_are_left(make_table: MakeTable, tmp_path: Path) -> None:
    folder = make_table()
    elsewhere = tmp_path / "somebodys.parquet"
    elsewhere.write_bytes(b"theirs")
    (folder.path / "data" / "link").symlink_to(tmp_path)
    work = folder.work("killed")
    DeletionJournal(work).plan(
        paths_frame(work, [f"file:{folder.path}/data/link/{elsewhere.name}"], "orphan"), "orphan"
    )

    outcome = maintain(folder.work("killed"))

    assert elsewhere.read_bytes() == b"theirs"
    assert [Path(path).name for path in outcome.detail["left-outside"]] == [elsewhere.name]
    assert folder.noted() == []
