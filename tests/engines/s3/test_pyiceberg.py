"""PyIceberg on S3 with vended credentials and no key of its own."""

import pyarrow as pa
import pytest

from tests.engines.s3.conftest import CITIES, S3Lake


def test_pyiceberg_writes_reads_and_travels_in_time(lake: S3Lake) -> None:
    table = lake.cities("by_pyiceberg")
    first = table.current_snapshot()
    table.append(pa.table({"id": pa.array([3], pa.int64()), "city": ["Qaanaaq"]}))

    assert lake.rows("by_pyiceberg.cities") == [(1, "Nuuk"), (2, "Ilulissat"), (3, "Qaanaaq")]
    assert first is not None
    then = lake.catalog.load_table("by_pyiceberg.cities").scan(snapshot_id=first.snapshot_id).to_arrow()
    assert then.num_rows == 2


def test_pyiceberg_has_the_keys_of_its_table_only(lake: S3Lake) -> None:
    lake.catalog.create_namespace("neighbours")
    own = lake.catalog.create_table("neighbours.own", CITIES.schema)
    other = lake.catalog.create_table("neighbours.other", CITIES.schema)

    assert own.io.properties["s3.access-key-id"] != lake.store.access_key_id
    with pytest.raises(OSError, match=r"(?i)access.denied|forbidden|403"):
        own.io.new_input(other.metadata_location).open().read()
