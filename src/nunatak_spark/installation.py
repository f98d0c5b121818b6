"""Which Spark would start on this machine, and whether it can: pyspark, Spark's own folder, Java. No JVM is started."""

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
GATEWAY = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it: the JVM was there before us


@dataclass(frozen=True)
class Installation:
    """A Spark that can start; `java_home` is None where a JVM runs already."""

    spark: SparkRelease
    pyspark: str
    spark_home: Path
    java_home: Path | None


def find_installation(environment: Mapping[str, str]) -> Installation:
    """What this machine has, or the reason why nothing can start."""
    pyspark = import_pyspark("pyspark")
    home = Path(environment.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    running = GATEWAY in environment or is_running()
    return check_installation(pyspark.__version__, home, environment, running=running)


def is_running() -> bool:
    """Whether this process has a session already."""
    return import_pyspark("pyspark").SparkContext._active_spark_context is not None


def check_installation(
    pyspark: str, spark_home: Path, environment: Mapping[str, str], *, running: bool = False
) -> Installation:
    """The same for this pyspark and this folder of Spark; whether a JVM is `running` already."""
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
    """The version of the pyspark that Python finds, if there is one."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    return str(importlib.import_module("pyspark").__version__)


def import_pyspark(module: str) -> Any:
    """A module of pyspark. Not imported at the top: without pyspark the command line still works, and says so here."""
    if importlib.util.find_spec("pyspark") is None:
        matrix = compatibility_matrix()
        raise UnsupportedPyspark(
            f"pyspark is not installed for {sys.executable}",
            fix=f"pip install 'nunatak[spark]', which brings pyspark {matrix.sparks[matrix.default].pyspark}.",
        )
    return importlib.import_module(module)


def require_connect() -> None:
    """What a Spark Connect client needs beside pyspark."""
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
    """Version and Scala of the Spark in this folder, by the name of its core jar."""
    for path in sorted((home / "jars").glob("spark-core_*.jar")):
        found = re.fullmatch(r"spark-core_([\d.]+)-(.+)\.jar", path.name)
        if found:
            return found.group(2), found.group(1)
    return None
