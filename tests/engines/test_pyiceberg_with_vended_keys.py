"""PyIceberg without any key of its own: what the server vends opens its table on S3, and no other."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.object_stores import S3Emulator

CITIES = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])


@dataclass(frozen=True)
class Lake:
    server: RunningServer
    catalog: RestCatalog
    bucket: str


@pytest.fixture
def lake(tmp_path: Path, s3_store: S3Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A server on S3 that vends; the client is given its address and nothing else, and finds no key elsewhere."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = s3_store.new_bucket()
    environment = {
        "NUNATAK_WAREHOUSE": f"s3://{bucket}/lake",
        "NUNATAK_STORAGE": json.dumps({"default": msgspec.to_builtins(s3_store.profile())}),
        "NUNATAK_STORAGE_SECRETS": json.dumps({"default": msgspec.to_builtins(s3_store.secret())}),
    }
    with (
        running_server(tmp_path / "data", environment=environment) as server,
        closing(RestCatalog("lake", uri=server.uri)) as catalog,
    ):
        catalog.create_namespace("ns")
        yield Lake(server, catalog, bucket)


def rows(*values: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "city": city} for number, city in values], CITIES)


def test_a_client_without_keys_creates_writes_and_reads(lake: Lake) -> None:
    table = lake.catalog.create_table("ns.cities", CITIES)
    table.append(rows((1, "Oslo"), (2, "Bergen")))
    table.delete("id = 2")

    again = lake.catalog.load_table("ns.cities")
    assert again.scan().to_arrow()["city"].to_pylist() == ["Oslo"]
    assert again.io.properties["s3.session-token"]


def test_a_table_made_in_a_transaction_gets_keys_before_its_commit(lake: Lake) -> None:
    with lake.catalog.create_table_transaction("ns.cities", CITIES) as transaction:
        transaction.append(rows((1, "Nuuk")))

    assert lake.catalog.load_table("ns.cities").scan().to_arrow().num_rows == 1


def test_the_keys_of_one_table_do_not_open_another(lake: Lake) -> None:
    mine, other = (lake.catalog.create_table(f"ns.{name}", CITIES) for name in ("t1", "t10"))
    mine.append(rows((1, "Oslo")))
    other.append(rows((2, "Bergen")))

    assert mine.io.new_input(mine.metadata_location).exists()
    with pytest.raises(Exception, match=r"(?i)access.?denied|forbidden"):
        mine.io.new_input(other.metadata_location).open().read()
    with (
        pytest.raises(Exception, match=r"(?i)access.?denied|forbidden"),
        mine.io.new_output(f"{other.location()}/data/intruder").create() as stream,
    ):
        stream.write(b"x")
    assert other.scan().to_arrow().num_rows == 1
