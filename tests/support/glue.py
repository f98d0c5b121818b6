"""An emulator of AWS Glue and S3 in a process of its own."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from tests.support.hive_metastore import Layout
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 60  # a few on a quiet machine
REGION = "us-east-1"
# Whoever asks needs some name; any will do.
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testtest", "AWS_DEFAULT_REGION": REGION}


@contextlib.contextmanager
def aws_emulator(folder: Path) -> Iterator[str]:
    """Start it, empty, and give its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    log = folder / "aws.log"
    environment = {**os.environ, **KEYS}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _await_answer(process, address, log)
        yield address
    finally:
        process.kill()
        process.wait()


def _await_answer(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
        except urllib.error.URLError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the emulator of AWS did not start:\n{log.read_text(errors='replace')[-4000:]}")


@contextlib.contextmanager
def aws_keys() -> Iterator[None]:
    """While the block runs, this process is somebody for AWS's own libraries."""
    before: Mapping[str, str | None] = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def give_keys(spark: "SparkSession") -> None:
    """The same for a JVM that runs already, whose environment cannot be changed any more."""
    system: Any = spark.sparkContext._jvm
    system.System.setProperty("aws.accessKeyId", KEYS["AWS_ACCESS_KEY_ID"])
    system.System.setProperty("aws.secretAccessKey", KEYS["AWS_SECRET_ACCESS_KEY"])


def make_bucket(address: str, name: str) -> None:
    with closing(boto3.client("s3", endpoint_url=address, region_name=REGION)) as s3:
        s3.create_bucket(Bucket=name)


def declare_in_glue(
    address: str, name: tuple[str, str], location: str, columns: Mapping[str, str], layout: Layout
) -> None:
    """A table of Hive's own over files that are there."""
    serde = {"SerializationLibrary": layout.serde, "Parameters": layout.properties}
    described = {
        "Location": location,
        "Columns": [{"Name": column, "Type": kind} for column, kind in columns.items()],
        "InputFormat": layout.input_format,
        "OutputFormat": layout.output_format,
        "SerdeInfo": serde,
    }
    table = {"Name": name[1], "TableType": "EXTERNAL_TABLE", "StorageDescriptor": described}
    with closing(boto3.client("glue", endpoint_url=address, region_name=REGION)) as glue:
        glue.create_table(DatabaseName=name[0], TableInput=table)


def grant_in_glue(address: str, name: tuple[str, str], principal: str, privilege: str) -> None:
    resource = {"Table": {"DatabaseName": name[0], "Name": name[1]}}
    with closing(boto3.client("lakeformation", endpoint_url=address, region_name=REGION)) as lake:
        who = {"DataLakePrincipalIdentifier": principal}
        lake.grant_permissions(Principal=who, Resource=resource, Permissions=[privilege])
