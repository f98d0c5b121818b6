"""Which Iceberg runtime, Scala and Java belong to which Spark: compatibility.toml as values. Reads nothing else."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from nunatak_spark.errors import CannotRun, UnsupportedPyspark

RUNTIME = "runtime"  # what every session needs; the other jars of a Spark are bundles for one cloud each


@dataclass(frozen=True)
class Jar:
    """One artifact of a Maven repository, trusted by its checksum and not by where it came from."""

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
        """Where it lies in any Maven repository, remote or local."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


@dataclass(frozen=True)
class SparkRelease:
    """One minor version of Spark and what belongs to it."""

    minor: str
    pyspark: str
    scala: str
    java: tuple[int, ...]
    jars: Mapping[str, Jar]

    @property
    def runtime(self) -> Jar:
        return self.jars[RUNTIME]

    def chosen_jars(self, bundles: tuple[str, ...] = ()) -> list[Jar]:
        """The runtime, and the bundles by name."""
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
    default: str
    sparks: Mapping[str, SparkRelease]
    drivers: Mapping[str, Jar]

    def spark(self, version: str) -> SparkRelease:
        """What belongs to a Spark of this version, `4.1` or `4.1.4`."""
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
    """The one that is shipped with this package."""
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
