"""Spark for Nunatak: configured sessions, table fingerprints and jobs.

Imports without pyspark; only a session needs it.
"""

from nunatak_spark.configuration import CatalogConfig
from nunatak_spark.errors import CannotRun
from nunatak_spark.spark_session import add_catalog, configure, session

__all__ = ["CannotRun", "CatalogConfig", "add_catalog", "configure", "session"]
