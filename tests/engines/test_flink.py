"""Flink, as its users run it: a REST catalog in a local session of PyFlink."""

import httpx
import pytest

from tests.support.catalogs.process import RunningServer
from tests.support.engines.flink import FlinkFailed, run_flink
from tests.support.spark import Installation
from tests.support.tool_cache import INSTALL_SECONDS, ToolMissing

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS)]


def test_flink_sees_and_makes_databases(shared_server: RunningServer, spark_installation: Installation) -> None:
    httpx.post(f"{shared_server.uri}/v1/namespaces", json={"namespace": ["seen_by_flink"]}).raise_for_status()
    statements = ["CREATE DATABASE made_by_flink", "SHOW DATABASES"]
    try:
        _, shown = run_flink(spark_installation.java_home, {"uri": shared_server.uri}, statements)
    except ToolMissing as reason:
        pytest.skip(str(reason))

    assert {"seen_by_flink", "made_by_flink"} <= {name for (name,) in shown}
    assert httpx.head(f"{shared_server.uri}/v1/namespaces/made_by_flink").status_code == 204


def test_flink_reports_what_the_catalog_refuses(shared_server: RunningServer, spark_installation: Installation) -> None:
    with pytest.raises(FlinkFailed, match=r"does not exist|not found"):
        run_flink(spark_installation.java_home, {"uri": shared_server.uri}, ["SELECT * FROM nowhere.t"])
