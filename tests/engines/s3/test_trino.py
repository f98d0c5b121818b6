"""Trino on S3 with vended credentials and no key of its own."""

from collections.abc import Iterator

import pytest

from tests.engines.s3.conftest import S3Lake
from tests.support.engines.trino import Trino, rest_catalog, running_trino
from tests.support.tool_cache import INSTALL_SECONDS, ToolMissing

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS)]


@pytest.fixture(scope="module")
def trino(lake: S3Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    properties = rest_catalog(lake.uri, lake.store.endpoint)
    try:
        with running_trino(tmp_path_factory.mktemp("trino"), {"lake": properties}) as started:
            yield started
    except ToolMissing as reason:
        pytest.skip(str(reason))


def test_trino_reads_what_pyiceberg_wrote_and_adds_to_it(lake: S3Lake, trino: Trino) -> None:
    first = lake.cities("for_trino").current_snapshot()
    assert first is not None
    trino.query("INSERT INTO lake.for_trino.cities VALUES (3, 'Qaanaaq')")

    now = trino.query("SELECT id, city FROM lake.for_trino.cities ORDER BY id")
    then = trino.query(f"SELECT id FROM lake.for_trino.cities FOR VERSION AS OF {first.snapshot_id} ORDER BY id")

    assert now == [[1, "Nuuk"], [2, "Ilulissat"], [3, "Qaanaaq"]]
    assert lake.rows("for_trino.cities")[2] == (3, "Qaanaaq")
    assert then == [[1], [2]]


def test_trino_makes_fills_and_drops_tables(lake: S3Lake, trino: Trino) -> None:
    trino.query("CREATE SCHEMA lake.by_trino")
    trino.query("CREATE TABLE lake.by_trino.cities (id bigint, city varchar)")
    trino.query("INSERT INTO lake.by_trino.cities VALUES (1, 'Nuuk'), (2, 'Ilulissat')")
    trino.query("CREATE TABLE lake.by_trino.selected AS SELECT * FROM lake.by_trino.cities WHERE id = 2")

    assert lake.rows("by_trino.cities") == [(1, "Nuuk"), (2, "Ilulissat")]
    assert lake.rows("by_trino.selected") == [(2, "Ilulissat")]
    # PyIceberg 0.12 cannot read the encoding of Trino's delete files, so Trino is asked.
    trino.query("DELETE FROM lake.by_trino.cities WHERE id = 2")
    assert trino.query("SELECT id FROM lake.by_trino.cities") == [[1]]
    trino.query("DROP TABLE lake.by_trino.cities")
    assert not lake.catalog.table_exists("by_trino.cities")
