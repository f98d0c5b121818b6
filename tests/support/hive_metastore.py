"""A real Hive metastore in a process of its own, made from the jars that PySpark brings; its database is a folder."""

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hive_metastore import ttypes

from nunatak_spark.installation import import_pyspark
from nunatak_spark.migration.metastore import Metastore

SOURCE = Path(__file__).parent / "java" / "metastore" / "Metastore.java"
START_SECONDS = 120  # about ten on a quiet machine: the schema is made first


@contextlib.contextmanager
def hive_metastore(folder: Path, java_home: Path, *login: str) -> Iterator[str]:
    """Start it, empty, and give its address; tables without a location go into `folder`/warehouse.

    With a user and a password as `login`, whoever connects has to say them by SASL PLAIN.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jars = Path(import_pyspark("pyspark").__file__).parent / "jars" / "*"
    command = [
        str(java_home / "bin" / "java"),
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dderby.stream.error.file={folder / 'derby.log'}",
        "-cp",
        str(jars),
        str(SOURCE),
        str(folder),
        *login,
    ]
    log = folder / "metastore.log"
    with log.open("wb") as out:  # a file for all it says: nobody would read a pipe
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield _await_address(process, log)
    finally:
        process.kill()
        process.wait()


def _await_address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"^listening on (\S+)$", log.read_text(errors="replace"), re.MULTILINE)
        if found:
            return found.group(1)
        time.sleep(0.2)
    raise AssertionError(f"the metastore did not start:\n{log.read_text(errors='replace')[-4000:]}")


@dataclass(frozen=True)
class Layout:
    """How Hive describes a kind of files."""

    input_format: str
    output_format: str
    serde: str
    properties: dict[str, str] = field(default_factory=dict)


PARQUET = Layout(
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
)
TEXT = Layout(
    "org.apache.hadoop.mapred.TextInputFormat",
    "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    {"field.delim": ","},
)


def create_hive_table(
    metastore: Metastore,
    name: tuple[str, str],
    location: str,
    columns: Mapping[str, str],
    layout: Layout,
    *,
    partitions: Mapping[str, str] | None = None,
    managed: bool = False,
    owner: str = "tester",
) -> None:
    """A table of Hive's own over files that are there; Hive itself would describe it in the same words."""
    table = ttypes.Table(
        tableName=name[1],
        dbName=name[0],
        owner=owner,
        sd=_storage(location, columns, layout),
        partitionKeys=_columns(partitions or {}),
        parameters={} if managed else {"EXTERNAL": "TRUE"},
        tableType="MANAGED_TABLE" if managed else "EXTERNAL_TABLE",
    )
    metastore.call("create_table", table)


def add_hive_partition(
    metastore: Metastore,
    name: tuple[str, str],
    values: tuple[str, ...],
    location: str,
    columns: Mapping[str, str],
    layout: Layout,
) -> None:
    storage = _storage(location, columns, layout)
    partition = ttypes.Partition(values=list(values), dbName=name[0], tableName=name[1], sd=storage, parameters={})
    metastore.call("add_partition", partition)


def grant(metastore: Metastore, name: tuple[str, str], principal: str, privilege: str, kind: int = 1) -> None:
    """Grant on a table; the kinds of principals are 1 for a user, 2 for a role, 3 for a group."""
    reference = ttypes.HiveObjectRef(objectType=3, dbName=name[0], objectName=name[1])
    how = ttypes.PrivilegeGrantInfo(
        privilege=privilege, createTime=0, grantor="admin", grantorType=1, grantOption=False
    )
    given = ttypes.HiveObjectPrivilege(hiveObject=reference, principalName=principal, principalType=kind, grantInfo=how)
    metastore.call("grant_privileges", ttypes.PrivilegeBag(privileges=[given]))


def _storage(location: str, columns: Mapping[str, str], layout: Layout) -> Any:
    return ttypes.StorageDescriptor(
        cols=_columns(columns),
        location=location,
        inputFormat=layout.input_format,
        outputFormat=layout.output_format,
        compressed=False,
        numBuckets=-1,
        serdeInfo=ttypes.SerDeInfo(serializationLib=layout.serde, parameters=dict(layout.properties)),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def _columns(columns: Mapping[str, str]) -> list[Any]:
    return [ttypes.FieldSchema(name=name, type=kind) for name, kind in columns.items()]
