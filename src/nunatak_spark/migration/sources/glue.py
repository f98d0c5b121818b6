"""AWS Glue, listed through its API page by page; permissions come from Lake Formation."""

import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import InventoryTable, MigrationSource, SourceColumn, SourcePermission
from nunatak_spark.migration.source_files import MetadataDocument, StartSpark, files_digest, list_files
from nunatak_spark.migration.sources.folder import read_files
from nunatak_spark.migration.sources.metastore_tables import Declaration, describe_declared_table
from nunatak_spark.migration.sources.source_catalog import SparkSourceCatalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The parameter by which clients recognize Iceberg tables, and its value while a table is blocked.
TYPE, POINTER = "table_type", "metadata_location"
ICEBERG, BLOCKED = "ICEBERG", "ICEBERG_MOVED_BY_NUNATAK"
# The fields of a Table that TableInput accepts.
WRITABLE = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)


def glue_source(
    name: str, endpoint: str | None, region: str | None, catalog_id: str | None, more: Mapping[str, str]
) -> MigrationSource:
    given = {"glue.endpoint": endpoint, "client.region": region, "glue.id": catalog_id}
    properties = {"type": "glue", **{key: value for key, value in given.items() if value}, **more}
    address = endpoint or f"glue in {region or 'the default region'}"
    return MigrationSource(kind="glue", name=name, address=address, properties=properties)


