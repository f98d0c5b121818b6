"""The server dies under a writing Spark and comes back: what was acknowledged is there, and nothing is there twice."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.catalogs.process import running_server
from tests.support.spark import Sql, configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

INSERTS = 12
KILL_AFTER = 4


def test_a_killed_server_loses_no_acknowledged_insert_and_repeats_none(spark: "SparkSession", tmp_path: Path) -> None:
    sql = Sql(spark.newSession(), "fragile", "n")
    acknowledged: list[int] = []
    enough = threading.Event()

    def insert_all() -> None:
        for number in range(INSERTS):
            try:
                sql(f"INSERT INTO fragile.n.log VALUES ({number})")
            except Exception:  # refused or unknown; what it left behind is checked below
                continue
            acknowledged.append(number)
            if len(acknowledged) == KILL_AFTER:
                enough.set()

    writer = threading.Thread(target=insert_all, daemon=True)
    with running_server(tmp_path / "nunatak-data") as server:
        configure(sql.spark, rest_catalog("fragile", server.uri))
        sql("CREATE NAMESPACE fragile.n")
        sql("CREATE TABLE fragile.n.log (id INT) USING iceberg")
        writer.start()
        assert enough.wait(120)
        server.kill()
    with running_server(server.data, port=server.port):
        writer.join(180)
        assert not writer.is_alive()

        stored = [row.id for row in sql("SELECT id FROM fragile.n.log ORDER BY id")]
        assert set(acknowledged) <= set(stored)
        assert len(stored) == len(set(stored)) == sql.value("SELECT count(*) FROM fragile.n.log.snapshots")
        sql("INSERT INTO fragile.n.log VALUES (1000)")
        assert sql.value("SELECT max(id) FROM fragile.n.log") == 1000
