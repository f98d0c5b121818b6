"""Every partition is found and chosen exactly, whatever its value is: those that Iceberg tells apart, and no other."""

import pytest

from nunatak_spark.maintenance import data_compaction
from nunatak_spark.maintenance.compaction_plan import FileSizes
from nunatak_spark.maintenance.loaded_table import load_table, options_sql
from nunatak_spark.maintenance.partition_filters import columns_by_id, partition_condition
from nunatak_spark.sql_text import literal
from tests.spark.maintenance.conftest import Maintenance

SIZES = FileSizes(target=1 << 20, min_input_files=2)
DOUBLES = "double('NaN')", "0.0D", "-0.0D", "double('Infinity')", "double('-Infinity')", "1.0E-300D", "NULL"
TIMES = "'1969-12-31 23:59:59.999999'", "'2026-02-28 12:00:00.000001'", "'0001-01-01 00:00:00'", "NULL"
# The column's type, how it is partitioned, and values of as many partitions.
LAYOUTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "double": ("DOUBLE", "p", DOUBLES),
    "float": ("FLOAT", "p", ("float('NaN')", "float(-0.0D)", "float(0)", "1.1F", "NULL")),
    "date": ("DATE", "p", ("DATE '0001-01-01'", "DATE '1969-12-31'", "date_from_unix_date(2932897)", "NULL")),
    "timestamp": ("TIMESTAMP", "p", tuple(each if each == "NULL" else f"TIMESTAMP {each}" for each in TIMES)),
    "clock": ("TIMESTAMP_NTZ", "p", tuple(each if each == "NULL" else f"TIMESTAMP_NTZ {each}" for each in TIMES)),
    "decimal": ("DECIMAL(38, 2)", "p", ("1.50BD", "-0.01BD", "123456789012345678901234567890123456.78BD", "NULL")),
    "binary": ("BINARY", "p", ("X''", "X'00FF'", "X'27'", "NULL")),
    "string": (
        "STRING",
        "p",
        (*map(literal, ("it's", 'a "b" `c`', "a\\nb\n", "", "ünï", "%_", "null", "\u2028")), "NULL"),
    ),
    "long": ("BIGINT", "p", ("-9223372036854775807 - 1", "9223372036854775807", "0", "NULL")),
    "boolean": ("BOOLEAN", "p", ("true", "false", "NULL")),
    "bucket": ("STRING", "bucket(4, p)", ("'a'", "'b'", "NULL")),
    "truncated text": ("STRING", "truncate(2, p)", ("'it''s'", "'x'", "'%%%'", "NULL")),
    "truncated number": ("INT", "truncate(10, p)", ("-1", "0", "10", "NULL")),
    "years": ("TIMESTAMP", "years(p)", ("TIMESTAMP '1969-06-01'", "TIMESTAMP '2026-06-01'", "NULL")),
    "months": ("DATE", "months(p)", ("DATE '1969-12-31'", "DATE '2024-02-29'", "DATE '9999-12-31'", "NULL")),
    "days": ("TIMESTAMP_NTZ", "days(p)", ("TIMESTAMP_NTZ '1969-12-31 23:00:00'", "TIMESTAMP_NTZ '2026-02-28'", "NULL")),
    "hours": ("TIMESTAMP", "hours(p)", ("TIMESTAMP '1969-12-31 23:30:00'", "TIMESTAMP '2026-02-28 12:10:00'", "NULL")),
}


def a_table(maintenance: Maintenance, kind: str, partitioned: str, values: tuple[str, ...]) -> None:
    """Two files in each partition."""
    maintenance.sql(f"CREATE TABLE t (id INT, p {kind}) PARTITIONED BY ({partitioned})")
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    for _ in range(2):
        maintenance.sql(f"INSERT INTO t VALUES {rows}")


def files_by_row(maintenance: Maintenance) -> dict[int, int]:
    """In how many files each value lies."""
    rows = maintenance.sql("SELECT id, count(DISTINCT _file) FROM t GROUP BY id")
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_condition_chooses_one_partition_and_no_other(
    maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind, partitioned, values = LAYOUTS[name]
    a_table(maintenance, kind, partitioned, values)
    work = maintenance.work("t", "data-compaction")
    table = load_table(work)
    found = data_compaction.find_partitions_to_rewrite(work, table, SIZES)
    assert len({each.values for each in found}) == len(values)
    assert [(each.files, each.values is None) for each in found] == [(2, False)] * len(values)
    monkeypatch.setattr(data_compaction, "FEW_FILES", 0)
    assert sorted(data_compaction.find_partitions_to_rewrite(work, table, SIZES), key=repr) == sorted(
        found, key=repr
    )  # counted by Spark

    columns = columns_by_id(table.columns)
    for done, partition in enumerate(found, 1):
        condition = partition_condition(partition.values, table.spec, columns, "`lake`.`system`")
        assert condition is not None
        arguments = f"table => {table.argument}, where => {literal(condition)}"
        chosen = options_sql({"min-input-files": 2})
        (row,) = maintenance.sql(f"CALL lake.system.rewrite_data_files({arguments}, options => {chosen})")
        assert (row[0], row[1]) == (2, 1), condition
        assert sorted(files_by_row(maintenance).values()) == [1] * done + [2] * (len(values) - done)


def test_the_files_of_nan_are_joined(maintenance: Maintenance) -> None:
    maintenance.sql("CREATE TABLE t (id INT, p DOUBLE, q FLOAT) PARTITIONED BY (p, q)")
    for number in range(6):
        maintenance.sql(f"INSERT INTO t VALUES ({number}, double('NaN'), float('NaN')), ({number}, 0.0D, -0.0D)")
    rows = maintenance.fingerprint("t")

    told = maintenance.run("t", "data-compaction", dry_run=True)
    done = maintenance.run("t", "data-compaction")

    assert told.detail["partitions"] == 2
    assert (done.changed, maintenance.files("t")["data"]) == (True, 2)
    assert maintenance.fingerprint("t") == rows


def test_zero_and_minus_zero_are_two_partitions_of_few_files_each(maintenance: Maintenance) -> None:
    """Three files each are not worth it, six would be: nobody is promised what Iceberg will not do."""
    maintenance.sql("CREATE TABLE t (id INT, p DOUBLE) PARTITIONED BY (p)")
    for number in range(3):
        maintenance.sql(f"INSERT INTO t VALUES ({number}, 0.0D), ({number}, -0.0D)")

    assert maintenance.run("t", "data-compaction", dry_run=True).detail == {"text": "no files to rewrite"}
