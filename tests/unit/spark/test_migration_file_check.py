"""Whether the files that a table needs are there: made by PyIceberg, looked for without Spark."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from nunatak_spark.migration.file_check import (
    FileCounts,
    as_arrow_function,
    check_files,
    describe_files,
    manifest_checker,
)
from tests.support.spark import local_path

ROWS = pyarrow.table({"id": [1, 2, 3]})


def no_spark() -> Any:
    raise AssertionError("so few files need no Spark")


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Two appends, of which one was deleted again, and a tag on what was before that."""
    with closing(SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}/lake")) as catalog:
        catalog.create_namespace("a")
        table = catalog.create_table(("a", "t"), ROWS.schema)
        table.append(ROWS)
        table.append(pyarrow.table({"id": [7]}))
        table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "before").commit()
        table.delete("id = 7")
        yield table


def looked(table: Table) -> FileCounts:
    return check_files(no_spark, table.metadata_location, lambda: ())


def data_files(table: Table, snapshot_id: int | None = None) -> list[str]:
    return [task.file.file_path for task in table.scan(snapshot_id=snapshot_id).plan_files()]


def test_every_file_of_the_current_snapshot_and_of_tags_is_looked_for(table: Table) -> None:
    found = looked(table)

    # The metadata file, two manifest lists, the manifests that they name, and two data files.
    manifests = {one.manifest_path for each in (table.current_snapshot(), table.snapshot_by_name("before"))
                 for one in each.manifests(table.io)}  # fmt: skip
    assert found == FileCounts(1 + 2 + len(manifests) + 2)
    assert describe_files(found) == f"every file is still there ({found.files} looked for)"


@pytest.mark.parametrize("kind", ["metadata", "manifest list", "manifest", "data", "data of a tag"])
def test_a_file_that_is_missing_is_named(table: Table, kind: str) -> None:
    current = table.current_snapshot()
    (kept,) = data_files(table)
    (tagged,) = set(data_files(table, table.snapshot_by_name("before").snapshot_id)) - {kept}
    path = {
        "metadata": table.metadata_location,
        "manifest list": current.manifest_list,
        "manifest": current.manifests(table.io)[0].manifest_path,
        "data": kept,
        "data of a tag": tagged,
    }[kind]
    local_path(path).unlink()

    found = looked(table)

    assert found.missing >= 1
    assert path in found.named
    assert path in describe_files(found)


def test_executors_look_with_the_same_code(table: Table) -> None:
    (kept,) = data_files(table)
    local_path(kept).unlink()
    manifests = [one.manifest_path for one in table.current_snapshot().manifests(table.io)]
    batch = pyarrow.RecordBatch.from_pydict({"path": manifests})

    (told,) = as_arrow_function(manifest_checker(()))(iter([batch]))

    assert {row["path"] for row in told.to_pylist()} == {kept, None}
    assert sum(row["missing"] for row in told.to_pylist()) == 1


def test_of_many_missing_files_some_are_named() -> None:
    text = describe_files(FileCounts(100, 70, tuple(f"f{number}" for number in range(20))))

    assert text == "70 of 100 files are missing: f0, f1, f2, f3, f4 and 65 more"
