"""Spark for Nunatak: ready sessions, fingerprints and jobs. Importable without pyspark, which a session then asks for."""

from nunatak_spark.configuration import Catalog
from nunatak_spark.errors import CannotRun
from nunatak_spark.sessions import add_catalog, configure, session

__all__ = ["CannotRun", "Catalog", "add_catalog", "configure", "session"]
