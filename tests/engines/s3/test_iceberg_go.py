"""iceberg-go on S3 with vended credentials and no key of its own."""

import pytest

from tests.engines.s3.conftest import S3Lake
from tests.support.engines.iceberg_go import read_and_append
from tests.support.tool_cache import INSTALL_SECONDS, ToolMissing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS)]


def test_iceberg_go_reads_and_appends(lake: S3Lake) -> None:
    lake.cities("for_go")
    try:
        rows = read_and_append(lake.uri, "for_go.cities", (3, "Qaanaaq"))
    except ToolMissing as reason:
        pytest.skip(str(reason))

    assert sorted(rows["before"]) == [[1, "Nuuk"], [2, "Ilulissat"]]
    assert sorted(rows["after"])[2] == [3, "Qaanaaq"]
    assert lake.rows("for_go.cities") == [(1, "Nuuk"), (2, "Ilulissat"), (3, "Qaanaaq")]
