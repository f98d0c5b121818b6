"""Many tables verified at once, and sources that are written to all the while."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nunatak_spark.migration.model import LEVELS, Evidence, LevelName, MigrationSource, TablePair
from nunatak_spark.migration.parallel_verification import verify_tables
from nunatak_spark.migration.sources.hadoop import hadoop_source
from nunatak_spark.migration.sources.source_catalog import add_source_catalog
from nunatak_spark.migration.verification import verify
from tests.spark.migration.conftest import TARGET
from tests.spark.migration.moving import Move, by_name, movable, states
from tests.support.spark import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS_PER_TABLE = 6  # L2 is one, Spark's part of L3 three; adaptive execution adds some


@pytest.fixture
def source(spark: "SparkSession", name: str, tmp_path: Path) -> MigrationSource:
    source = hadoop_source(name, str(tmp_path / "hadoop"), {})
    add_source_catalog(spark, source, {})
    return source


def make_tables(spark: "SparkSession", source: MigrationSource, count: int) -> list[str]:
    names = [f"{source.name}.t{number}" for number in range(count)]  # of a namespace that is this test's alone
    for number, name in enumerate(names):
        spark.sql(
            f"CREATE TABLE {source.name}.{name} USING iceberg AS "
            f"SELECT id, concat('n', id) AS what, date_add(date'2026-01-01', cast(id AS int)) AS day "
            f"FROM range({number})"
        )
    return names


def last_job(spark: "SparkSession") -> int:
    """Jobs are numbered; Spark remembers the newest thousand."""
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup())


def shadowed(move: Move, source: MigrationSource) -> None:
    move.inventory(source)
    move.plan()
    assert set(states(move.shadow()).values()) == {"shadowed"}


def test_many_tables_are_verified_by_few_jobs_and_one_that_is_broken_stops_no_other(
    move: Move, spark: "SparkSession", source: MigrationSource
) -> None:
    names = make_tables(spark, source, 7)
    shadowed(move, source)
    zone = spark.conf.get("spark.sql.session.timeZone")
    move.verify()  # warm
    before = last_job(spark)

    assert states(move.verify()) == dict.fromkeys(names, "verified")

    jobs = last_job(spark) - before
    assert 0 < jobs <= JOBS_PER_TABLE * len(names) + 4, jobs
    assert spark.conf.get("spark.sql.session.timeZone") == zone
    for name in names:
        evidence = {one.level: one for one in move.evidence(name)}
        assert {level: one.ok for level, one in evidence.items()} == dict.fromkeys(LEVELS, True)
        assert evidence["L1"].facts["looked-at"] == "with 6 others"
        assert evidence["L1"].facts["by-kind"]["metadata file"] == 1
        assert evidence["L2"].facts["rows"] == int(name[-1])

    path = spark.sql(f"SELECT file_path FROM {source.name}.{names[3]}.files").collect()[0].file_path
    local_path(path).unlink()

    found = states(move.verify())

    assert {name for name, state in found.items() if state == "verified"} == set(names) - {names[3]}
    assert "data file" in found[names[3]]
    assert "is missing" in found[names[3]]


def test_a_small_table_of_every_type_is_verified(move: Move, spark: "SparkSession", source: MigrationSource) -> None:
    """Also those that Spark can only read by compiled code, if there are any: they are looked at once more with it."""
    name = f"{source.name}.types"
    spark.sql(
        f"CREATE TABLE {source.name}.{name} (id BIGINT, v VARIANT, d DECIMAL(30,3), m MAP<STRING, STRUCT<a: DOUBLE>>, "
        "t TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, l ARRAY<ARRAY<INT>>) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3')"
    )
    spark.sql(
        f"INSERT INTO {source.name}.{name} SELECT id, parse_json('[1, true]'), id / 8, "
        "map('k', named_struct('a', -0.0D)), timestamp_seconds(id), timestamp_ntz'2026-01-01', x'00', "
        "array(array(1), null) FROM range(3)"
    )
    shadowed(move, source)

    assert states(move.verify(("L0", "L1", "L2"))) == {name: "verified"}


def test_a_source_that_is_written_to_all_the_while_becomes_verified(
    move: Move, spark: "SparkSession", source: MigrationSource
) -> None:
    name = make_tables(spark, source, 4)[3]
    shadowed(move, source)
    table = f"{source.name}.{name}"
    seen: list[TablePair] = []

    def while_somebody_writes(pair: TablePair, levels: Sequence[LevelName]) -> list[Evidence]:
        if pair.table.found.name[-1] == "t3":
            seen.append(pair)
            spark.sql(f"INSERT INTO {table} VALUES (99, 'late', null)")
        return verify(pair, levels)

    tables = by_name(move._step("verify", lambda run: verify_tables(run, while_somebody_writes, movable(run), LEVELS)))

    assert set(states(tables).values()) == {"verified"}
    (pair,) = seen  # one look was enough
    for one in move.evidence(name):
        assert (one.ok, one.findings) == (True, ())
        assert one.source_pointer == pair.table.source_pointer != pair.source_pointer()
    assert spark.table(f"{TARGET}.{name}").count() == 3
    assert states(move.cut_over())[name] == "done"  # frozen and caught up with first
    assert spark.table(f"{TARGET}.{name}").count() == 4


def test_a_snapshot_that_is_expired_meanwhile_is_caught_up_with(
    move: Move, spark: "SparkSession", source: MigrationSource
) -> None:
    name = make_tables(spark, source, 2)[1]
    shadowed(move, source)
    looks = []

    def while_the_snapshot_goes(pair: TablePair, levels: Sequence[LevelName]) -> list[Evidence]:
        if pair.table.found.name[-1] == "t1":
            looks.append(pair)
            if len(looks) == 1:
                spark.sql(f"INSERT OVERWRITE {source.name}.{name} SELECT 5, 'new', null")
                spark.sql(
                    f"CALL {source.name}.system.expire_snapshots(table => '{source.name}.{name}', "
                    "older_than => timestamp'2100-01-01 00:00:00', retain_last => 1)"
                )
        return verify(pair, levels)

    tables = by_name(
        move._step("verify", lambda run: verify_tables(run, while_the_snapshot_goes, movable(run), ("L0", "L2")))
    )

    assert set(states(tables).values()) == {"verified"}
    assert len(looks) == 2
    assert spark.table(f"{TARGET}.{name}").count() == 1
