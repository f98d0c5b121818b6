"""Folders whose files Spark reads with good will: they move exactly, or are refused, and nothing half-made is left."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nunatak.client import Client
from nunatak_spark.migration.model import InventoryTable, MigrationTable, SourceColumn
from nunatak_spark.migration.planning_rules import PlanOptions, plan_migration
from nunatak_spark.migration.sources.folder import folder_source
from nunatak_spark.migration.sources.hive import hive_source
from nunatak_spark.migration.sources.metastore_tables import Declaration, describe_declared_table
from tests.spark.migration.conftest import TARGET
from tests.spark.migration.moving import Move, states
from tests.support.hive_metastore import PARQUET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """One folder that is a table, as each step of a migration finds it."""

    def __init__(self, move: Move, path: Path, name: str) -> None:
        self.move, self.path, self.name = move, path / name, name
        self.path.mkdir(parents=True)

    def take(self, **given: Any) -> MigrationTable:
        """Inventory and plan."""
        options = given.pop("read", {})
        self.move.inventory(folder_source(self.name, str(self.path), None, options, **given))
        (table,) = self.move.plan().values()
        return table

    def write(self, name: str, text: str | bytes) -> None:
        (self.path / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def write_rows(self, *queries: str, by: tuple[str, ...] = ()) -> None:
        """Parquet files, one for each query."""
        for query in queries:
            rows = self.move.spark.sql(query).coalesce(1)
            rows.write.mode("append").partitionBy(*by).parquet(f"file:{self.path}")

    def because(self, **given: Any) -> str:
        """Why it is refused."""
        table = self.take(**given)
        assert table.planned is not None
        assert table.planned.method == "refused"
        return table.planned.because

    def moved(self, order: str, **given: Any) -> list[tuple[Any, ...]]:
        """The rows at the target, after every level was green."""
        self.take(**given)
        assert set(states(self.move.shadow()).values()) == {"shadowed"}
        assert set(states(self.move.verify()).values()) == {"verified"}
        return [tuple(row) for row in self.move.spark.table(self.target).orderBy(order).collect()]

    @property
    def target(self) -> str:
        return f"{TARGET}.{self.name}.{self.name}"

    def is_at_target(self) -> bool:
        with Client(self.move.uri) as client:
            return client.table_exists((self.name, self.name))

    def findings(self, **given: Any) -> list[str]:
        """Kinds of what the second level found, after everything before went well."""
        self.take(**given)
        assert set(states(self.move.shadow()).values()) == {"shadowed"}
        self.move.verify(("L2",))
        (evidence,) = self.move.evidence(self.name)
        return [finding.kind for finding in evidence.findings]


@pytest.fixture
def folder(move: Move, tmp_path: Path, name: str) -> Folder:
    return Folder(move, tmp_path, name)


@contextmanager
def zone(spark: "SparkSession", name: str) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# Text


def test_text_moves_as_it_is_written(folder: Folder) -> None:
    folder.write("a.csv", 'id,what\n00123,"two\nlines"\n1.50,"say ""hi"""\n3,\n')

    rows = folder.moved("id")

    assert rows == [("00123", "two\nlines"), ("1.50", 'say "hi"'), ("3", None)]
    (contents,) = [one for one in folder.move.evidence(folder.name) if one.level == "L2"]
    assert contents.facts["shows"].startswith("the target holds what Spark reads from the csv files with ")
    assert contents.facts["records"] == "3, counted by a second parser as well"


def test_json_moves_as_it_is_written(folder: Folder) -> None:
    folder.write("a.jsonl", '{"a": 1.50, "b": {"x y": ["00123", 7]}}\n{"a": 12345678901234567890.123456789}\n')

    rows = folder.moved("a")

    assert [row[0] for row in rows] == ["1.50", "12345678901234567890.123456789"]
    assert rows[0][1][0] == ["00123", "7"]


