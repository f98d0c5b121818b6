"""Spark without a JVM."""

import pytest
from pyspark import SparkContext


@pytest.fixture(autouse=True)
def without_a_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here needs one, and one that another suite of this process has started must not be found."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
