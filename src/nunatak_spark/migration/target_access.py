"""Access to the target and its files for engines other than Spark, with the login of the session's catalog."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nunatak.client import Client, ClientCredential
from nunatak_spark.configuration import CATALOG
from nunatak_spark.migration.model import TablePair
from nunatak_spark.migration.optional_packages import load_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# REST catalog settings with the same meaning in Spark and PyIceberg.
SHARED = ("uri", "warehouse", "token", "credential", "oauth2-server-uri", "scope", "prefix")
STORAGE = ("s3.", "client.", "gcs.", "adls.")
VENDED = {"X-Iceberg-Access-Delegation": "vended-credentials"}


def login_settings(spark: "SparkSession", catalog: str) -> dict[str, str]:
    """Returns address and login of the session's catalog."""
    found = {name: spark.conf.get(f"{CATALOG}{catalog}.{name}", None) for name in SHARED}
    return {name: value for name, value in found.items() if value}


@contextlib.contextmanager
def rest_catalog(pair: TablePair) -> Iterator[Any]:
    """Opens the target as a PyIceberg catalog."""
    module = load_module("pyiceberg.catalog.rest", "reading the target without Spark")
    with contextlib.closing(module.RestCatalog(pair.catalog, **login_settings(pair.spark, pair.catalog))) as catalog:
        yield catalog


def file_access(pair: TablePair) -> list[tuple[str, dict[str, str]]]:
    """Returns file access settings by prefix, as the target gives them to its clients; longest prefix first.

    Does not use PyIceberg's catalog, which refuses tables with types that it does not know.
    """
    login = login_settings(pair.spark, pair.catalog)
    client_id, _, secret = login.get("credential", "").partition(":")
    with Client(
        login["uri"],
        warehouse=login.get("warehouse"),
        token=login.get("token"),
        credential=ClientCredential(client_id, secret) if secret else None,
        headers=VENDED,
    ) as client:
        config, table = client.load_config(), client.load_table(pair.planned.target)
    base = {
        **_storage_settings(pair.spark, pair.catalog),
        **config.get("defaults", {}),
        **config.get("overrides", {}),
        **table.get("config", {}),
    }
    vended = [(str(one["prefix"]), {**base, **one["config"]}) for one in table.get("storage-credentials") or []]
    return sorted([("", base), *vended], key=lambda access: -len(access[0]))


def _storage_settings(spark: "SparkSession", catalog: str) -> dict[str, str]:
    """Returns the storage settings of the session's catalog, used where the target returns none."""
    prefix = f"{CATALOG}{catalog}."
    settings: dict[str, str] = getattr(spark.conf, "getAll", {})
    return {
        key.removeprefix(prefix): value
        for key, value in settings.items()
        if key.startswith(prefix) and key.removeprefix(prefix).startswith(STORAGE)
    }
