"""A Hive metastore: Iceberg tables, and Hive's own tables, which are folders of files with declared columns."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from nunatak_spark.migration.metastore import HiveTable, Metastore
from nunatak_spark.migration.model import InventoryTable, MigrationSource
from nunatak_spark.migration.risks import MANAGED, TABLE_TYPE
from nunatak_spark.migration.source_files import MetadataDocument, StartSpark, files_digest, list_files
from nunatak_spark.migration.sources.folder import read_files
from nunatak_spark.migration.sources.metastore_tables import Declaration, describe_declared_table
from nunatak_spark.migration.sources.source_catalog import SparkSourceCatalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hive_source(name: str, address: str, more: Mapping[str, str]) -> MigrationSource:
    return MigrationSource(kind="hive", name=name, address=address, properties={"type": "hive", "uri": address, **more})


class HiveSourceCatalog(SparkSourceCatalog):
    def __init__(self, source: MigrationSource, spark: StartSpark, secrets: Mapping[str, str]) -> None:
        super().__init__(source, spark, {})  # the SASL password is no property of the Spark catalog
        self._login = secrets
        self._open = ExitStack()
        self._metastore: Metastore | None = None

    @property
    def metastore(self) -> Metastore:
        if self._metastore is None:
            self._metastore = self._open.enter_context(
                Metastore(self.source.address, self.source.properties, self._login)
            )
        return self._metastore

    def close(self) -> None:
        self._open.close()

    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        for database in self.metastore.databases():
            inherited = self.metastore.permissions(database)
            for table in self.metastore.tables(database):
                found = self._inventory_table(table)
                permissions = (*inherited, *self.metastore.permissions(database, table.name))
                yield msgspec.structs.replace(found, permissions=permissions), None

    def _inventory_table(self, table: HiveTable) -> InventoryTable:
        found = InventoryTable(
            source=self.source.name,
            name=(table.database, table.name),
            kind="iceberg",
            location=table.location,
            owner=table.owner,
            properties={TABLE_TYPE: table.table_type},
        )
        if "VIEW" in table.table_type:
            return msgspec.structs.replace(found, kind="view", properties={"sql": table.view_text})
        if is_iceberg(table):
            return msgspec.structs.replace(found, pointer=table.properties.get("metadata_location", ""))
        return self._describe(found, table)

    def _describe(self, found: InventoryTable, table: HiveTable) -> InventoryTable:
        named = table.database, table.name
        places = self.metastore.partition_locations(*named) if table.partition_keys else []
        said = Declaration(
            table.location,
            table.serde,
            table.serde_properties,
            table.columns,
            table.partition_keys,
            places,
            table.properties,
        )
        return describe_declared_table(self.spark, found, said)

    def namespace_properties(self, namespace: tuple[str, ...]) -> dict[str, str]:
        return self.metastore.database_properties(namespace[0])

    def find_pointer(self, found: InventoryTable, name: tuple[str, ...]) -> str:
        table = self.metastore.find_table(*name)
        if table is None:
            return ""
        if found.kind == "iceberg":
            return table.properties.get("metadata_location", "")
        return files_digest(list_files(self.spark, table.location))

    def reload(self, found: InventoryTable, name: tuple[str, ...]) -> InventoryTable:
        table = self.metastore.find_table(*name)
        return found if table is None or found.kind == "iceberg" else self._describe(found, table)

    def rows(self, found: InventoryTable, name: tuple[str, ...]) -> "DataFrame":
        return super().rows(found, name) if found.kind == "iceberg" else read_files(self.spark(), found)

    def freeze_method(self, found: InventoryTable) -> tuple[str, str]:
        if found.properties.get(TABLE_TYPE) == MANAGED:
            return "", "renaming a managed table would move its files: stop the writers yourself"
        return "renamed", "the table has another name in the metastore, under which it can still be read"

    def rename(self, found: InventoryTable, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        self.metastore.rename(old[0], old[1], new[1])


def is_iceberg(table: HiveTable) -> bool:
    return table.properties.get("table_type", "").upper() == "ICEBERG"
