"""DuckDB on S3 with vended credentials and no key of its own."""

from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import duckdb
import pytest
from duckdb import DuckDBPyConnection

from tests.engines.s3.conftest import S3Lake

EXTENSIONS = ("avro", "httpfs", "iceberg")


@pytest.fixture(scope="module")
def duck(lake: S3Lake) -> Iterator[DuckDBPyConnection]:
    """A session in which the server is attached as `lake`; its extensions come from installed wheels."""
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as session:
        for name in EXTENSIONS:
            (extension,) = Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")
            session.execute(f"LOAD '{extension}'")
        session.execute(f"ATTACH '' AS lake (TYPE ICEBERG, ENDPOINT '{lake.uri}', AUTHORIZATION_TYPE 'none')")
        yield session


def test_duckdb_reads_what_pyiceberg_wrote(lake: S3Lake, duck: DuckDBPyConnection) -> None:
    first = lake.cities("for_duckdb").current_snapshot()
    assert first is not None
    duck.execute("INSERT INTO lake.for_duckdb.cities VALUES (3, 'Qaanaaq')")
    at_first = f"lake.for_duckdb.cities AT (VERSION => {first.snapshot_id})"

    now = duck.execute("SELECT * FROM lake.for_duckdb.cities ORDER BY id").fetchall()
    then = duck.execute(f"SELECT * FROM {at_first} ORDER BY id").fetchall()

    assert now == [(1, "Nuuk"), (2, "Ilulissat"), (3, "Qaanaaq")] == lake.rows("for_duckdb.cities")
    assert then == [(1, "Nuuk"), (2, "Ilulissat")]


def test_duckdb_makes_a_table(lake: S3Lake, duck: DuckDBPyConnection) -> None:
    duck.execute("CREATE SCHEMA lake.by_duckdb")
    duck.execute("CREATE TABLE lake.by_duckdb.cities (id BIGINT, city VARCHAR)")
    duck.execute("INSERT INTO lake.by_duckdb.cities VALUES (1, 'Nuuk')")

    assert lake.rows("by_duckdb.cities") == [(1, "Nuuk")]
    duck.execute("DROP TABLE lake.by_duckdb.cities")
    assert not lake.catalog.table_exists("by_duckdb.cities")