class GlueSourceCatalog(SparkSourceCatalog):
    def __init__(self, source: MigrationSource, spark: StartSpark, secrets: Mapping[str, str]) -> None:
        super().__init__(source, spark, secrets)
        self._clients: dict[str, Any] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._connect(service)
        return self._clients[service]

    def _connect(self, service: str) -> Any:
        if importlib.util.find_spec("boto3") is None:
            raise CannotRun("A Glue source needs boto3, which is not installed", fix="pip install boto3")
        properties = self.source.properties
        return importlib.import_module("boto3").client(
            service, region_name=properties.get("client.region"), endpoint_url=properties.get("glue.endpoint")
        )

    def _catalog(self) -> dict[str, str]:
        known = self.source.properties.get("glue.id")
        return {"CatalogId": known} if known else {}

    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        glue = self._client("glue")
        granted = self._permissions()
        for page in glue.get_paginator("get_databases").paginate(**self._catalog()):
            for database in page["DatabaseList"]:
                name = database["Name"]
                pages = glue.get_paginator("get_tables").paginate(DatabaseName=name, **self._catalog())
                for tables in pages:  # not search_tables, which silently ends after 10,000
                    for table in tables["TableList"]:
                        found = self._inventory_table(name, table)
                        permissions = (*granted.get((name, ""), ()), *granted.get((name, table["Name"]), ()))
                        yield msgspec.structs.replace(found, permissions=permissions), None

    def _inventory_table(self, database: str, table: Mapping[str, Any]) -> InventoryTable:
        properties = table.get("Parameters") or {}
        storage = table.get("StorageDescriptor") or {}
        found = InventoryTable(
            source=self.source.name,
            name=(database, table["Name"]),
            kind="iceberg",
            location=storage.get("Location") or "",
            owner=table.get("Owner") or "",
        )
        if "VIEW" in (table.get("TableType") or ""):
            return msgspec.structs.replace(found, kind="view", properties={"sql": table.get("ViewOriginalText") or ""})
        if properties.get(TYPE, "").upper() in {ICEBERG, BLOCKED}:
            return msgspec.structs.replace(found, pointer=properties.get(POINTER, ""))
        return self._describe(found, table)

    def _describe(self, found: InventoryTable, table: Mapping[str, Any]) -> InventoryTable:
        storage, keys = table.get("StorageDescriptor") or {}, table.get("PartitionKeys") or ()
        serde = storage.get("SerdeInfo") or {}
        said = Declaration(
            storage.get("Location") or "",
            serde.get("SerializationLibrary") or "",
            serde.get("Parameters") or {},
            _columns(storage.get("Columns") or ()),
            _columns(keys),
            list(self._partition_locations(found.name)) if keys else [],
            table.get("Parameters") or {},
        )
        return describe_declared_table(self.spark, found, said)

    def _partition_locations(self, name: tuple[str, ...]) -> Iterator[str]:
        pages = self._client("glue").get_paginator("get_partitions")
        for page in pages.paginate(DatabaseName=name[0], TableName=name[1], **self._catalog()):
            for partition in page["Partitions"]:
                yield partition["StorageDescriptor"]["Location"]

    def _permissions(self) -> dict[tuple[str, str], list[SourcePermission]]:
        """Returns Lake Formation's grants by database and table; empty if we may not list them."""
        granted: dict[tuple[str, str], list[SourcePermission]] = {}
        failures = importlib.import_module("botocore.exceptions")
        try:
            client = self._client("lakeformation")
            token: dict[str, str] = {}
            while True:
                page = client.list_permissions(**token)
                for one in page.get("PrincipalResourcePermissions", ()):
                    _add_permissions(granted, one)
                if not page.get("NextToken"):
                    return granted
                token = {"NextToken": page["NextToken"]}
        except (failures.ClientError, failures.BotoCoreError):
            return granted

    def namespace_properties(self, namespace: tuple[str, ...]) -> dict[str, str]:
        database = self._client("glue").get_database(Name=namespace[0], **self._catalog())["Database"]
        known = {"comment": database.get("Description"), "location": database.get("LocationUri")}
        return {**(database.get("Parameters") or {}), **{key: value for key, value in known.items() if value}}

    def find_pointer(self, found: InventoryTable, name: tuple[str, ...]) -> str:
        if found.kind == "iceberg":
            return str(self._parameters(name).get(POINTER, ""))
        table = self._find(name)
        return "" if table is None else files_digest(list_files(self.spark, table["StorageDescriptor"]["Location"]))

    def reload(self, found: InventoryTable, name: tuple[str, ...]) -> InventoryTable:
        table = self._find(name)
        return found if table is None or found.kind == "iceberg" else self._describe(found, table)

    def rows(self, found: InventoryTable, name: tuple[str, ...]) -> "DataFrame":
        return super().rows(found, name) if found.kind == "iceberg" else read_files(self.spark(), found)

    def freeze_method(self, found: InventoryTable) -> tuple[str, str]:
        """Does not rename: Glue renames in two steps, and a commit between them would be lost."""
        if found.kind != "iceberg":
            return "", "Glue cannot prevent writes to files: stop the writers yourself"
        return "blocked", f"{TYPE} is {BLOCKED} there, so that Iceberg's clients do not take it for theirs"

    def block(self, found: InventoryTable, pointer: str) -> bool:
        """Uses Glue's table versions: of our change and a concurrent commit only one succeeds."""
        if self.is_blocked(found, pointer):
            return True
        return self._parameters(found.name).get(POINTER) == pointer and self._set_type(found, BLOCKED)

    def is_blocked(self, found: InventoryTable, pointer: str) -> bool:
        parameters = self._parameters(found.name)
        return parameters.get(TYPE) == BLOCKED and parameters.get(POINTER) == pointer

    def unblock(self, found: InventoryTable, pointer: str) -> None:
        if self._parameters(found.name).get(TYPE) == BLOCKED:
            self._set_type(found, ICEBERG)

    def _parameters(self, name: tuple[str, ...]) -> dict[str, str]:
        table = self._find(name)
        return {} if table is None else table.get("Parameters") or {}

    def _find(self, name: tuple[str, ...]) -> dict[str, Any] | None:
        glue = self._client("glue")
        try:
            table: dict[str, Any] = glue.get_table(DatabaseName=name[0], Name=name[1], **self._catalog())["Table"]
        except glue.exceptions.EntityNotFoundException:
            return None
        return table

    def _set_type(self, found: InventoryTable, kind: str) -> bool:
        glue, table = self._client("glue"), self._find(found.name)
        if table is None:
            return False
        changed = {key: value for key, value in table.items() if key in WRITABLE}
        changed["Parameters"] = {**table["Parameters"], TYPE: kind}
        version = {"VersionId": table["VersionId"]} if "VersionId" in table else {}
        try:
            glue.update_table(DatabaseName=found.name[0], TableInput=changed, **version, **self._catalog())
        except glue.exceptions.ConcurrentModificationException:
            return False
        return True


def _columns(columns: Iterable[Mapping[str, Any]]) -> list[SourceColumn]:
    return [SourceColumn(one["Name"], one.get("Type", "")) for one in columns]


def _add_permissions(granted: dict[tuple[str, str], list[SourcePermission]], one: Mapping[str, Any]) -> None:
    resource = one.get("Resource") or {}
    table = resource.get("Table") or resource.get("TableWithColumns")
    if table:
        place = (table.get("DatabaseName", ""), table.get("Name", ""))
    elif resource.get("Database"):
        place = (resource["Database"].get("Name", ""), "")
    else:
        return
    principal = one.get("Principal", {}).get("DataLakePrincipalIdentifier", "")
    granted.setdefault(place, []).extend(
        SourcePermission(principal, each, "iam") for each in one.get("Permissions", ())
    )
