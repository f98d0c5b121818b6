"""The proof of purge: of a table with everything Spark can make, each file it leads to goes, and no other file does."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nunatak.client import Client
from nunatak_spark.fingerprint import fingerprint
from tests.support.catalogs.process import RunningServer
from tests.support.found import await_true
from tests.support.spark import Sql, configure, local_path, rest_catalog

PURGE_SECONDS = 120  # the server purges in the background, usually within a second
STRAY = ("notes by hand.txt", "data/stray.parquet", "metadata/stray-m0.avro")

Files = dict[Path, tuple[int, int]]


@pytest.fixture
def client(shared_server: RunningServer) -> Iterator[Client]:
    with Client(shared_server.uri) as connected:
        yield connected


@dataclass(frozen=True)
class Lake:
    """All files of the warehouse, and which of them a table of the test leads to."""

    sql: Sql
    client: Client
    warehouse: Path

    def files(self) -> Files:
        """Every file of the test's tables with its size and when it was written. They may vanish while we look."""
        found: Files = {}
        for folder, _, names in os.walk(self.warehouse / self.sql.namespace):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    status = (Path(folder) / name).stat()
                    found[Path(folder) / name] = (status.st_size, status.st_mtime_ns)
        return found

    def reachable(self, table: str) -> set[Path]:
        """Told by Spark's own metadata tables, and for statistics and metadata files by the table's metadata."""
        name = f"here.{table}"
        parts = [
            f"SELECT file_path FROM {name}.all_files",
            f"SELECT path FROM {name}.all_manifests",
            f"SELECT manifest_list FROM {name}.snapshots",
            f"SELECT file FROM {name}.metadata_log_entries",
        ]
        paths = {str(row[0]) for row in self.sql(" UNION ALL ".join(parts))}
        loaded = self.client.load_table((self.sql.namespace, table))
        metadata = loaded["metadata"]
        statistics = [*metadata.get("statistics", []), *metadata.get("partition-statistics", [])]
        paths |= {loaded["metadata-location"], *(each["statistics-path"] for each in statistics)}
        return with_checksums({local_path(path) for path in paths})

    def becomes(self, wanted: Files) -> None:
        """Wait until the files are these; the difference is what a failure shows."""
        deadline = time.monotonic() + PURGE_SECONDS
        while time.monotonic() < deadline and self.files().keys() != wanted.keys():
            time.sleep(0.1)
        assert self.files() == wanted


def with_checksums(files: set[Path]) -> set[Path]:
    """And those that Hadoop has put beside them on a local disk."""
    beside = {file.with_name(f".{file.name}.crc") for file in files}
    return files | {file for file in beside if file.exists()}


@pytest.fixture
def lake(sql: Sql, client: Client, shared_server: RunningServer) -> Lake:
    configure(sql.spark, rest_catalog("purging", shared_server.uri, rest_catalog_purge="true"))
    return Lake(sql, client, shared_server.data / "warehouse")


def drop_in_spark(lake: Lake, table: str) -> None:
    lake.sql(f"DROP TABLE purging.{lake.sql.namespace}.{table} PURGE")


def drop_on_the_command_line(lake: Lake, table: str) -> None:
    command = [sys.executable, "-m", "nunatak", "table", "drop", "--purge", f"{lake.sql.namespace}.{table}"]
    subprocess.run([*command, "--uri", lake.client.uri], check=True, capture_output=True, timeout=PURGE_SECONDS)


Drop = Callable[[Lake, str], None]


def make_everything(sql: Sql, table: str, version: int, properties: str = "") -> None:
    """A table with partitions, rows deleted beside the data, statistics, a branch, a tag, an expired snapshot, files
    and manifests that were rewritten, and metadata files that its log has forgotten."""
    sql(
        f"CREATE TABLE {table} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part) TBLPROPERTIES ("
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
        f"'write.metadata.previous-versions-max'='3' {properties})"
    )
    name = f"'{sql.namespace}.{table}'"
    sql(f"INSERT INTO {table} SELECT id, id % 2 FROM range(40)")
    sql(f"DELETE FROM {table} WHERE id % 10 = 4")
    sql(f"ALTER TABLE {table} CREATE TAG first_delete")
    sql.call("compute_table_stats", name)
    sql.call("compute_partition_stats", name)
    sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    sql(f"INSERT INTO here.{table}.branch_audit VALUES (1000, 0)")
    sql(f"INSERT INTO {table} VALUES (50, 1)")
    sql.call("rewrite_data_files", f"table => {name}, options => map('rewrite-all', 'true')")
    sql(f"UPDATE {table} SET part = 1 WHERE id = 6")
    sql.call("expire_snapshots", f"table => {name}, older_than => TIMESTAMP '2100-01-01', retain_last => 2")
    sql.call("rewrite_manifests", f"table => {name}, use_caching => false")


