"""Finds the Java that Spark would start with, from files alone, so that a wrong version is refused before a
JVM starts.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from nunatak_spark.compatibility import SparkRelease
from nunatak_spark.errors import UnsupportedJava

USUAL_PLACES = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home", "/opt/java/*")
ASK_SECONDS = 30  # `java -version` takes 0.1 s; a loaded machine gets time


def find_java(spark: SparkRelease, environment: Mapping[str, str], places: tuple[str, ...] = USUAL_PLACES) -> Path:
    """Returns the Java home to use: JAVA_HOME if set, else the java on PATH, else one in the usual folders.

    Raises UnsupportedJava for a JAVA_HOME of the wrong version instead of skipping it: Spark would use it.
    """
    named = environment.get("JAVA_HOME")
    if named:
        version = java_version(Path(named))
        if version in spark.java:
            return Path(named)
        what = f"Java {version}" if version else "no Java at all"
        raise UnsupportedJava(f"JAVA_HOME={named} is {what}; {_requirement(spark)}", fix=_fix(spark, places))
    for home in (*_on_path(environment), *_usual_homes(places)):
        if java_version(home) in spark.java:
            return home
    raise UnsupportedJava(f"No Java was found that fits; {_requirement(spark)}", fix=_fix(spark, places))


def java_version(home: Path) -> int | None:
    """Returns the major version of the Java in this folder, or None if there is none."""
    if not (home / "bin" / "java").exists():
        return None
    try:
        said = (home / "release").read_text("utf-8", errors="replace")
    except OSError:
        said = _run_version_command(home)
    # Java 8 reports itself as 1.8.
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def _run_version_command(home: Path) -> str:
    try:
        asked = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stderr


def _on_path(environment: Mapping[str, str]) -> Iterator[Path]:
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        yield Path(found).resolve().parents[1]


def _usual_homes(places: tuple[str, ...]) -> Iterator[Path]:
    for pattern in places:
        yield from sorted(Path("/").glob(pattern.removeprefix("/")))


def _requirement(spark: SparkRelease) -> str:
    return f"Spark {spark.minor} runs on Java {spark.java_text}"


def _fix(spark: SparkRelease, places: tuple[str, ...]) -> str:
    fitting = next((home for home in _usual_homes(places) if java_version(home) in spark.java), None)
    if fitting is not None:
        return f"export JAVA_HOME={fitting}"
    return f"Install a JDK {spark.java_text}, and point JAVA_HOME at it."
