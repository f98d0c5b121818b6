"""A Spark that cannot work is refused, with the line that helps, before anything is started."""

from pathlib import Path

import pytest

from nunatak_spark.compatibility import compatibility_matrix
from nunatak_spark.errors import ConfigurationConflict, UnsupportedJava, UnsupportedPyspark
from nunatak_spark.installation import check_installation, spark_version_in
from nunatak_spark.java import find_java, java_version

SPARK = compatibility_matrix().spark("4.1")


def a_java(home: Path, version: str | None) -> Path:
    """A folder that looks like a JDK; with version None it has to be asked, and says 17."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return home


def a_spark(home: Path, version: str = "4.1.4", scala: str = "2.13") -> Path:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_{scala}-{version}.jar").touch()
    return home


@pytest.mark.parametrize(
    ("written", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25.0.1", 25), (None, 17)]
)
def test_the_version_of_a_java_is_read_or_asked_for(tmp_path: Path, written: str | None, major: int) -> None:
    assert java_version(a_java(tmp_path / "jdk", written)) == major


def test_a_folder_without_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None


@pytest.mark.parametrize("version", ["25", "11.0.2", "1.8.0"])
def test_a_wrong_java_home_is_refused_and_a_right_one_named(tmp_path: Path, version: str) -> None:
    wrong, right = a_java(tmp_path / "wrong", version), a_java(tmp_path / "jvm" / "seventeen", "17.0.1")
    places = (f"{tmp_path}/jvm/*",)

    with pytest.raises(UnsupportedJava, match="runs on Java 17 or 21") as refusal:
        find_java(SPARK, {"JAVA_HOME": str(wrong)}, places)

    assert refusal.value.fix == f"export JAVA_HOME={right}"


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedJava, match="no Java at all") as refusal:
        find_java(SPARK, {"JAVA_HOME": str(tmp_path)}, ())

    assert "Install a JDK 17 or 21" in refusal.value.fix


def test_the_java_on_the_path_is_taken_if_it_fits(tmp_path: Path) -> None:
    on_path = a_java(tmp_path / "one", "21.0.2")

    assert find_java(SPARK, {"PATH": str(on_path / "bin")}, ()) == on_path


def test_a_wrong_java_on_the_path_is_passed_over_for_one_that_fits(tmp_path: Path) -> None:
    on_path, right = a_java(tmp_path / "one", "25"), a_java(tmp_path / "jvm" / "right", "17")

    assert find_java(SPARK, {"PATH": str(on_path / "bin")}, (f"{tmp_path}/jvm/*",)) == right


def test_no_java_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedJava, match="No Java was found that fits"):
        find_java(SPARK, {"PATH": str(tmp_path)}, ())


def test_what_fits_together_is_an_installation(tmp_path: Path) -> None:
    java, home = a_java(tmp_path / "jdk", "17"), a_spark(tmp_path / "spark")

    found = check_installation("4.1.2", home, {"JAVA_HOME": str(java)})

    assert (found.spark, found.spark_home, found.java_home) == (SPARK, home, java)


def test_a_jvm_that_runs_already_needs_no_java(tmp_path: Path) -> None:
    assert check_installation("4.1.4", a_spark(tmp_path / "spark"), {}, running=True).java_home is None


def test_a_pyspark_without_a_runtime_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPyspark, match=r"pyspark 4\.3\.0 has no Iceberg runtime"):
        check_installation("4.3.0", a_spark(tmp_path / "spark", "4.3.0"), {})


def test_a_spark_home_of_another_minor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationConflict, match=r"holds Spark 3\.5\.9"):
        check_installation("4.1.4", a_spark(tmp_path / "spark", "3.5.9", "2.12"), {})


def test_a_spark_for_another_scala_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationConflict, match=r"for Scala 2\.13"):
        check_installation("3.5.9", a_spark(tmp_path / "spark", "3.5.9", "2.13"), {})


def test_a_folder_without_spark_says_nothing(tmp_path: Path) -> None:
    assert spark_version_in(tmp_path) is None
