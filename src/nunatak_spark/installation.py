"""Finds the Spark installation of this machine and checks it: pyspark, SPARK_HOME, Java. Starts no JVM."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nunatak_spark.compatibility import SparkRelease, compatibility_matrix, minor_version
from nunatak_spark.errors import ConfigurationConflict, UnsupportedPyspark
from nunatak_spark.java import find_java

CONNECT_PACKAGES = ("grpc", "grpc_status", "pandas", "pyarrow", "google.rpc")
GATEWAY = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which starts the JVM before Python


@dataclass(frozen=True)
class Installation:
    """A Spark that can start; `java_home` is None if a JVM runs already."""

    spark: SparkRelease
    pyspark: str
    spark_home: Path
    java_home: Path | None


def find_installation(environment: Mapping[str, str]) -> Installation:
    """Returns the Spark installation of this machine; raises CannotRun with the reason if Spark cannot start."""
    pyspark = import_pyspark("pyspark")
    home = Path(environment.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    running = GATEWAY in environment or is_running()
    return check_installation(pyspark.__version__, home, environment, running=running)


def is_running() -> bool:
    """Returns whether this process has a Spark session already."""
    return import_pyspark("pyspark").SparkContext._active_spark_context is not None


def check_installation(
    pyspark: str, spark_home: Path, environment: Mapping[str, str], *, running: bool = False
) -> Installation:
    """Checks this pyspark version and Spark folder, and finds Java unless a JVM is `running`; raises CannotRun."""
    spark = compatibility_matrix().spark(pyspark)
    version, scala = spark_version_in(spark_home) or (pyspark, spark.scala)
    if minor_version(version) != spark.minor:
        raise ConfigurationConflict(
            f"pyspark is {pyspark}, but SPARK_HOME={spark_home} holds Spark {version}",
            fix=f"unset SPARK_HOME, or pip install 'pyspark=={version}'.",
        )
    if scala != spark.scala:
        raise ConfigurationConflict(
            f"{spark_home} holds Spark {version} for Scala {scala}; Iceberg's runtime is for Scala {spark.scala}",
            fix=f"Install the Spark {spark.minor} that is built for Scala {spark.scala}.",
        )
    java_home = None if running else find_java(spark, environment)
    return Installation(spark, pyspark, spark_home, java_home)


def installed_version() -> str | None:
    """Returns the version of the installed pyspark, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    return str(importlib.import_module("pyspark").__version__)


def import_pyspark(module: str) -> Any:
    """Imports a module of pyspark; raises UnsupportedPyspark if it is not installed.

    Modules call this instead of importing pyspark at the top, so that the command line works without it.
    """
    if importlib.util.find_spec("pyspark") is None:
        matrix = compatibility_matrix()
        raise UnsupportedPyspark(
            f"pyspark is not installed for {sys.executable}",
            fix=f"pip install 'nunatak[spark]', which brings pyspark {matrix.sparks[matrix.default].pyspark}.",
        )
    return importlib.import_module(module)


def require_connect() -> None:
    """Raises UnsupportedPyspark if a package is missing that a Spark Connect client needs beside pyspark."""
    missing = [name for name in CONNECT_PACKAGES if not _is_importable(name)]
    if missing:
        raise UnsupportedPyspark(
            f"Spark Connect needs Python packages that are missing: {', '.join(missing)}",
            fix="pip install 'pyspark[connect]' in the version that you have.",
        )


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def spark_version_in(home: Path) -> tuple[str, str] | None:
    """Returns version and Scala version of the Spark in this folder, from the name of its core jar."""
    for path in sorted((home / "jars").glob("spark-core_*.jar")):
        found = re.fullmatch(r"spark-core_([\d.]+)-(.+)\.jar", path.name)
        if found:
            return found.group(2), found.group(1)
    return None
