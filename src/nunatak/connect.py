"""How each engine is wired to a catalog, as text to copy; nothing here talks to anybody."""

from collections.abc import Callable

SPARK_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"  # belongs to pyspark 4.1
SPARK_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
FLINK_RUNTIME = "org.apache.iceberg:iceberg-flink-runtime-2.0:1.10.0"


def wiring(engine: str, uri: str, warehouse: str | None = None) -> str:
    """What a user of `engine` pastes to reach the catalog at `uri`; `engine` is one of `ENGINES`."""
    return ENGINES[engine](uri.rstrip("/"), warehouse)


def spark_settings(uri: str, warehouse: str | None = None) -> dict[str, str]:
    """The Spark configuration that makes the catalog `lake` ours."""
    settings = {
        "spark.jars.packages": SPARK_RUNTIME,
        "spark.sql.extensions": SPARK_EXTENSIONS,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
    }
    if warehouse is not None:
        settings["spark.sql.catalog.lake.warehouse"] = warehouse
    return settings


def _pyiceberg(uri: str, warehouse: str | None) -> str:
    chosen = "" if warehouse is None else f", warehouse={warehouse!r}"
    return f"""\
from pyiceberg.catalog import load_catalog

catalog = load_catalog("lake", type="rest", uri="{uri}"{chosen})
print(catalog.list_namespaces())
"""


def _spark(uri: str, warehouse: str | None) -> str:
    settings = "\n".join(f'    .config("{name}", "{value}")' for name, value in spark_settings(uri, warehouse).items())
    return f"""\
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder
{settings}
    .getOrCreate()
)
spark.sql("SHOW NAMESPACES IN lake").show()
"""


def _duckdb(uri: str, warehouse: str | None) -> str:
    return f"""\
INSTALL iceberg;
LOAD iceberg;
ATTACH '{_sql(warehouse or "")}' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none');
SHOW ALL TABLES;
"""


def _trino(uri: str, warehouse: str | None) -> str:
    chosen = "" if warehouse is None else f"iceberg.rest-catalog.warehouse={warehouse}\n"
    return f"""\
# etc/catalog/lake.properties
connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri={uri}
{chosen}iceberg.rest-catalog.nested-namespace-enabled=true
iceberg.unique-table-location=true
"""


def _flink(uri: str, warehouse: str | None) -> str:
    chosen = "" if warehouse is None else f",\n  'warehouse' = '{_sql(warehouse)}'"
    return f"""\
-- needs {FLINK_RUNTIME} (or the runtime of your Flink) on the class path
CREATE CATALOG lake WITH (
  'type' = 'iceberg',
  'catalog-type' = 'rest',
  'uri' = '{uri}'{chosen}
);
USE CATALOG lake;
"""


def _clickhouse(uri: str, warehouse: str | None) -> str:
    return f"""\
-- ClickHouse lists a local (file:) warehouse but reads rows only from an object store.
SET allow_database_iceberg = 1;
CREATE DATABASE lake ENGINE = DataLakeCatalog('{uri}/v1')
  SETTINGS catalog_type = 'rest', warehouse = '{_sql(warehouse or "")}';
SHOW TABLES FROM lake;
"""


def _curl(uri: str, warehouse: str | None) -> str:
    chosen = "" if warehouse is None else f" --get --data-urlencode 'warehouse={warehouse}'"
    return f"""\
curl -s{chosen} {uri}/v1/config
curl -s {uri}/v1/namespaces
curl -s -X POST {uri}/v1/namespaces -H 'Content-Type: application/json' -d '{{"namespace": ["demo"]}}'
"""


def _sql(value: str) -> str:
    return value.replace("'", "''")


ENGINES: dict[str, Callable[[str, str | None], str]] = {
    "pyiceberg": _pyiceberg,
    "spark": _spark,
    "duckdb": _duckdb,
    "trino": _trino,
    "flink": _flink,
    "clickhouse": _clickhouse,
    "curl": _curl,
}