@pytest.mark.parametrize(
    ("version", "drop"), [(2, drop_in_spark), (3, drop_on_the_command_line)], ids=["v2-spark", "v3-command-line"]
)
def test_every_file_that_a_purged_table_leads_to_goes_and_no_other(lake: Lake, version: int, drop: Drop) -> None:
    sql = lake.sql
    shared = f", 'write.data.path'='file://{lake.warehouse}/{sql.namespace}/shared'"
    make_everything(sql, "t", version, shared if version == 2 else "")
    sql(f"CREATE TABLE beside (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='{version}' {shared})")
    sql("INSERT INTO beside VALUES (1), (2)")
    location = local_path(lake.client.load_table((sql.namespace, "t"))["metadata"]["location"])
    for stray in STRAY:
        (location / stray).parent.mkdir(exist_ok=True)
        (location / stray).write_bytes(b"by hand")
    reachable, before = lake.reachable("t"), lake.files()
    _is_worth_purging(sql, reachable, version)
    forgotten = set((location / "metadata").glob("*.metadata.json"))

    drop(lake, "t")

    lake.becomes({file: seen for file, seen in before.items() if file not in reachable | forgotten})
    assert {str(file.relative_to(location)) for file in location.rglob("*") if file.is_file()} == set(STRAY)
    assert fingerprint(sql.spark, f"lake.{sql.namespace}.beside").rows == 2


def _is_worth_purging(sql: Sql, reachable: set[Path], version: int) -> None:
    """The table has all kinds of files, each of them there."""
    assert all(file.exists() for file in reachable)
    endings = {file.suffix for file in reachable}
    assert {".parquet", ".avro", ".json", ".stats"} <= endings
    formats = {row[0] for row in sql("SELECT DISTINCT file_format FROM here.t.all_delete_files")}
    assert formats == {"PUFFIN" if version == 3 else "PARQUET"}


def test_a_table_without_strangers_in_its_folder_leaves_no_folder(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT) USING iceberg")
    lake.sql("INSERT INTO t VALUES (1)")
    location = local_path(lake.client.load_table((lake.sql.namespace, "t"))["metadata"]["location"])

    drop_in_spark(lake, "t")

    lake.becomes({})
    await_true("the folder is gone, too", lambda: not location.exists())


# Files that two tables lead to


def test_a_table_under_two_names_loses_its_files_with_the_last(lake: Lake) -> None:
    sql = lake.sql
    sql("CREATE TABLE t (id BIGINT) USING iceberg")
    sql("INSERT INTO t VALUES (1), (2)")
    loaded = lake.client.load_table((sql.namespace, "t"))
    lake.client.register_table((sql.namespace, "twin"), loaded["metadata-location"])
    before = lake.files()

    drop_in_spark(lake, "t")
    _wait_for_purges(lake)
    assert lake.files() == before
    assert fingerprint(sql.spark, f"lake.{sql.namespace}.twin").rows == 2
    drop_in_spark(lake, "twin")

    lake.becomes({})


def test_files_in_another_tables_folder_stay_with_it(lake: Lake) -> None:
    """What add_files made part of a second table is the first one's: it lies in that one's folder."""
    sql = lake.sql
    sql("CREATE TABLE owner (id BIGINT) USING iceberg")
    sql("INSERT INTO owner VALUES (1), (2)")
    sql("CREATE TABLE borrower (id BIGINT) USING iceberg")
    _add_files_of(lake, "owner")
    assert sql.value("SELECT count(*) FROM borrower") == 2
    owned = lake.reachable("owner")
    kept = {file: seen for file, seen in lake.files().items() if file in owned}

    drop_in_spark(lake, "borrower")

    lake.becomes(kept)
    assert fingerprint(sql.spark, f"lake.{sql.namespace}.owner").rows == 2


def test_files_in_the_dropped_tables_own_folder_go_whoever_else_added_them(lake: Lake) -> None:
    """The catalog would have to read every manifest of every table to know; `gc.enabled=false` on the owner says it."""
    sql = lake.sql
    for owner, properties in (("owner", ""), ("lender", "TBLPROPERTIES ('gc.enabled'='false')")):
        sql(f"CREATE TABLE {owner} (id BIGINT) USING iceberg {properties}")
        sql(f"INSERT INTO {owner} VALUES (1), (2)")
    sql("CREATE TABLE borrower (id BIGINT) USING iceberg")
    lent = {owner: _add_files_of(lake, owner) for owner in ("owner", "lender")}
    needed = lake.reachable("borrower") - lent["owner"]
    kept = {file: seen for file, seen in lake.files().items() if file in needed}

    drop_in_spark(lake, "owner")
    drop_on_the_command_line(lake, "lender")  # Spark itself would refuse

    lake.becomes(kept)
    assert lent["lender"] <= kept.keys()


def _add_files_of(lake: Lake, owner: str) -> set[Path]:
    """Make its data files part of the table `borrower`, too."""
    sql = lake.sql
    data = local_path(lake.client.load_table((sql.namespace, owner))["metadata"]["location"]) / "data"
    sql.call("add_files", f"table => '{sql.namespace}.borrower', source_table => '`parquet`.`{data}`'")
    return {file for file in data.rglob("*") if file.is_file()}


def _wait_for_purges(lake: Lake) -> None:
    """Jobs are done in order: when a later purge is done, so is the one before."""
    sql = lake.sql
    sql("CREATE TABLE marker (id BIGINT) USING iceberg")
    marker = local_path(lake.client.load_table((sql.namespace, "marker"))["metadata"]["location"])
    drop_in_spark(lake, "marker")
    deadline = time.monotonic() + PURGE_SECONDS
    while marker.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not marker.exists()
