"""Flink in local mode over an Iceberg REST catalog: PyFlink in an environment of its own, the jars from Maven."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.tool_cache import maven_jars, python_environment

VERSION = "2.1.3"
# The newest Iceberg that has a runtime for a Flink that pip has.
ICEBERG, HADOOP = "1.11.0", "3.4.3"
RUN_SECONDS = 600
PACKAGES = (f"apache-flink=={VERSION}", "setuptools<81")
PROGRAM = Path(__file__).with_name("flink_program.py")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>flink</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"""
_JARS = (
    ("org.apache.iceberg", "iceberg-flink-runtime-2.1", ICEBERG),
    ("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG),
    ("org.apache.hadoop", "hadoop-client-api", HADOOP),
    ("org.apache.hadoop", "hadoop-client-runtime", HADOOP),
)


class FlinkFailed(Exception):
    """A statement failed, or Flink did not start; the message ends with its output."""


def jars() -> list[Path]:
    pom = _POM.format("".join(_DEPENDENCY.format(*jar) for jar in _JARS))
    return sorted((maven_jars("flink-jars", f"{VERSION}-{ICEBERG}", {"lib": pom}) / "lib").glob("*.jar"))


def run_flink(
    java_home: Path, properties: Mapping[str, str], statements: Sequence[str], *, streaming: bool = False
) -> list[list[list[Any]]]:
    """Runs the statements in one session whose catalog `lake` has these properties; returns the rows of each.

    Starting takes some 10 s, so hand over many statements at once.
    """
    asked = {"properties": {"type": "iceberg", "catalog-type": "rest", **properties}, "statements": list(statements)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FLINK_"))}
    environment = {
        **inherited,
        "JAVA_HOME": str(java_home),
        "AWS_EC2_METADATA_DISABLED": "true",  # without keys it must not look for some at the cloud's own addresses
        "HADOOP_CLASSPATH": os.pathsep.join(map(str, jars())),  # pipeline.jars is not enough for Hadoop's classes
    }
    ended = subprocess.run(
        [str(python_environment("flink", PACKAGES)), str(PROGRAM), "streaming" if streaming else "batch"],
        input=json.dumps(asked),
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    if ended.returncode:
        raise FlinkFailed(ended.stdout[-2000:] + ended.stderr[-6000:])
    return [json.loads(line.removeprefix("rows ")) for line in ended.stdout.splitlines() if line.startswith("rows ")]
