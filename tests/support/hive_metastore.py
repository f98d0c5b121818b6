"""A real Hive metastore in a process of its own, made from the jars that PySpark brings; its database is a folder."""

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nunatak_spark.installation import import_pyspark
from nunatak_spark.migration import thrift
from nunatak_spark.migration.metastore import Metastore
from nunatak_spark.migration.thrift import BOOL, MAP, STRING, STRUCT, Value

SOURCE = Path(__file__).parent / "java" / "metastore" / "Metastore.java"
START_SECONDS = 120  # about ten on a quiet machine: the schema is made first


@contextlib.contextmanager
def hive_metastore(folder: Path, java_home: Path) -> Iterator[str]:
    """Start it, empty, and give its address; tables without a location go into `folder`/warehouse."""
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
    keys = dict(partitions or {})
    table = {
        1: thrift.text(name[1]),
        2: thrift.text(name[0]),
        3: thrift.text(owner),
        7: thrift.structure(_storage(location, columns, layout)),
        8: _columns(keys),
        9: _texts({} if managed else {"EXTERNAL": "TRUE"}),
        12: thrift.text("MANAGED_TABLE" if managed else "EXTERNAL_TABLE"),
    }
    metastore.call("create_table", {1: thrift.structure(table)})


def add_hive_partition(
    metastore: Metastore,
    name: tuple[str, str],
    values: tuple[str, ...],
    location: str,
    columns: Mapping[str, str],
    layout: Layout,
) -> None:
    partition = {
        1: thrift.listing([thrift.text(value) for value in values], STRING),
        2: thrift.text(name[0]),
        3: thrift.text(name[1]),
        6: thrift.structure(_storage(location, columns, layout)),
        7: _texts({}),
    }
    metastore.call("add_partition", {1: thrift.structure(partition)})


def grant(metastore: Metastore, name: tuple[str, str], principal: str, privilege: str, kind: int = 1) -> None:
    """Grant on a table; the kinds of principals are 1 for a user, 2 for a role, 3 for a group."""
    reference = {1: thrift.number(3), 2: thrift.text(name[0]), 3: thrift.text(name[1])}
    how = {
        1: thrift.text(privilege),
        2: thrift.number(0),
        3: thrift.text("admin"),
        4: thrift.number(1),
        5: Value(BOOL, False),
    }
    given = {
        1: thrift.structure(reference),
        2: thrift.text(principal),
        3: thrift.number(kind),
        4: thrift.structure(how),
    }
    bag = {1: thrift.listing([thrift.structure(given)], STRUCT)}
    metastore.call("grant_privileges", {1: thrift.structure(bag)})


def _storage(location: str, columns: Mapping[str, str], layout: Layout) -> dict[int, Value]:
    serde = {2: thrift.text(layout.serde), 3: _texts(layout.properties)}
    return {
        1: _columns(columns),
        2: thrift.text(location),
        3: thrift.text(layout.input_format),
        4: thrift.text(layout.output_format),
        5: Value(BOOL, False),
        6: thrift.number(-1),
        7: thrift.structure(serde),
        8: thrift.listing([], STRING),
        9: thrift.listing([], STRUCT),
        10: _texts({}),
    }


def _columns(columns: Mapping[str, str]) -> Value:
    described = [thrift.structure({1: thrift.text(name), 2: thrift.text(kind)}) for name, kind in columns.items()]
    return thrift.listing(described, STRUCT)


def _texts(texts: Mapping[str, str]) -> Value:
    return Value(MAP, [(key.encode(), value.encode()) for key, value in texts.items()], (STRING, STRING))
