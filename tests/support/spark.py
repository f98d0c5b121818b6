"""A real Spark for tests: the Java it needs, its jars by checksum, one lean session. No server and no fixture."""

import contextlib
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

JAVA = "17"  # what this Spark is tested with; newer ones lack classes that its Hadoop needs
FETCH_SECONDS = 600  # 60 MB over a slow line


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


JARS = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.53.4.0",
        "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb",
    ),
    Jar(
        "org.postgresql",
        "postgresql",
        "42.7.8",
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    ),
    Jar(
        "org.mariadb.jdbc",
        "mariadb-java-client",
        "3.5.7",
        "07bb1229dc184f3313a5aef4c5a6b3207c8dbaa09db4a26814c936f004b4c526",
    ),
)


class CannotRun(Exception):
    """This machine lacks something that the Spark suite needs; the message says what."""


def find_java_home() -> Path:
    """The first Java of the right version: JAVA_HOME, the PATH, then the usual places."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parents[1])
    candidates += sorted(Path("/usr/lib/jvm").glob("*"))
    candidates += sorted(Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home"))
    for home in candidates:
        if (home / "bin" / "java").exists() and _java_version(home) == JAVA:
            return home
    raise CannotRun(f"no Java {JAVA}; install it or point JAVA_HOME at it")


def _java_version(home: Path) -> str | None:
    release = home / "release"
    found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE) if release.exists() else None
    return found.group(1) if found else None


def fetch_jars(folder: Path) -> list[Path]:
    """The jars, from `folder` if they are there and from Maven's configured repository otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_fetch_jar(jar, folder) for jar in JARS]


def _fetch_jar(jar: Jar, folder: Path) -> Path:
    target = folder / jar.file_name
    if not (target.exists() and _sha256(target) == jar.sha256):
        incoming = folder / f"incoming-{os.getpid()}"
        try:
            _copy_with_maven(jar, incoming)
            if _sha256(incoming / jar.file_name) != jar.sha256:
                raise AssertionError(f"{jar.coordinate} is not the file that was pinned: the checksum differs")
            (incoming / jar.file_name).replace(target)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
    return target


def _copy_with_maven(jar: Jar, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotRun(
            f"no mvn to fetch {jar.coordinate} with; install Maven or put {jar.file_name} into {folder.parent}"
        )
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={jar.coordinate}", f"-DoutputDirectory={folder}"]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    if fetched.returncode:
        raise CannotRun(f"mvn could not fetch {jar.coordinate}: {fetched.stdout[-500:]}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rest_catalog(name: str, uri: str, **options: str) -> dict[str, str]:
    """The settings of a Spark catalog called `name` that speaks to `uri`; an option's `_` stands for `-`."""
    return catalog(name, type="rest", uri=uri, **options)


def catalog(name: str, **options: str) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name}"
    settings = {f"{prefix}.{option.replace('_', '-')}": value for option, value in options.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **settings}


def configure(spark: "SparkSession", settings: Mapping[str, str]) -> None:
    """Add a catalog to a running session; Spark looks its settings up on first use."""
    for key, value in settings.items():
        spark.conf.set(key, value)


@dataclass(frozen=True)
class Installation:
    """All that a session needs from the machine."""

    java_home: Path
    jars: list[Path]


def find_installation(jar_folder: Path) -> Installation:
    """What this machine has, or CannotRun if something is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise CannotRun("no pyspark; pip install 'nunatak[spark]'")
    return Installation(find_java_home(), fetch_jars(jar_folder))


@contextlib.contextmanager
def spark_session(installation: Installation, work: Path, settings: Mapping[str, str]) -> Iterator["SparkSession"]:
    """One session in one JVM, warmed up, with nothing kept outside `work`."""
    # Not at the top: this file is also imported where there is no pyspark, to say so.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # else 20 kB of JSON per refused statement
    builder = SparkSession.builder.master("local[2]").appName("nunatak-tests")
    for key, value in {**_lean_settings(installation.jars, work), **settings}.items():
        builder = builder.config(key, value)
    variables = {
        "JAVA_HOME": str(installation.java_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with mock.patch.dict(os.environ, variables):
        os.environ.pop("SPARK_HOME", None)  # the Spark under test is the one that pip installed
        session = builder.getOrCreate()
    try:
        session.sparkContext.setLogLevel("OFF")
        session.range(1).count()  # warm up here, so that no test is blamed for it
        yield session
    finally:
        session.stop()


def _lean_settings(jars: list[Path], work: Path) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        # Short statements never repay the optimizing compiler; this halves the suite.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@dataclass(frozen=True)
class Sql:
    """Runs statements in the test's own namespace, the current one; `here.` names it where Spark wants a full name."""

    spark: "SparkSession"
    catalog: str
    namespace: str

    def __call__(self, statement: str) -> "list[Row]":
        return self.frame(statement).collect()

    def value(self, statement: str) -> Any:
        """The only value of the only row."""
        ((value,),) = self(statement)
        return value

    def pairs(self, statement: str) -> dict[Any, Any]:
        """The first column to the second, as SHOW TBLPROPERTIES and DESCRIBE NAMESPACE answer."""
        return {row[0]: row[1] for row in self(statement)}

    def frame(self, statement: str) -> "DataFrame":
        return self.spark.sql(re.sub(r"\bhere\.", f"{self.catalog}.{self.namespace}.", statement))

    def call(self, procedure: str, arguments: str) -> "Row":
        """The first row that an Iceberg procedure of the test's catalog answers with."""
        return self(f"CALL {self.catalog}.system.{procedure}({arguments})")[0]

    def location(self, table: str) -> Path:
        """The local folder of a table."""
        return local_path(self.pairs(f"DESCRIBE TABLE EXTENDED {table}")["Location"])

    def metadata_location(self, table: str) -> str:
        """The table's current metadata file, as the table itself says; `table` is unqualified."""
        return str(self.value(f"SELECT max_by(file, timestamp) FROM here.{table}.metadata_log_entries"))


def local_path(location: str) -> Path:
    """The local file behind a `file:` location."""
    return Path(unquote(urlparse(location).path))


def run_together(*actions: Callable[[], object]) -> None:
    """Run each in a thread of its own, let all start at once, and raise what any of them raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        try:
            start.wait(60)
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]
