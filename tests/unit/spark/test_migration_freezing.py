"""How a Hadoop table is kept from being written to: by the very name that the next commit needs."""

import json
from pathlib import Path

import pytest

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import InventoryTable
from nunatak_spark.migration.sources.hadoop import HadoopSourceCatalog, hadoop_source


def no_spark() -> None:
    raise AssertionError("nothing here needs Spark")


@pytest.fixture
def pointer(tmp_path: Path) -> str:
    (tmp_path / "metadata").mkdir()
    file = tmp_path / "metadata" / "v7.metadata.json"
    file.write_text("{}")
    return f"file:{file}"


@pytest.fixture
def hadoop(tmp_path: Path) -> HadoopSourceCatalog:
    return HadoopSourceCatalog(hadoop_source("old", str(tmp_path), {}), no_spark, {})  # type: ignore[arg-type]


@pytest.fixture
def table(pointer: str) -> InventoryTable:
    return InventoryTable(source="old", name=("a", "t"), kind="iceberg", pointer=pointer)


def test_the_next_version_is_taken_once_and_given_back(
    hadoop: HadoopSourceCatalog, table: InventoryTable, tmp_path: Path
) -> None:
    taken = tmp_path / "metadata" / "v8.metadata.json"

    assert hadoop.freeze_method(table)[0] == "blocked"
    assert hadoop.block(table, table.pointer)
    assert hadoop.block(table, table.pointer)  # as after a crash
    assert json.loads(taken.read_text())["format-version"] == 99
    assert hadoop.is_blocked(table, table.pointer)

    hadoop.unblock(table, table.pointer)
    hadoop.unblock(table, table.pointer)

    assert not taken.exists()
    assert not hadoop.is_blocked(table, table.pointer)


def test_a_commit_that_came_first_wins_and_is_never_removed(
    hadoop: HadoopSourceCatalog, table: InventoryTable, tmp_path: Path
) -> None:
    commit = tmp_path / "metadata" / "v8.metadata.json"
    commit.write_text('{"format-version": 2}')

    assert not hadoop.block(table, table.pointer)
    hadoop.unblock(table, table.pointer)

    assert commit.read_text() == '{"format-version": 2}'


@pytest.mark.parametrize(
    "pointer", ["s3://bucket/t/metadata/v7.metadata.json", "hdfs://nn/t/metadata/v7.metadata.json"]
)
def test_a_folder_elsewhere_cannot_be_blocked_and_this_is_said(hadoop: HadoopSourceCatalog, pointer: str) -> None:
    table = InventoryTable(source="old", name=("a", "t"), kind="iceberg", pointer=pointer)

    assert hadoop.freeze_method(table) == ("", "the folder is not on this machine: stop the writers yourself")


def test_a_file_that_is_not_a_version_is_refused(hadoop: HadoopSourceCatalog, table: InventoryTable) -> None:
    with pytest.raises(CannotRun, match="is not a version"):
        hadoop.block(table, "file:/x/00001-abc.metadata.json")
