"""What a table's metadata name, and what a task says about files; real files, and no Spark."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import Row

from nunatak_spark.migration import file_reachability
from nunatak_spark.migration.file_reachability import (
    ReachabilityCounts,
    metadata_files,
    python_error,
    reachability_checker,
    tasks_for,
)

FILES = pa.schema([("table_number", pa.int32()), ("kind", pa.string()), ("path", pa.string()), ("size", pa.int64())])


def checked(
    files: list[tuple[str, str, int | None]], access: list[tuple[str, dict[str, str]]] | None = None
) -> list[dict[str, Any]]:
    columns: list[Any] = [[0] * len(files), *(list(column) for column in zip(*files, strict=True))]
    batch = pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, FILES, strict=True)], schema=FILES)
    (told,) = reachability_checker([access or [("", {})]])(iter([batch]))
    return told.to_pylist()


def test_the_document_names_its_own_files() -> None:
    document = {
        "snapshots": [{"manifest-list": "a"}, {"manifest-list": "b"}, {"manifests": ["inside-the-list-of-a"]}],
        "statistics": [{"statistics-path": "s", "file-size-in-bytes": 9}],
        "partition-statistics": [{"statistics-path": "p", "file-size-in-bytes": 8}],
    }

    assert metadata_files(document, "m") == [
        ("metadata file", "m", None),
        ("manifest list", "a", None),
        ("manifest list", "b", None),
        ("statistics file", "s", 9),
        ("partition statistics file", "p", 8),
    ]


def test_a_large_table_is_looked_at_by_many_tasks() -> None:
    def snapshot(files: int) -> dict[str, Any]:
        return {"summary": {"total-data-files": str(files), "total-delete-files": "1"}}

    assert tasks_for({}) == 1
    assert tasks_for({"snapshots": [snapshot(9), snapshot(100_000), {}]}) == 51
    assert tasks_for({"snapshots": [snapshot(10**9)]}) == file_reachability.TASKS_AT_MOST


def test_each_file_that_cannot_be_had_is_named_and_the_rest_counted(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"12345")
    (tmp_path / "short").write_bytes(b"123")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    root = f"file:{tmp_path}"

    told = checked(
        [
            ("data file", f"{root}/whole", 5),
            ("data file", f"{root}/short", 5),
            ("data file", f"{root}/gone", 5),
            ("data file", f"{root}/folder", 5),
            ("statistics file", f"{root}/empty", 0),
        ]
    )

    problems = {Path(row["path"]).name: (row["problem"], row["detail"]) for row in told if row["path"]}
    counts = {row["kind"]: (row["files"], row["bytes"]) for row in told if not row["path"]}
    assert problems["short"] == ("wrong-size", "3 bytes instead of 5")
    assert problems["gone"] == ("missing-file", "")
    assert problems["folder"][0] == "unreachable-file"
    assert "folder" in problems["folder"][1]
    assert set(problems) == {"short", "gone", "folder"}
    assert counts == {"data file": (4, 8), "statistics file": (1, 0)}


def test_credentials_are_those_of_the_longest_prefix(tmp_path: Path) -> None:
    """A file below a prefix of its own is opened by that prefix's settings, and by no others."""
    (tmp_path / "inside").mkdir()
    for name in ("near", "inside/far"):
        (tmp_path / name).write_bytes(b"1")
    broken = {"py-io-impl": "nowhere.NoSuchIO"}
    access: list[tuple[str, dict[str, str]]] = [(f"file:{tmp_path}/inside/", {}), ("", {})]

    fine = checked([("data file", f"file:{tmp_path}/near", 1), ("data file", f"file:{tmp_path}/inside/far", 1)], access)

    assert [row["files"] for row in fine] == [2]
    with pytest.raises(ValueError, match=r"nowhere\.NoSuchIO"):
        checked([("data file", f"file:{tmp_path}/inside/far", 1)], [(f"file:{tmp_path}/inside/", broken), ("", {})])


def test_a_store_that_is_gone_does_not_make_a_list_without_end(tmp_path: Path) -> None:
    told = checked([("data file", f"file:{tmp_path}/{n}", 1) for n in range(file_reachability.NAMED_PER_TASK + 20)])

    assert len([row for row in told if row["path"]]) == file_reachability.NAMED_PER_TASK
    assert [row["files"] for row in told if not row["path"]] == [file_reachability.NAMED_PER_TASK + 20]


def test_what_is_sent_to_executors_brings_everything_but_pyiceberg(tmp_path: Path) -> None:
    """Their Python has the packages that Spark and Iceberg need, and knows nothing of ours."""
    (tmp_path / "file").write_bytes(b"123")
    (tmp_path / "sent").write_bytes(cloudpickle.dumps(reachability_checker([[("", {})]])))  # type: ignore[no-untyped-call]
    script = f"""
import sys, pickle, pyarrow as pa
sys.modules["nunatak_spark"] = sys.modules["nunatak"] = None  # as if they were not installed
check = pickle.loads(open({str(tmp_path / "sent")!r}, "rb").read())
file = {{"table_number": 0, "kind": "data file", "path": "file:{tmp_path}/file", "size": 3}}
batch = pa.RecordBatch.from_pylist([file])
(told,) = check(iter([batch]))
print(told.to_pylist())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert "'files': 1, 'bytes': 3" in ran.stdout


def test_a_traceback_of_a_worker_is_told_in_one_line() -> None:
    text = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'pyiceberg'
"""

    assert python_error(text) == "ModuleNotFoundError: No module named 'pyiceberg'"
    assert python_error("something else") == "something else"


class WithoutPyIceberg:
    """A DataFrame of a cluster whose Python lacks what the task needs."""

    def __init__(self, files: list[dict[str, Any]]) -> None:
        self.files = files
        self.tries = 0

    def mapInArrow(self, check: object, schema: str) -> "WithoutPyIceberg":  # noqa: N802
        self.tries += 1
        return self

    def collect(self) -> None:
        raise PythonException("Traceback\nModuleNotFoundError: No module named 'pyiceberg'")

    def toLocalIterator(self) -> Iterator[Row]:  # noqa: N802
        return iter([Row(**file) for file in self.files])


def test_files_are_opened_from_here_if_the_executors_cannot_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123")
    seen = ReachabilityCounts()
    frame: Any = WithoutPyIceberg(
        [
            {"table_number": 0, "kind": "data file", "path": f"file:{tmp_path}/file", "size": 3},
            {"table_number": 0, "kind": "data file", "path": f"file:{tmp_path}/gone", "size": 3},
        ]
    )

    seen.add(frame, reachability_checker([[("", {})]]))
    seen.add(frame, reachability_checker([[("", {})]]))

    assert seen.facts == {
        "not-from-executors": "opened from this machine: ModuleNotFoundError: No module named 'pyiceberg'"
    }
    assert (seen.files, seen.bytes, seen.kinds) == (4, 6, {"data file": 4})
    assert [row["problem"] for row in seen.problems] == ["missing-file", "missing-file"]
    assert frame.tries == 1  # it would not work the second time either
