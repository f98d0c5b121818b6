"""Which files of a spool wait, what is planned for them, and what stays: all without Spark."""

from pathlib import Path
from typing import Any, cast, get_args

import pytest

from nunatak.events import spool as written
from nunatak_spark.errors import CannotRun
from nunatak_spark.system_tables import NAMESPACE
from nunatak_spark.telemetry import spool_files
from nunatak_spark.telemetry.telemetry_tables import COMMON, KINDS, MEANINGS, REJECTED, columns_sql
from nunatak_spark.telemetry.views import VIEWS, text_digest

NO_SPARK = cast(Any, None)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}\n")


def test_finished_files_of_known_kinds_are_found_by_day_the_oldest_first(tmp_path: Path) -> None:
    put(tmp_path, "events/2026-03-02/b.jsonl", "audit/2026-03-01/a.jsonl", "events/2026-03-01/a.jsonl")
    put(tmp_path, "events/2026-03-01/.c.jsonl.tmp", "events/2026-03-01/.d.jsonl", "later_kind/2026-03-01/x.jsonl")
    put(tmp_path, f"{spool_files.CHECKPOINTS}/2026-03-01/events/commits/0", "events/2026-03-01/readme.txt")

    days = spool_files.find_waiting(NO_SPARK, str(tmp_path))

    assert [(each.day, each.kinds, len(each.files)) for each in days] == [
        ("2026-03-01", ["events", "audit"], 2),
        ("2026-03-02", ["events"], 1),
    ]


@pytest.mark.parametrize("spelled", ["{}", "file://{}", "file:{}"])
def test_a_folder_of_this_machine_may_be_spelled_in_several_ways(tmp_path: Path, spelled: str) -> None:
    assert spool_files.local_folder(spelled.format(tmp_path)) == tmp_path


@pytest.mark.parametrize("place", ["s3://bucket/spool", "abfss://x@y/spool", "/nowhere/at/all"])
def test_any_other_place_is_for_spark_to_look_at(place: str) -> None:
    assert spool_files.local_folder(place) is None


def test_only_what_was_there_is_deleted_and_what_is_gone_is_fine(tmp_path: Path) -> None:
    put(tmp_path, "events/2026-03-01/a.jsonl", "events/2026-03-01/b.jsonl")
    (waiting,) = spool_files.find_waiting(NO_SPARK, str(tmp_path))
    put(tmp_path, "events/2026-03-01/later.jsonl")
    (tmp_path / "events/2026-03-01/a.jsonl").unlink()

    assert spool_files.delete_files(waiting) == 1
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["later.jsonl"]


def test_what_spark_remembers_of_a_day_stays_while_a_file_of_it_does(tmp_path: Path) -> None:
    put(tmp_path, "events/2026-03-01/a.jsonl", "events/2026-03-03/a.jsonl")
    (tmp_path / "audit" / "2026-03-02").mkdir(parents=True)
    memories = [f"{spool_files.CHECKPOINTS}/2026-03-0{n}/events/metadata" for n in (1, 2, 3)]
    put(tmp_path, *memories)

    spool_files.forget_days(tmp_path, tmp_path / spool_files.CHECKPOINTS, before="2026-03-03")

    assert [(tmp_path / memory).exists() for memory in memories] == [True, False, True]
    assert not (tmp_path / "audit" / "2026-03-02").exists()


def test_one_ingests_at_a_time(tmp_path: Path) -> None:
    with (
        spool_files.lock_spool(tmp_path),
        pytest.raises(CannotRun, match="Another ingest"),
        spool_files.lock_spool(tmp_path),
    ):
        pass
    with spool_files.lock_spool(tmp_path):
        pass


def test_server_and_job_agree_about_the_spool() -> None:
    assert set(KINDS) == set(get_args(written.Kind))
    assert spool_files.ENDING == written.ENDING
    assert all(list(columns)[: len(COMMON)] == list(COMMON) for columns in KINDS.values())


def test_every_table_says_what_it_holds() -> None:
    assert set(MEANINGS) == {*KINDS, REJECTED}


def test_columns_are_declared_as_sql_does() -> None:
    assert columns_sql({"a": "STRING", "b": "MAP<STRING, BIGINT>"}) == "a STRING, b MAP<STRING, BIGINT>"


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_view_names_no_catalog_unless_told_one(view: Any) -> None:
    assert "`lake`" not in view.sql()
    assert f"{NAMESPACE}." in view.sql()
    assert f"`lake`.`{NAMESPACE}`." in view.sql("lake")
    assert "{" not in view.sql()
    assert len(text_digest(view)) == 16
