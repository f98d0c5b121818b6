"""Settings of a Spark session that hold for a piece of work, and are put back afterwards."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def temporary_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """The session's own settings come back afterwards, also after an error.

    Settings belong to the whole session. Threads that share one may each enter this only if a caller of all of them
    holds the same settings for as long: else the first that leaves takes them away from the others.
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
