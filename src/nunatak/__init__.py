"""Nunatak: an Apache Iceberg REST catalog."""

__version__ = "0.1.0"
