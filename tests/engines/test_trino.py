"""Trino, as its users run it: a REST catalog in a properties file."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.catalogs.process import RunningServer
from tests.support.engines.trino import QueryFailed, Trino, rest_catalog, running_trino
from tests.support.tool_cache import INSTALL_SECONDS, ToolMissing

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS)]
NOWHERE = "http://127.0.0.1:9"  # nothing in this file reaches the store


@pytest.fixture(scope="module")
def trino(shared_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    try:
        with running_trino(tmp_path_factory.mktemp("trino"), {"lake": rest_catalog(shared_server.uri, NOWHERE)}) as one:
            yield one
    except ToolMissing as reason:
        pytest.skip(str(reason))


def test_trino_sees_and_makes_namespaces(trino: Trino, shared_server: RunningServer) -> None:
    httpx.post(f"{shared_server.uri}/v1/namespaces", json={"namespace": ["seen_by_trino"]}).raise_for_status()
    trino.query("CREATE SCHEMA lake.made_by_trino")

    schemas = {name for (name,) in trino.query("SHOW SCHEMAS FROM lake")}
    made = httpx.head(f"{shared_server.uri}/v1/namespaces/made_by_trino")

    assert {"seen_by_trino", "made_by_trino"} <= schemas
    assert made.status_code == 204


def test_trino_reports_what_the_catalog_refuses(trino: Trino) -> None:
    with pytest.raises(QueryFailed, match=r"does not exist"):
        trino.query("SELECT * FROM lake.nowhere.t")
