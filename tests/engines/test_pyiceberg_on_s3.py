"""PyIceberg on tables that lie on S3, with keys of its own: create, append, read, delete rows, expire, purge."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.support.catalogs.process import running_server
from tests.support.object_stores import REGION, S3Emulator

CITIES = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])
WAIT_SECONDS = 30  # for the purge; a bound against hanging, not a promise of speed


@pytest.fixture
def bucket(s3_store: S3Emulator) -> str:
    return s3_store.new_bucket()


@pytest.fixture
def catalog(tmp_path: Path, s3_store: S3Emulator, bucket: str) -> Iterator[RestCatalog]:
    """A server on S3 and a client with keys, wired by the location of the warehouse."""
    environment = s3_store.server_environment(f"s3://{bucket}/lake")
    keys = {
        "s3.endpoint": s3_store.endpoint,
        "s3.region": REGION,
        "s3.access-key-id": s3_store.access_key_id,
        "s3.secret-access-key": s3_store.secret_access_key,
    }
    with (
        running_server(tmp_path / "data", environment=environment) as server,
        closing(RestCatalog("lake", uri=server.uri, warehouse=f"s3://{bucket}/lake", **keys)) as opened,
    ):
        opened.create_namespace("ns")
        yield opened


def rows(*values: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "city": city} for number, city in values], CITIES)


def keys_in(store: S3Emulator, bucket: str) -> list[str]:
    with closing(store.client()) as s3:
        return [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]


def test_a_table_lives_on_s3_from_its_creation_to_its_purge(
    catalog: RestCatalog, s3_store: S3Emulator, bucket: str
) -> None:
    table = catalog.create_table("ns.cities", CITIES)
    assert table.location().startswith(f"s3://{bucket}/lake/ns/")

    table.append(rows((1, "Oslo"), (2, "Bergen")))
    first = table.metadata.current_snapshot_id
    table.append(rows((3, "Nuuk")))
    table.delete("id = 2")

    again = catalog.load_table("ns.cities")
    assert sorted(again.scan().to_arrow()["city"].to_pylist()) == ["Nuuk", "Oslo"]
    assert sorted(again.scan(snapshot_id=first).to_arrow()["city"].to_pylist()) == ["Bergen", "Oslo"]
    assert keys_in(s3_store, bucket)

    catalog.purge_table("ns.cities")
    until = time.monotonic() + WAIT_SECONDS
    while keys_in(s3_store, bucket) and time.monotonic() < until:
        time.sleep(0.1)
    assert keys_in(s3_store, bucket) == []
