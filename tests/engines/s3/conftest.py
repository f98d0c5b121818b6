"""What engine tests on S3 share: a server whose warehouse lies on an enforcing store. No engine gets a key to it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.object_stores import S3Emulator, server_settings

CITIES = pa.table({"id": pa.array([1, 2], pa.int64()), "city": ["Nuuk", "Ilulissat"]})


@dataclass(frozen=True)
class S3Lake:
    """The server, the store and the bucket of its warehouse."""

    server: RunningServer
    store: S3Emulator
    bucket: str

    @property
    def uri(self) -> str:
        return self.server.uri

    @property
    def catalog(self) -> RestCatalog:
        return RestCatalog("lake", uri=self.uri)

    def cities(self, namespace: str) -> Table:
        """Returns a table of two rows that PyIceberg wrote."""
        self.catalog.create_namespace_if_not_exists(namespace)
        table = self.catalog.create_table(f"{namespace}.cities", CITIES.schema)
        table.append(CITIES)
        return table

    def rows(self, name: str) -> list[tuple[int, str]]:
        """Returns what PyIceberg reads of a table."""
        read = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return sorted((row["id"], row["city"]) for row in read)


@pytest.fixture(scope="session")
def lake(ministack_store: S3Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Lake]:
    bucket = ministack_store.new_bucket()
    location = ministack_store.location(bucket, "warehouse")
    environment = server_settings(ministack_store.profile(), ministack_store.secret(), location)
    with running_server(tmp_path_factory.mktemp("s3-lake") / "nunatak-data", environment=environment) as server:
        yield S3Lake(server, ministack_store, bucket)
