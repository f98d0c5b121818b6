"""Refuses tables with properties whose values Spark, Iceberg or Hadoop would load as Java classes.

Everybody who may commit to a table can set its properties, and the job runs with the worker's rights. Iceberg loads the
class in `write.location-provider.impl`, and copies all table properties into the Hadoop configuration with which it
writes Parquet and ORC, so the properties of Hadoop and Parquet count too, such as `parquet.crypto.factory.class`.
Hadoop also substitutes `${env.X}` in configuration values, and an error message would reveal the result.
"""

import re
from collections.abc import Mapping
from typing import Any

from nunatak_spark.maintenance.job_context import JobRefused

# Iceberg 1.12: catalog-impl, io-impl, lock-impl, metrics-reporter-impl, encryption.kms-impl, client.factory,
# write.location-provider.impl, s3.client-factory-impl, rest.client.tls.configurer-impl, client.credentials-provider,
# adls.token-credential-provider. Parquet and Hadoop: names that end with class or impl, and two lists.
NAMES = re.compile(
    r"(?:^|[.\-_])impl(?:$|\.)|\.class(?:$|[.\-_]?names?$)|(?:^|[.\-_])factory(?:$|[.\-_]class$)"
    r"|(?:^|[.\-_])(?:credentials?|token)[.\-_]providers?$|^io\.(?:compression\.codecs|serializations)$",
    re.IGNORECASE,
)
OF_A_COLUMN = re.compile(r"^write\.[a-z.\-]*\.column\.")  # settings of one column, which may have any name
# Properties with these prefixes are read by Iceberg or, as configuration, by Hadoop.
READ = re.compile(
    r"^(?:adls|aws|client|dfs|encryption|fs|gcs|glue|hadoop|hive|io|ipc|javax?|jdbc|mapred(?:uce)?|metrics|net|oauth2|orc"
    r"|parquet|read|rest|rpc|s3|security|spark|write|yarn)[.\-]",
    re.IGNORECASE,
)
CLASS = re.compile(r"\s*(?:[A-Za-z_$][\w$]*\.){2,}[A-Z_$][\w$]*\s*(?:,.*)?", re.DOTALL)
ICEBERG = re.compile(r"org\.apache\.iceberg\.[\w.$]+")


def names_class(key: str, value: object) -> bool:
    """Returns whether the value would be loaded as a class."""
    is_class = CLASS.fullmatch(str(value)) is not None
    if OF_A_COLUMN.match(key) and not is_class:
        return False
    return NAMES.search(key) is not None or (is_class and READ.match(key) is not None)


def refuse_class_names(table: str, loaded: Mapping[str, Any]) -> None:
    """Raises JobRefused if a table property, or a setting that the catalog sends with the table, names a class.

    Settings of the catalog may name classes of Iceberg itself, such as its S3FileIO.
    """
    properties = loaded["metadata"].get("properties") or {}
    variables = sorted(key for key, value in properties.items() if "${" in str(value) and "." in key)
    if variables:
        raise JobRefused(
            f"{table} has the property {', '.join(key[:100] for key in variables[:3])} with a variable in it, which "
            "Hadoop would replace with what the worker's environment holds. Write the value without ${."
        )
    found = sorted(key for key, value in properties.items() if names_class(key, value))
    if found:
        raise JobRefused(
            f"{table} has the property {', '.join(key[:100] for key in found[:3])}, which names a Java class to load. "
            "The worker runs no code that a table names: remove the property, or maintain the table with a Spark of "
            "your own."
        )
    refuse_catalog_classes(loaded.get("config") or {})


def refuse_catalog_classes(config: Mapping[str, Any]) -> None:
    """Raises JobRefused if the catalog tells its clients to load a class that is not Iceberg's."""
    found = sorted(
        key for key, value in config.items() if names_class(key, value) and not ICEBERG.fullmatch(str(value).strip())
    )
    if found:
        raise JobRefused(
            f"The catalog's configuration names a Java class to load: {', '.join(key[:100] for key in found[:3])}"
        )
