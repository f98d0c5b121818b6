"""Health of tables that PyIceberg wrote: what totals estimate and manifests count is what lies on the disk."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from nunatak.client import Client
from tests.support.catalogs.process import RunningServer

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
BY_DAY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))
APPENDS = 6


@pytest.fixture
def catalog(shared_server: RunningServer) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=shared_server.uri)) as opened:
        yield opened


@pytest.fixture
def events(catalog: RestCatalog) -> Table:
    """Six commits, each with one file for Monday; the last also with one for Tuesday."""
    namespace = f"health_{uuid.uuid4().hex[:12]}"
    catalog.create_namespace(namespace)
    table: Table = catalog.create_table(f"{namespace}.events", SCHEMA, partition_spec=BY_DAY)
    for number in range(APPENDS):
        days = ["mon", "tue"] if number == APPENDS - 1 else ["mon"]
        table.append(pa.table({"id": [number] * len(days), "day": days}))
    return table


def health(server: RunningServer, table: Table, *, deep: bool) -> Any:
    securable = "table:default/" + "/".join(table.name())
    with Client(server.uri) as client:
        query = {"securable": securable, "deep": str(deep).lower()}
        (found,) = client.manage("GET", ("health",), query=query)["tables"]
    return found


def files_of(table: Table) -> list[Path]:
    paths: list[str] = table.inspect.data_files()["file_path"].to_pylist()
    return [Path(urlsplit(path).path) for path in paths]


@pytest.mark.parametrize("deep", [False, True])
def test_files_and_bytes_are_those_on_the_disk(shared_server: RunningServer, events: Table, deep: bool) -> None:
    found = health(shared_server, events, deep=deep)

    files = files_of(events)
    assert found["facts"]["data-files"] == len(files) == APPENDS + 1
    assert found["facts"]["data-bytes"] == sum(file.stat().st_size for file in files)
    assert found["facts"]["snapshots"] == APPENDS


def test_deep_finds_what_a_rewrite_could_join(shared_server: RunningServer, events: Table) -> None:
    found = health(shared_server, events, deep=True)

    small = next(each for each in found["checks"] if each["check"] == "small-files")
    assert found["facts"]["partitions"] == 2
    assert found["facts"]["manifests"] == events.inspect.manifests().num_rows
    assert small["reason"].startswith(f"{APPENDS} of {APPENDS + 1} data files")
    assert small["reason"].endswith(f"a rewrite saves {APPENDS - 1}")
    assert small["fix"] == f"nunatak maintain compact {'.'.join(events.name())}"


def test_deep_counts_no_file_that_was_deleted(shared_server: RunningServer, events: Table) -> None:
    events.delete("day == 'mon'")

    found = health(shared_server, events, deep=True)

    assert found["facts"]["data-files"] == len(files_of(events)) == 1
    assert found["facts"]["partitions"] == 1
