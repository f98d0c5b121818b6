"""A JDBC catalog, also PyIceberg's SqlCatalog: database rows, read through Spark's JDBC reader."""

from collections.abc import Iterator, Mapping
from typing import Any

from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.migration.model import InventoryTable, MigrationSource, TableKind
from nunatak_spark.migration.source_files import MetadataDocument, StartSpark
from nunatak_spark.migration.sources.source_catalog import SparkSourceCatalog, source_secrets

DRIVERS = {
    "sqlite": "org.sqlite.JDBC",
    "postgresql": "org.postgresql.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
}
NOWHERE = "file:/nowhere"  # required by Iceberg; no table is created there


def jdbc_source(name: str, uri: str, user: str | None, more: Mapping[str, str]) -> MigrationSource:
    """Returns the source. `name` must be the catalog's own name, which is part of every row."""
    address = uri if uri.startswith("jdbc:") else f"jdbc:{uri}"
    properties = {
        "type": "jdbc",
        "uri": address,
        "jdbc.schema-version": "V1",
        "warehouse": NOWHERE,
        **more,
    }
    if user:
        properties["jdbc.user"] = user
    return MigrationSource(kind="jdbc", name=name, address=address, properties=properties)


class JdbcSourceCatalog(SparkSourceCatalog):
    _has_properties: bool | None = None

    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        for row in self.all_rows(f"catalog_name = {self._text(self.source.name)}"):
            namespace = tuple(row["table_namespace"].split("."))
            kind: TableKind = "view" if str(row.get("iceberg_type") or "").upper() == "VIEW" else "iceberg"
            pointer = str(row["metadata_location"] or "")
            name = (*namespace, str(row["table_name"]))
            yield InventoryTable(source=self.source.name, name=name, kind=kind, pointer=pointer), None

    def find_pointer(self, found: InventoryTable, name: tuple[str, ...]) -> str:
        where = (
            f"catalog_name = {self._text(self.source.name)} "
            f"AND table_namespace = {self._text('.'.join(name[:-1]))} AND table_name = {self._text(name[-1])}"
        )
        rows = self.all_rows(where)
        return str(rows[0]["metadata_location"] or "") if rows else ""

    @property
    def _kind(self) -> str:
        return self.source.address.split(":")[1]

    def _text(self, value: str) -> str:
        return database_literal(self._kind, value)

    def namespace_properties(self, namespace: tuple[str, ...]) -> dict[str, str]:
        """Returns the properties; empty for databases without the properties table, which Iceberg added later."""
        if self._has_properties is None:
            self._has_properties = self._finds_properties()
        if not self._has_properties:
            return {}
        where = f"catalog_name = {self._text(self.source.name)} AND namespace = {self._text('.'.join(namespace))}"
        rows = self.all_rows(where, "iceberg_namespace_properties")
        # `exists` only marks that the namespace exists.
        pairs = {str(row["property_key"]): str(row["property_value"] or "") for row in rows}
        return {key: value for key, value in pairs.items() if key != "exists"}

    def _finds_properties(self) -> bool:
        try:
            self.all_rows("1 = 0", "iceberg_namespace_properties")
        except CannotRun:
            self.all_rows("1 = 0")  # raises if the database itself does not answer
            return False
        return True

    def all_rows(self, where: str, table: str = "iceberg_tables") -> list[dict[str, Any]]:
        address, kind = self.source.address, self._kind
        options = {"url": address, "query": f"SELECT * FROM {table} WHERE {where}"}
        if kind in DRIVERS:
            options["driver"] = DRIVERS[kind]
        for key in ("user", "password"):
            value = {**self.source.properties, **self.secrets}.get(f"jdbc.{key}")
            options |= {key: value} if value else {}
        session = self.spark()  # outside of the try: a Spark that cannot start is not the address's fault
        try:
            # One row per table of the catalog, which a migration lists anyway.
            found = session.read.format("jdbc").options(**options).load().collect()
        except Exception as error:
            raise CannotRun(
                f"{address} cannot be read: {failure_reason(error)}",
                fix="Look at the address; the driver's jar belongs into NUNATAK_SPARK_JARS.",
            ) from error
        return [row.asDict() for row in found]


def jdbc_catalogs(source: MigrationSource, spark: StartSpark, environment: Mapping[str, str]) -> list[str]:
    """Returns the names of the catalogs in the database."""
    secrets = source_secrets(source, environment)
    return sorted({str(row["catalog_name"]) for row in JdbcSourceCatalog(source, spark, secrets).all_rows("1 = 1")})


def database_literal(kind: str, value: str) -> str:
    """Returns a string literal for the source's database; table names in it may contain anything.

    A backslash before a quote escapes it in MySQL, MariaDB, and PostgreSQL with old settings.
    """
    doubled = value.replace("'", "''")
    if kind in ("mysql", "mariadb"):
        return "'" + doubled.replace("\\", "\\\\") + "'"
    if kind == "postgresql":
        return "E'" + doubled.replace("\\", "\\\\") + "'"
    return f"'{doubled}'"
