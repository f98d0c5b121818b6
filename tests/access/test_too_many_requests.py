"""S7: whoever asks too often is told when to come back, and what was refused has had no effect (MISSION 002-51)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.wire import a_table, path_of
from tests.support.catalogs.local import LocalCatalog

REQUESTS = int(os.environ.get("NUNATAK_TEST_RATE_REQUESTS", "500"))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    limits = {"NUNATAK_RATE_LIMIT": "20", "NUNATAK_ADDRESS_RATE_LIMIT": "0"}
    secured = LocalCatalog(tmp_path / "data", limits, auth=True)
    secured.principal("ann", default="ADMIN")
    secured.namespace("ns")
    yield secured
    secured.close()


def test_a_refused_request_says_when_to_come_back_and_did_nothing(catalog: LocalCatalog) -> None:
    """MISSION: 002-49"""
    created, refused = 0, 0
    for number in range(REQUESTS):
        answer = catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table(f"t{number}"))
        if answer.status == 200:
            created += 1
            continue
        refused += 1
        assert answer.error[:2] == (429, "TooManyRequestsException")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["x-ratelimit-limit"] == "20"
        assert answer.headers["x-ratelimit-remaining"] == "0"
        assert int(answer.headers["x-ratelimit-reset"]) > 1_700_000_000

    assert created >= 40  # twice the limit at once, and what came back meanwhile
    assert refused > 0
    assert len(catalog.rows("SELECT 1 FROM iceberg_tables")) == created
    assert len(catalog.rows("SELECT 1 FROM nunatak_commits")) == created
    print(f"{REQUESTS} requests: {created} carried out, {refused} refused, 0 effects of these")


def test_others_are_not_held_up(catalog: LocalCatalog) -> None:
    statuses = {catalog.call_as("ann", "GET", "/v1/namespaces").status for _ in range(REQUESTS)}

    assert statuses == {200, 429}
    assert catalog.call("GET", "/v1/namespaces").status == 200


def test_a_stranger_is_limited_by_address(tmp_path: Path) -> None:
    limits = {"NUNATAK_RATE_LIMIT": "0", "NUNATAK_ADDRESS_RATE_LIMIT": "5"}
    catalog = LocalCatalog(tmp_path / "data", limits, auth=True)
    try:
        statuses = [catalog.run(catalog.request("GET", "/v1/namespaces")).status for _ in range(50)]
    finally:
        catalog.close()

    assert set(statuses) == {401, 429}
    assert statuses[:10] == [401] * 10
