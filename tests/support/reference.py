"""Apache Iceberg's own REST server in a process of its own: the oracle our answers are compared with."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.java.project import JavaFailed, class_path

START_SECONDS = 90  # a cold JVM on a busy machine needs about five
READY = b"listening on "

# What remembers the catalog. The oracle is `heap`: it alone passes the whole compatibility kit. `sqlite` joins the
# levels of a namespace with dots; comparing the two shows that a comparison notices something.
BACKENDS = {
    "heap": ("catalog-impl=org.apache.iceberg.inmemory.InMemoryCatalog",),
    "sqlite": (
        "catalog-impl=org.apache.iceberg.jdbc.JdbcCatalog",
        "uri=jdbc:sqlite:{warehouse}/catalog.sqlite",
        "jdbc.schema-version=V1",
        "jdbc.strict-mode=true",
    ),
}


@dataclass(frozen=True)
class ReferenceServer:
    uri: str
    warehouse: Path
    pid: int


@contextlib.contextmanager
def reference_server(warehouse: Path, *, backend: str = "heap") -> Iterator[ReferenceServer]:
    """Start it with an empty catalog; `warehouse` is where its tables go."""
    warehouse.mkdir(parents=True, exist_ok=True)
    settings = [setting.format(warehouse=warehouse) for setting in BACKENDS[backend]]
    command = [
        "java",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        # It logs a stack trace for every 4xx it answers.
        "-Dorg.slf4j.simpleLogger.log.org.apache.iceberg.rest.RESTCatalogServlet=off",
        "-cp",
        class_path("reference"),
        "org.apache.iceberg.rest.ReferenceServer",
        f"warehouse={warehouse}",
        "unique-table-location=true",
        *settings,
    ]
    log = warehouse.parent / f"{warehouse.name}.reference.log"
    # Without a UTF-8 locale the JVM cannot name a folder with letters beyond ASCII.
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            # It writes where it stands if a table has no location.
            command,
            cwd=warehouse,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield ReferenceServer(_await_address(process, log), warehouse, process.pid)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _await_address(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    # The timer ends a server that stays silent, which ends the loop below.
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            if line.startswith(READY):
                return line.removeprefix(READY).decode().strip()
    finally:
        timer.cancel()
    raise JavaFailed(f"the reference server did not start:\n{log.read_text(errors='replace')[-4000:]}")
