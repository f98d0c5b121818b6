"""The one file that says what belongs together, and that everything else agrees with it."""

import re
import tomllib
from pathlib import Path

import pytest

from nunatak.connect import SPARK_EXTENSIONS, SPARK_RUNTIME
from nunatak_spark.compatibility import RUNTIME, Jar, SparkRelease, compatibility_matrix
from nunatak_spark.configuration import EXTENSIONS_CLASS
from nunatak_spark.errors import CannotRun, UnsupportedPyspark
from tests.support.spark import JARS

PROJECT = Path(__file__).parents[3]
EVERY_JAR = [jar for spark in compatibility_matrix().sparks.values() for jar in spark.jars.values()] + [
    *compatibility_matrix().drivers.values()
]


def test_the_default_spark_is_the_one_that_the_extra_installs() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
    pinned = f"pyspark=={compatibility_matrix().spark(compatibility_matrix().default).pyspark}"

    assert pinned in project["project"]["optional-dependencies"]["spark"]
    assert pinned in project["dependency-groups"]["test"]


def test_the_lines_of_nunatak_connect_name_the_same_runtime() -> None:
    assert compatibility_matrix().spark(compatibility_matrix().default).runtime.coordinate == SPARK_RUNTIME
    assert EXTENSIONS_CLASS == SPARK_EXTENSIONS


def test_the_spark_tests_run_with_these_jars() -> None:
    spark = compatibility_matrix().spark(compatibility_matrix().default)

    assert set(JARS) == {spark.runtime, spark.jars["aws"], *compatibility_matrix().drivers.values()}


@pytest.mark.parametrize("spark", compatibility_matrix().sparks.values(), ids=lambda spark: spark.minor)
def test_a_runtime_belongs_to_its_spark_and_scala(spark: SparkRelease) -> None:
    assert spark.runtime.artifact == f"iceberg-spark-runtime-{spark.minor}_{spark.scala}"
    assert spark.pyspark.startswith(f"{spark.minor}.")
    assert spark.java


@pytest.mark.parametrize("jar", EVERY_JAR, ids=lambda jar: jar.file_name)
def test_every_jar_is_pinned_by_a_checksum(jar: Jar) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)


def test_a_patch_version_is_as_good_as_another() -> None:
    assert (
        compatibility_matrix().spark("4.1")
        is compatibility_matrix().spark("4.1.0")
        is compatibility_matrix().spark("4.1.4")
    )


@pytest.mark.parametrize("version", ["4.3.0", "4.2", "3.4.1", "41", ""])
def test_a_pyspark_without_a_runtime_is_refused_with_the_line_that_helps(version: str) -> None:
    with pytest.raises(UnsupportedPyspark, match=re.escape("pip install 'nunatak[spark]'")) as refusal:
        compatibility_matrix().spark(version)

    assert version in refusal.value.problem


def test_bundles_are_chosen_by_name_and_the_runtime_comes_always() -> None:
    spark = compatibility_matrix().spark("4.1")

    assert spark.chosen_jars() == [spark.jars[RUNTIME]]
    assert spark.chosen_jars(("aws", "aws")) == [spark.jars[RUNTIME], spark.jars["aws"]]
    with pytest.raises(CannotRun, match="no bundle oracle"):
        spark.chosen_jars(("oracle",))


def test_a_jar_lies_where_maven_puts_it() -> None:
    jar = Jar("org.apache.iceberg", "iceberg-core", "1.0", "")

    assert jar.repository_path == "org/apache/iceberg/iceberg-core/1.0/iceberg-core-1.0.jar"
    assert jar.coordinate == "org.apache.iceberg:iceberg-core:1.0"
