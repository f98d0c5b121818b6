"""Temporary settings of a Spark session."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def temporary_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Sets session settings for the block and restores the old values afterwards, also after an error.

    Settings belong to the whole session. Threads that share a session may each enter this only while a common caller
    holds the same settings: otherwise the first thread to leave resets them for the others.
    """
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
