"""Polars and Daft read what PyIceberg wrote; chdb starts. Each in the environment of these engines."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.support.catalogs.process import RunningServer
from tests.support.engines.python_engines import EngineFailed, run_program
from tests.support.tool_cache import INSTALL_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS)]

LOAD = """
from pyiceberg.catalog.rest import RestCatalog
table = RestCatalog("lake", uri=arguments["uri"]).load_table(arguments["table"])
"""
POLARS = f"{LOAD}import polars\nresult = polars.scan_iceberg(table).sort('id').collect().rows()"
DAFT = f"{LOAD}import daft\nresult = daft.read_iceberg(table).sort('id').to_pylist()"
CHDB = "import chdb\nresult = json.loads(chdb.query('SELECT 1 AS one', 'JSON').bytes())['data']"


@pytest.fixture(scope="module")
def written(shared_server: RunningServer) -> dict[str, str]:
    """A table of two rows on local files."""
    rows = pa.table({"id": [1, 2], "city": ["Nuuk", "Ilulissat"]})
    catalog = RestCatalog("lake", uri=shared_server.uri)
    catalog.create_namespace("python_engines")
    catalog.create_table("python_engines.cities", rows.schema).append(rows)
    return {"uri": shared_server.uri, "table": "python_engines.cities"}


def test_polars_reads_what_pyiceberg_wrote(written: dict[str, str]) -> None:
    assert run_program(POLARS, written) == [[1, "Nuuk"], [2, "Ilulissat"]]


def test_daft_reads_what_pyiceberg_wrote(written: dict[str, str]) -> None:
    assert run_program(DAFT, written) == [{"id": 1, "city": "Nuuk"}, {"id": 2, "city": "Ilulissat"}]


def test_chdb_runs() -> None:
    assert run_program(CHDB, {}) == [{"one": 1}]


def test_a_program_that_fails_is_reported() -> None:
    with pytest.raises(EngineFailed, match="no such engine"):
        run_program("raise SystemExit('no such engine')", {})
