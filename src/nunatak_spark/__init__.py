"""Spark for Nunatak: ready sessions, fingerprints and jobs; importable without pyspark, which only a session needs."""

from nunatak_spark.configuration import CatalogConfig
from nunatak_spark.errors import CannotRun
from nunatak_spark.spark_session import add_catalog, configure, session

__all__ = ["CannotRun", "CatalogConfig", "add_catalog", "configure", "session"]