def test_types_are_guessed_only_if_asked_for_and_that_is_told(folder: Folder) -> None:
    folder.write("a.csv", "id\n00123\n")

    table = folder.take(infer_types=True)

    assert [column.type for column in table.found.columns] == ["int"]
    assert [risk.kind for risk in table.found.risks] == ["inferred-types"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.jsonl", b'{"a":1} {"a":2}\n'),
        ("a.jsonl", b"{'a':1}\n"),
        ("a.csv", "id,what\n1,été\n".encode("latin-1")),
    ],
    ids=["two values in a line", "other quotes", "another encoding"],
)
def test_text_that_spark_reads_with_good_will_is_not_verified(folder: Folder, file: str, text: bytes) -> None:
    folder.write(file, text)

    assert folder.findings() == ["unreadable-text"]


def test_records_that_another_parser_counts_otherwise_are_not_verified(folder: Folder) -> None:
    folder.write("a.csv", 'id\n1\n"two\nlines"\n')

    assert folder.findings(read={"multiLine": "false"}) == ["other-record-count"]
    assert folder.move.spark.table(folder.target).count() == 3  # of two records


def test_json_with_two_members_of_one_name_is_refused_when_planned(folder: Folder) -> None:
    folder.write("a.jsonl", '{"a":1,"a":2}\n')

    assert "already exists" in folder.because()


@pytest.mark.parametrize(
    "texts",
    [
        ("id,what\n1,a\n2\n",),
        ("id,what\n1,a\n2,b,c\n",),
        ("id,what\n1,a\n", "what,id\nb,2\n"),
    ],
    ids=["a value too few", "a value too many", "columns in another order in another file"],
)
def test_a_record_that_does_not_fit_is_refused_and_no_table_is_left(folder: Folder, texts: tuple[str, ...]) -> None:
    for number, text in enumerate(texts):
        folder.write(f"{number}.csv", text)
    folder.take()

    (table,) = folder.move.shadow().values()

    assert (table.state, table.failed_at) == ("planned", "shadow")
    assert table.problem
    assert not folder.is_at_target()


def test_json_over_several_lines_is_refused_with_the_option_that_reads_it(folder: Folder) -> None:
    folder.write("a.json", json.dumps([{"a": 1}, {"a": 2}], indent=1))

    assert "--read multiLine=true" in folder.because()
    assert folder.moved("a", read={"multiLine": "true"}) == [("1",), ("2",)]


def test_a_right_copy_is_green_in_any_time_zone(folder: Folder) -> None:
    folder.write("a.csv", "id,at\n1,2026-01-01 00:00:00\n2,2026-07-01 12:30:00\n")

    with zone(folder.move.spark, "Asia/Tokyo"):
        rows = folder.moved("id", infer_types=True)
        assert folder.move.spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"

    assert [row[0] for row in rows] == [1, 2]
    at = folder.move.spark.sql(f"SELECT collect_list(unix_seconds(at)) FROM {folder.target}").collect()[0][0]
    assert sorted(at) == [1767225600, 1782909000]  # in UTC


# Names of folders


def test_names_of_folders_move_as_they_are_written(folder: Folder) -> None:
    folder.write_rows("SELECT id, lpad(id, 3, '0') AS part FROM range(3)", by=("part",))

    assert folder.moved("id") == [(0, "000"), (1, "001"), (2, "002")]


def test_a_folder_with_no_partition_but_the_null_one_moves(folder: Folder) -> None:
    folder.write_rows("SELECT id, cast(null AS string) AS part FROM range(2)", by=("part",))

    assert folder.moved("id") == [(0, None), (1, None)]


def test_folders_that_are_timestamps_move_as_they_are_written(folder: Folder) -> None:
    at = "timestamp'2026-01-01 10:00:00' + make_interval(0, 0, 0, cast(id AS int)) AS at"
    folder.write_rows(f"SELECT id, {at} FROM range(2)", by=("at",))

    with zone(folder.move.spark, "Asia/Tokyo"):
        assert folder.moved("id") == [(0, "2026-01-01 10:00:00"), (1, "2026-01-02 10:00:00")]


def test_timestamps_as_folders_are_not_added_but_can_be_copied(folder: Folder) -> None:
    folder.write_rows("SELECT id, timestamp'2026-01-01 10:00:00' AS at FROM range(2)", by=("at",))

    assert folder.because(infer_types=True).endswith("ask for a copy with --copy")


