"""Which Iceberg runtime, Scala and Java belong to which Spark: compatibility.toml as values.

Does not look at the machine.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from nunatak_spark.errors import CannotRun, UnsupportedPyspark

RUNTIME = "runtime"  # needed by every session; the other jars are bundles for one cloud each


@dataclass(frozen=True)
class Jar:
    """An artifact of a Maven repository, identified by its checksum."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def repository_path(self) -> str:
        """The path inside any Maven repository, remote or local."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


@dataclass(frozen=True)
class SparkRelease:
    """A minor version of Spark, and the versions and jars that belong to it."""

    minor: str
    pyspark: str
    scala: str
    java: tuple[int, ...]
    jars: Mapping[str, Jar]

    @property
    def runtime(self) -> Jar:
        return self.jars[RUNTIME]

    def chosen_jars(self, bundles: tuple[str, ...] = ()) -> list[Jar]:
        """Returns the Iceberg runtime and the named bundles; raises CannotRun for an unknown bundle."""
        unknown = [name for name in bundles if name not in self.jars]
        if unknown:
            known = ", ".join(name for name in self.jars if name != RUNTIME) or "none"
            raise CannotRun(f"There is no bundle {unknown[0]} for Spark {self.minor}", fix=f"Choose among: {known}.")
        return [self.jars[name] for name in dict.fromkeys((RUNTIME, *bundles))]

    @property
    def java_text(self) -> str:
        return " or ".join(map(str, self.java))


@dataclass(frozen=True)
class CompatibilityMatrix:
    """All supported Spark versions, and the JDBC drivers."""

    default: str
    sparks: Mapping[str, SparkRelease]
    drivers: Mapping[str, Jar]

    def spark(self, version: str) -> SparkRelease:
        """Returns the release for a version such as `4.1` or `4.1.4`; raises UnsupportedPyspark."""
        found = self.sparks.get(minor_version(version))
        if found is None:
            raise UnsupportedPyspark(
                f"pyspark {version} has no Iceberg runtime; there is one for {' and '.join(self.sparks)}",
                fix=f"pip install 'nunatak[spark]', which brings pyspark {self.sparks[self.default].pyspark}.",
            )
        return found


def minor_version(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found.group() if found else version


@cache
def compatibility_matrix() -> CompatibilityMatrix:
    """Returns the matrix that is shipped with this package."""
    return parse_matrix(tomllib.loads(files("nunatak_spark").joinpath("compatibility.toml").read_text("utf-8")))


def parse_matrix(document: Mapping[str, Any]) -> CompatibilityMatrix:
    sparks = {
        minor: SparkRelease(
            minor,
            entry["pyspark"],
            entry["scala"],
            tuple(entry["java"]),
            {name: Jar(**jar) for name, jar in entry["jars"].items()},
        )
        for minor, entry in document["spark"].items()
    }
    return CompatibilityMatrix(
        document["default"], sparks, {name: Jar(**jar) for name, jar in document["drivers"].items()}
    )
