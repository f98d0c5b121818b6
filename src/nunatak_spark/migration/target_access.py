"""How engines other than Spark reach the target and its files, by the same login as the session's own catalog."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nunatak.client import Client, Credential
from nunatak_spark.configuration import CATALOG
from nunatak_spark.migration.model import TablePair
from nunatak_spark.migration.optional_packages import load_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings of Iceberg's REST client that mean the same in Spark and in PyIceberg.
SHARED = ("uri", "warehouse", "token", "credential", "oauth2-server-uri", "scope", "prefix")
STORAGE = ("s3.", "client.", "gcs.", "adls.")
VENDED = {"X-Iceberg-Access-Delegation": "vended-credentials"}


def login_settings(spark: "SparkSession", catalog: str) -> dict[str, str]:
    """Where the session's catalog is and how it logs in."""
    found = {name: spark.conf.get(f"{CATALOG}{catalog}.{name}", None) for name in SHARED}
    return {name: value for name, value in found.items() if value}


@contextlib.contextmanager
def rest_catalog(pair: TablePair) -> Iterator[Any]:
    """PyIceberg's view of the target."""
    module = load_module("pyiceberg.catalog.rest", "reading the target without Spark")
    with contextlib.closing(module.RestCatalog(pair.catalog, **login_settings(pair.spark, pair.catalog))) as catalog:
        yield catalog


def file_access(pair: TablePair) -> list[tuple[str, dict[str, str]]]:
    """What opens files below each prefix as the target lets its clients do, the longest prefix first.

    Asked for without PyIceberg's catalog, which refuses a table with a type that it does not know.
    """
    login = login_settings(pair.spark, pair.catalog)
    client_id, _, secret = login.get("credential", "").partition(":")
    with Client(
        login["uri"],
        warehouse=login.get("warehouse"),
        token=login.get("token"),
        credential=Credential(client_id, secret) if secret else None,
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
    """What the session's catalog is told about storage: where the target hands out nothing, this is what counts."""
    prefix = f"{CATALOG}{catalog}."
    settings: dict[str, str] = getattr(spark.conf, "getAll", {})
    return {
        key.removeprefix(prefix): value
        for key, value in settings.items()
        if key.startswith(prefix) and key.removeprefix(prefix).startswith(STORAGE)
    }