# Files that differ


@pytest.mark.parametrize(
    "queries",
    [
        ("SELECT 1 AS id", "SELECT 2L AS id"),
        ("SELECT 1 AS id", "SELECT 'a' AS id"),
        ("SELECT 1 AS id", "SELECT 2 AS ID"),
        ("SELECT named_struct('a', 1) AS s", "SELECT named_struct('a', 'x') AS s"),
        ("SELECT named_struct('a', 1) AS s", "SELECT named_struct('A', 2) AS s"),
        ("SELECT array(named_struct('a', 1)) AS s", "SELECT array(named_struct('A', 2)) AS s"),
        ("SELECT interval '1' day AS gap",),
    ],
    ids=[
        "int and bigint", "int and string", "id and ID", "nested types", "nested names", "names in an array",
        "a type that Iceberg has not",
    ],
)  # fmt: skip
def test_files_that_do_not_agree_are_refused_when_planned(folder: Folder, queries: tuple[str, ...]) -> None:
    folder.write_rows(*queries)

    assert folder.because()
    assert not folder.is_at_target()


def test_columns_that_some_files_lack_are_null_there(folder: Folder) -> None:
    folder.write_rows(
        "SELECT 1 AS id, named_struct('a', 1) AS s", "SELECT 2 AS id, named_struct('a', 2, 'b', 3) AS s, 4 AS c"
    )

    rows = folder.moved("id")

    assert [(row[0], tuple(row[1]), row[2]) for row in rows] == [(1, (1, None), None), (2, (2, 3), 4)]


def test_files_that_cannot_be_added_leave_no_table(folder: Folder) -> None:
    folder.write_rows("SELECT 1 AS id")
    folder.write("zz.parquet", b"this is not Parquet")
    table = folder.take(read={"mergeSchema": "false"})
    assert table.planned is not None
    assert table.planned.method == "add_files"

    (failed,) = folder.move.shadow().values()

    assert (failed.state, failed.failed_at) == ("planned", "shadow")
    assert failed.problem
    assert not folder.is_at_target()


# Files that a metastore declares


@pytest.mark.parametrize(
    ("queries", "columns", "kinds"),
    [
        (("SELECT 1 AS userId",), {"userid": "int"}, ["name-case"]),
        (("SELECT named_struct('userId', 1) AS s",), {"s": "struct<userid:int>"}, ["name-case"]),
        (("SELECT 1 AS id", "SELECT 2 AS ID"), {"id": "int"}, ["name-case"]),
        (("SELECT 1 AS id", "SELECT 2L AS id"), {"id": "bigint"}, ["mixed-types"]),
        (("SELECT 1 AS id, named_struct('userId', 1) AS s",), {"id": "int", "s": "struct<userId:int>"}, []),
        (("SELECT 1 AS id", "SELECT 2 AS id, 3 AS later"), {"id": "int", "later": "int"}, []),
    ],
    ids=["column", "nested field", "two spellings", "two types", "the same", "a column that some lack"],
)
def test_files_that_iceberg_reads_otherwise_than_hive_are_not_added(
    folder: Folder, queries: tuple[str, ...], columns: dict[str, str], kinds: list[str]
) -> None:
    folder.write_rows(*queries)
    listed = [SourceColumn(name, kind) for name, kind in columns.items()]
    said = Declaration(f"file:{folder.path}", PARQUET.serde, {}, listed, (), (), {})
    found = InventoryTable(source="hive", name=("db", "t"), kind="hive")

    table = describe_declared_table(lambda: folder.move.spark, found, said)

    assert [risk.kind for risk in table.risks] == kinds
    source = hive_source("hive", "thrift://nowhere", {})
    (planned,) = plan_migration([MigrationTable(found=table)], [source], (), PlanOptions()).values()
    (copied,) = plan_migration([MigrationTable(found=table)], [source], (), PlanOptions(copy=("db.t",))).values()
    assert (planned.method, copied.method) == ("refused" if kinds else "add_files", "copy")
