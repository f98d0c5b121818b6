"""What the tests of deletions share: tables whose folders they look into."""

from collections.abc import Callable, Iterator

import pytest

from nunatak.client import Client
from tests.spark.orphans.folder import Folder
from tests.support.catalogs.process import RunningServer
from tests.support.spark import Sql

MakeTable = Callable[..., Folder]


@pytest.fixture
def client(shared_server: RunningServer) -> Iterator[Client]:
    with Client(shared_server.uri) as connected:
        yield connected


@pytest.fixture
def make_table(sql: Sql, client: Client) -> MakeTable:
    """A table with a hundred rows in two files, and whatever else CREATE TABLE is told."""

    def make(name: str = "t", clauses: str = "") -> Folder:
        sql(f"CREATE TABLE {name} (id BIGINT, word STRING) USING iceberg {clauses}")
        sql(f"INSERT INTO {name} SELECT id, 'w' || id FROM range(0, 100, 1, 2)")
        return Folder(sql, client, name)

    return make
