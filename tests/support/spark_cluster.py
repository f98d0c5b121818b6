"""Spark in the other places where jobs run: a standalone cluster of two workers, and a Spark Connect server."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from nunatak_spark.installation import import_pyspark
from tests.support.ports import free_port
from tests.support.spark import Installation

FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # short lives never repay the optimizing compiler
START_SECONDS = 120  # some seconds on a quiet machine
STOP_SECONDS = 30
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


def spark_home() -> Path:
    return Path(import_pyspark("pyspark").__file__).parent


def spark_environment(installation: Installation, work: Path) -> dict[str, str]:
    """What every process of Spark is started with: everything on this machine, and in folders of the test's own."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        "JAVA_HOME": str(installation.java_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(work / "local"),
        "SPARK_WORKER_DIR": str(work / "workers"),
        "SPARK_DAEMON_JAVA_OPTS": FAST,
    }


@contextlib.contextmanager
def standalone(installation: Installation, work: Path, workers: int = 2) -> Iterator[str]:
    """The address of a master that has its workers, of one core each."""
    environment = {**spark_environment(installation, work), "SPARK_DAEMON_MEMORY": "256m"}
    port, page = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    start = str(spark_home() / "bin" / "spark-class")
    with contextlib.ExitStack() as running:
        log = work / "master.log"
        master = [start, MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        running.enter_context(_process(master, log, environment))
        _await(log, "Starting Spark master at")
        for n in range(workers):
            worker = [
                start,
                WORKER,
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                address,
            ]
            running.enter_context(_process(worker, work / f"worker-{n}.log", environment))
        for n in range(workers):
            _await(work / f"worker-{n}.log", "Successfully registered with master")
        yield address


@contextlib.contextmanager
def connect_server(installation: Installation, work: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """The address of a Spark Connect server, which has its jars and extensions from `settings`."""
    port = free_port()
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        **settings,
    }
    options = [word for key, value in own.items() for word in ("--conf", f"{key}={value}")]
    start = str(spark_home() / "bin" / "spark-submit")
    command = [start, "--master", "local[2]", "--class", CONNECT, *options, "spark-internal"]
    environment = {**spark_environment(installation, work), "SPARK_DAEMON_MEMORY": "1g"}
    with _process(command, work / "connect.log", environment):
        _await(work / "connect.log", "Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"


@contextlib.contextmanager
def _process(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        # In the log's folder, because Spark leaves files where it is started.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=log.parent,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(log: Path, line: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if line in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise AssertionError(f"{log.name} never said {line!r}:\n{log.read_text(errors='replace')[-3000:]}")
