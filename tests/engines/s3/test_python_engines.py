"""Polars, Daft and ClickHouse on S3 with vended credentials and no key of their own."""

import pytest

from tests.engines.s3.conftest import S3Lake
from tests.support.engines.python_engines import run_program
from tests.support.tool_cache import INSTALL_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS)]

LOAD = """
from pyiceberg.catalog.rest import RestCatalog
table = RestCatalog("lake", uri=arguments["uri"]).load_table(arguments["table"])
"""
# Its own reader does not take the vended properties unless it is handed them.
POLARS = """
import polars
added = polars.DataFrame({"id": [3], "city": ["Qaanaaq"]})
added.write_iceberg(table, mode="append")
table.refresh()
result = polars.scan_iceberg(table, storage_options=table.io.properties).sort("id").collect().rows()
"""
DAFT = """
import daft
daft.from_pydict({"id": [3], "city": ["Qaanaaq"]}).write_iceberg(table, mode="append")
result = [[row["id"], row["city"]] for row in daft.read_iceberg(table).sort("id").to_pylist()]
"""
CLICKHOUSE = """
from chdb import session
clickhouse = session.Session()
clickhouse.query("SET allow_database_iceberg = 1, allow_insert_into_iceberg = 1", "CSV")
clickhouse.query(f"CREATE DATABASE lake ENGINE = DataLakeCatalog('{arguments['uri']}/v1') SETTINGS "
    f"catalog_type = 'rest', warehouse = 'default', "
    f"storage_endpoint = '{arguments['endpoint']}/{arguments['bucket']}', "
    "vended_credentials = true", "CSV")
table = f"lake.`{arguments['table']}`"
if arguments["insert"]:
    clickhouse.query(f"INSERT INTO {table} VALUES (3, 'Qaanaaq')", "CSV")
asked = f"SELECT id, city FROM {table} ORDER BY id"
result = json.loads(clickhouse.query(asked, "JSONCompact").bytes())["data"]
"""
ADDED = [(1, "Nuuk"), (2, "Ilulissat"), (3, "Qaanaaq")]


def run_on(lake: S3Lake, program: str, table: str, *, insert: bool = False) -> list[tuple[int, str]]:
    where = {"uri": lake.uri, "table": table, "endpoint": lake.store.endpoint, "bucket": lake.bucket, "insert": insert}
    return [(int(number), str(city)) for number, city in run_program(program, where)]


@pytest.mark.parametrize(("engine", "program"), [("polars", POLARS), ("daft", DAFT)])
def test_an_engine_on_pyiceberg_reads_and_appends(lake: S3Lake, engine: str, program: str) -> None:
    lake.cities(f"for_{engine}")

    assert run_on(lake, LOAD + program, f"for_{engine}.cities") == ADDED
    assert lake.rows(f"for_{engine}.cities") == ADDED


def test_clickhouse_reads_and_inserts(lake: S3Lake) -> None:
    lake.cities("for_clickhouse")

    assert run_on(lake, CLICKHOUSE, "for_clickhouse.cities") == ADDED[:2]
    assert run_on(lake, CLICKHOUSE, "for_clickhouse.cities", insert=True) == ADDED
    assert lake.rows("for_clickhouse.cities") == ADDED
