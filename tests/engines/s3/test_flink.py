"""Flink on S3 with vended credentials and no key of its own."""

import pytest

from tests.engines.s3.conftest import S3Lake
from tests.support.engines.flink import run_flink
from tests.support.spark import Installation
from tests.support.tool_cache import INSTALL_SECONDS, ToolMissing

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS)]


def test_flink_makes_fills_and_reads_tables(lake: S3Lake, spark_installation: Installation) -> None:
    lake.cities("for_flink")
    statements = [
        "CREATE DATABASE by_flink",
        "CREATE TABLE by_flink.cities (id BIGINT, city STRING)",
        "INSERT INTO by_flink.cities VALUES (1, 'Nuuk'), (2, 'Ilulissat')",
        "INSERT INTO for_flink.cities SELECT id + 2, city FROM by_flink.cities WHERE id = 1",
        "SELECT id, city FROM for_flink.cities ORDER BY id",
    ]
    try:
        *_, shown = run_flink(spark_installation.java_home, {"uri": lake.uri}, statements)
    except ToolMissing as reason:
        pytest.skip(str(reason))

    assert shown == [[1, "Nuuk"], [2, "Ilulissat"], [3, "Nuuk"]]
    assert lake.rows("by_flink.cities") == [(1, "Nuuk"), (2, "Ilulissat")]
    assert lake.rows("for_flink.cities")[2] == (3, "Nuuk")
