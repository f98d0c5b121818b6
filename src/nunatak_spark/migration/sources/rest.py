"""Any Iceberg REST catalog, listed over HTTP page by page; a load returns metadata and pointer."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import msgspec

from nunatak.client import Client, ClientCredential, Json, ServerResponse, ServerUnreachable
from nunatak.errors import CatalogError, NotFound
from nunatak_spark.migration.model import InventoryTable, MigrationFinding, MigrationSource
from nunatak_spark.migration.source_files import MetadataDocument, StartSpark, read_document
from nunatak_spark.migration.sources.source_catalog import SparkSourceCatalog


def rest_source(
    name: str, uri: str, warehouse: str | None, headers: Mapping[str, str], more: Mapping[str, str]
) -> MigrationSource:
    properties = {"type": "rest", "uri": uri, **{f"header.{key}": value for key, value in headers.items()}, **more}
    if warehouse:
        properties["warehouse"] = warehouse
    return MigrationSource(kind="rest", name=name, address=uri, properties=properties)


class SourceClient(Client):
    """A client of the source, whose connection errors name the source instead of --uri."""

    def send(self, method: str, path: str, body: Json | None = None) -> ServerResponse:
        try:
            return super().send(method, path, body)
        except ServerUnreachable as error:
            raise ServerUnreachable(
                f"the source does not answer at {self.uri} ({error.__cause__}); start it, or take the inventory with "
                "another address after --rest"
            ) from error


class RestSourceCatalog(SparkSourceCatalog):
    """Connects on first use and keeps the connection."""

    def __init__(self, source: MigrationSource, spark: StartSpark, secrets: Mapping[str, str]) -> None:
        super().__init__(source, spark, secrets)
        self._open = ExitStack()
        self._client: Client | None = None

    def close(self) -> None:
        self._open.close()

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _connect(self) -> Client:
        first = self._client_of(self.source.address)
        config = first.load_config()
        # A server may redirect its clients by the `uri` setting, as servers with several catalogs do.
        elsewhere = {**config.get("defaults", {}), **config.get("overrides", {})}.get("uri")
        return self._client_of(str(elsewhere)) if elsewhere else first

    def _client_of(self, uri: str) -> Client:
        properties, prefix = self.source.properties, "header."
        token, credential = self.secrets.get("token"), self.secrets.get("credential")
        client_id, _, secret = (credential or "").partition(":")
        headers = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
        client = SourceClient(
            uri,
            warehouse=properties.get("warehouse"),
            token=token,
            credential=ClientCredential(client_id, secret) if credential else None,
            headers=headers,
        )
        return self._open.enter_context(client)

    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        for namespace in self.client.walk_namespaces():
            for name in self.client.list_tables(namespace):
                yield self._load(name)
            yield from self._views(namespace)

    def _load(self, name: tuple[str, ...]) -> tuple[InventoryTable, MetadataDocument | None]:
        found = InventoryTable(source=self.source.name, name=name, kind="iceberg")
        try:
            answer = self.client.load_table(name)
        except CatalogError as error:
            risk = MigrationFinding("unreadable", f"the source cannot load it: {error.message}")
            return msgspec.structs.replace(found, risks=(risk,)), None
        return msgspec.structs.replace(found, pointer=str(answer.get("metadata-location") or "")), _document(answer)

    def _views(self, namespace: tuple[str, ...]) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        try:
            names = list(self.client.list_views(namespace))
        except CatalogError:  # the catalog does not support views
            return
        for name in names:
            yield InventoryTable(source=self.source.name, name=name, kind="view"), None

    def namespace_properties(self, namespace: tuple[str, ...]) -> dict[str, str]:
        return dict(self.client.load_namespace(namespace).get("properties") or {})

    def find_pointer(self, found: InventoryTable, name: tuple[str, ...]) -> str:
        try:
            return str(self.client.load_table(name).get("metadata-location") or "")
        except NotFound:
            return ""

    def metadata_at(self, found: InventoryTable, name: tuple[str, ...], pointer: str) -> MetadataDocument | None:
        """Returns the metadata of the load; reads the file only if the catalog points elsewhere by now."""
        answer = self.client.load_table(name)
        return _document(answer) if answer.get("metadata-location") == pointer else read_document(self.spark, pointer)

    def rename(self, found: InventoryTable, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        self.client.rename_table(old, new)


def _document(answer: Json) -> MetadataDocument | None:
    content = answer.get("metadata")
    if not isinstance(content, dict):
        return None
    return MetadataDocument(content, len(msgspec.json.encode(content)))
