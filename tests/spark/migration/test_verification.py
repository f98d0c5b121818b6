"""The levels of verification on real tables: what is the same is green, and every planted fault is caught and named.

The source is a Hadoop catalog, or plain files; the target is the server under test. MISSION: 003-66, 003-69
"""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nunatak.client import Client
from nunatak_spark.migration.migration_report import render
from nunatak_spark.migration.model import (
    Evidence,
    InventoryTable,
    LevelName,
    Method,
    Migration,
    MigrationSource,
    MigrationTable,
    SourceColumn,
    TablePair,
    TablePlan,
    table_title,
)
from nunatak_spark.migration.verification import verify
from tests.support.catalogs.process import RunningServer
from tests.support.spark import Sql, catalog, configure, local_path, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OLD = "old_verification"
NAMES = itertools.count(1)
ROWS = 181
# One of each type that Spark and the other engines share; nulls, NaN, a zero below zero, deleted and updated rows.
EVENTS = """
    id BIGINT NOT NULL COMMENT 'the key', n INT, f FLOAT, price DECIMAL(12,3), city STRING, ok BOOLEAN, day DATE,
    at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, sizes MAP<STRING, INT>,
    place STRUCT<lat: DOUBLE, name: STRING>
"""
VALUES = """
    SELECT id, cast(nullif(id % 17, 3) AS int),
      cast(CASE id WHEN 5 THEN 'NaN' WHEN 6 THEN '-0.0' ELSE id / 7 END AS float), cast(id AS decimal(12,3)) / 8,
      nullif(concat('c', id % 7), 'c3'), id % 2 = 0,
      nullif(date_add(date'2026-01-01', cast(id % 3 AS int)), date'2026-01-03'),
      timestamp'2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, cast(id AS int)),
      timestamp_ntz'2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, cast(id AS int)),
      cast(concat('b', id) AS binary), array(concat('t', id % 5), null), map('k', cast(id AS int)),
      named_struct('lat', id / 10, 'name', concat('p', id))
    FROM range(200)
"""


@dataclass(frozen=True)
class Ends:
    """A source and the target, in one session and in namespaces of the test's own."""

    sql: Sql
    client: Client

    def __call__(self, statement: str) -> None:
        self.sql(statement)

    def pointer(self, table: str) -> str:
        rows = self.sql(f"SELECT max_by(file, timestamp) FROM {table}.metadata_log_entries")
        return str(rows[0][0])

    def registered(self, source: str) -> TablePair:
        """The source's table under a new name at the target."""
        target = (self.sql.namespace, f"moved_{next(NAMES)}")
        pointer = self.pointer(source)
        self.client.register_table(target, pointer)
        found = InventoryTable(source=OLD, name=tuple(source.split(".")[1:]), kind="iceberg", pointer=pointer)
        table = MigrationTable(found=found, state="shadowed", source_pointer=pointer)
        return TablePair(
            spark=self.sql.spark,
            client=self.client,
            catalog="lake",
            table=table,
            planned=TablePlan("register", target),
            source_pointer=lambda: self.pointer(source),
            source_metadata=lambda: json.loads(local_path(self.pointer(source)).read_bytes()),
            source_rows=lambda: self.sql.spark.table(source),
        )

    def made(self, target: str, rows: "Callable[[], DataFrame]", method: Method, columns: dict[str, str]) -> TablePair:
        """A table at the target that was made anew from these rows."""
        listed = tuple(SourceColumn(name, kind) for name, kind in columns.items())
        found = InventoryTable(source="files", name=("folder",), kind="files", pointer="files:1", columns=listed)
        return TablePair(
            spark=self.sql.spark,
            client=self.client,
            catalog="lake",
            table=MigrationTable(found=found, state="shadowed", source_pointer="files:1"),
            planned=TablePlan(method, (self.sql.namespace, target)),
            source_pointer=lambda: "files:1",
            source_metadata=lambda: None,
            source_rows=rows,
        )

    def files(self, pair: TablePair, content: int) -> list[Path]:
        rows = self.sql(f"SELECT DISTINCT file_path FROM {pair.target_name}.files WHERE content = {content} ORDER BY 1")
        return [local_path(row.file_path) for row in rows]


@pytest.fixture(scope="module")
def events(spark: "SparkSession", shared_server: RunningServer) -> str:
    """A v3 table of a Hadoop catalog: partitioned, with deletion vectors, a tag and statistics."""
    folder = shared_server.data / "warehouse" / OLD
    configure(spark, catalog(OLD, type="hadoop", warehouse=f"file://{folder}", cache_enabled="false"))
    name = f"{OLD}.db.events"
    spark.sql(f"CREATE NAMESPACE {OLD}.db")
    spark.sql(
        f"CREATE TABLE {name} ({EVENTS}) USING iceberg PARTITIONED BY (day, bucket(2, id)) TBLPROPERTIES "
        "('format-version' = '3', 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
    )
    spark.sql(f"INSERT INTO {name} {VALUES}")
    spark.sql(f"DELETE FROM {name} WHERE id % 11 = 0")
    spark.sql(f"UPDATE {name} SET city = 'Oslo' WHERE id = 50")
    spark.sql(f"ALTER TABLE {name} CREATE TAG first_year")
    spark.sql(f"CALL {OLD}.system.compute_table_stats(table => 'db.events', columns => array('id'))")
    return name


@pytest.fixture
def ends(sql: Sql, shared_server: RunningServer) -> Iterator[Ends]:
    with Client(shared_server.uri) as client:
        yield Ends(sql, client)


@contextmanager
def away(*paths: Path) -> Iterator[None]:
    """While the block runs these files are elsewhere, and whatever is put in their place is removed afterwards."""
    kept = {path: path.with_name(f"{path.name}.kept") for path in paths}
    for path, other in kept.items():
        path.rename(other)
    try:
        yield
    finally:
        for path, other in kept.items():
            if path.is_dir():
                path.rmdir()
            other.replace(path)


def look(pair: TablePair, *levels: LevelName) -> list[Evidence]:
    return verify(pair, levels)


def named(evidence: Evidence) -> set[tuple[str, str]]:
    return {(finding.kind, Path(finding.where).name) for finding in evidence.findings}


# Green


def test_a_registered_table_is_green_on_every_level(ends: Ends, events: str) -> None:
    pair = ends.registered(events)

    identity, reach, contents, engines = verify(pair)

    for one in (identity, reach, contents, engines):
        assert one.ok, one.findings
        assert one.source_pointer == one.target_pointer != ""
        assert one.started_ms <= one.ended_ms
    assert identity.facts["source-metadata-sha256"] == identity.facts["target-metadata-sha256"]
    assert set(identity.facts["refs"]) == {"main", "first_year"}
    assert reach.facts["by-kind"].keys() == {
        "metadata file",
        "manifest list",
        "manifest",
        "data file",
        "position delete file",
        "statistics file",
    }
    assert reach.facts["files"] == sum(reach.facts["by-kind"].values())
    assert contents.facts["rows"] == ROWS
    assert contents.facts["source"] == contents.facts["target"]
    assert len(contents.facts["target"]["columns"]) == 13
    assert engines.facts["engines"] == dict.fromkeys(("spark", "pyiceberg", "duckdb"), "answered")
    assert engines.facts["answers"]["rows"] == str(ROWS)
    assert engines.facts["answers"]["not-a-number of f"] == "1"
    assert json.loads(engines.facts["answers"]["first 5 rows by id"].partition(', "')[0] + "]]") == [["1"]]
    assert all(one.statements for one in (reach, contents, engines))
    told = msgspec.json.decode(msgspec.json.encode([identity, reach, contents, engines]), type=list[Evidence])
    page = render(_migration(pair, told))
    assert page.count(contents.facts["source"]["sum"]) == 2  # both sides


def _migration(pair: TablePair, evidence: list[Evidence]) -> Migration:
    table = msgspec.structs.replace(pair.table, planned=pair.planned, state="verified")
    return Migration(
        target_uri=pair.client.uri,
        warehouse="",
        sources=(MigrationSource(kind="hadoop", name=OLD, address="file:"),),
        tables=(table,),
        evidence={table_title(table.found): tuple(evidence)},
        log=(),
    )


def test_an_empty_table_of_version_one_is_green(ends: Ends, events: str) -> None:
    name = f"{OLD}.db.nothing"
    ends(
        f"CREATE TABLE {name} (id BIGINT, s STRUCT<a: ARRAY<INT>>) USING iceberg TBLPROPERTIES ('format-version' = '1')"
    )

    evidence = verify(ends.registered(name))

    assert [(one.level, one.findings) for one in evidence] == [(level, ()) for level in ("L0", "L1", "L2", "L3")]
    assert evidence[1].facts["by-kind"] == {"metadata file": 1}


def test_a_table_that_other_engines_cannot_read_is_not_green_on_the_last_level_alone(ends: Ends, events: str) -> None:
    name = f"{OLD}.db.variants"
    ends(f"CREATE TABLE {name} (id BIGINT, v VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    ends(f"""INSERT INTO {name} SELECT id, parse_json(concat('{{"a":', id, '}}')) FROM range(5)""")

    *others, engines = verify(ends.registered(name))

    assert [one.findings for one in others] == [(), (), ()]
    assert [finding.kind for finding in engines.findings] == ["too-few-engines"]
    assert engines.facts["engines"]["pyiceberg"].startswith("could not: ")


def test_the_target_is_asked_with_the_login_of_the_session(sql: Sql, secured: RunningServer) -> None:
    """PyIceberg, DuckDB and the executors come in as Spark does, by a credential or by a token."""
    admin = secured.root
    with Client(secured.uri, token=secured.token(admin)) as client:
        by_credential = rest_catalog("verify_credential", secured.uri, credential=admin.credential)
        by_token = rest_catalog("verify_token", secured.uri, token=secured.token(admin))
        configure(
            sql.spark, {**by_credential, "spark.sql.catalog.verify_credential.oauth2-server-uri": secured.token_uri}
        )
        configure(sql.spark, by_token)
        sql("CREATE NAMESPACE verify_credential.logins")
        sql("CREATE TABLE verify_credential.logins.t USING iceberg AS SELECT id FROM range(3)")
        pair = Ends(sql, client).made("t", lambda: sql.spark.range(3), "copy", {})
        pair = TablePair(**{**vars(pair), "planned": TablePlan("copy", ("logins", "t"))})

        for name in ("verify_credential", "verify_token"):
            reach, engines = look(TablePair(**{**vars(pair), "catalog": name}), "L1", "L3")

            assert (reach.findings, engines.findings) == ((), ())
            assert set(engines.facts["engines"].values()) == {"answered"}


# Planted faults


def test_files_that_are_missing_unreachable_or_cut_short_are_each_named(ends: Ends, events: str) -> None:
    pair = ends.registered(events)
    gone, blocked, *_ = ends.files(pair, content=0)
    (short, *_) = ends.files(pair, content=1)
    content = short.read_bytes()

    with away(gone, blocked, short):
        blocked.mkdir()  # nobody can read it, not even root
        short.write_bytes(content[:-9])
        reach, contents = look(pair, "L1", "L2")

    assert not reach.ok
    assert named(reach) == {("missing-file", gone.name), ("unreachable-file", blocked.name), ("wrong-size", short.name)}
    assert all(finding.text.endswith("; first_year, main need it") for finding in reach.findings)
    (lost,) = contents.findings  # Spark stops at the first
    assert lost.kind == "missing-file"
    assert Path(lost.where).name in {gone.name, blocked.name}
    assert look(pair, "L1")[0].ok


def test_a_file_that_only_an_earlier_snapshot_needs_is_said_to_be_so(ends: Ends, events: str) -> None:
    name = f"{OLD}.db.rewritten"
    ends(f"CREATE TABLE {name} USING iceberg AS SELECT id FROM range(5)")
    before = ends.registered(name)
    old = ends.files(before, content=0)[0]
    ends(f"INSERT OVERWRITE {name} SELECT id FROM range(9)")

    with away(old):
        (reach,) = look(ends.registered(name), "L1")

    (finding,) = reach.findings
    assert finding.kind == "missing-file"
    assert finding.text.endswith("only earlier snapshots need it, which can be expired at the source")


@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
def test_a_missing_manifest_is_named_although_spark_cannot_go_on(ends: Ends, events: str, kind: str) -> None:
    pair = ends.registered(events)
    document = ends.client.load_table(pair.planned.target)["metadata"]
    if kind == "manifest":
        path = local_path(ends.sql(f"SELECT path FROM {pair.target_name}.manifests ORDER BY 1")[0].path)
    else:
        path = local_path(document["snapshots"][-1]["manifest-list"])

    with away(path):
        (reach,) = look(pair, "L1")

    (finding,) = reach.findings
    assert (finding.kind, local_path(finding.where)) == ("missing-file", path)
    assert finding.text.startswith(f"{kind} ")
    assert "not-looked-at" in reach.facts


def test_a_changed_value_among_equal_counts_is_named_with_its_column_partition_and_row(ends: Ends, events: str) -> None:
    pair = ends.registered(events)
    ends(f"UPDATE {pair.target_name} SET price = price + 0.001 WHERE id = 100")

    (contents,) = look(pair, "L2")

    assert not contents.ok
    assert contents.facts["source"]["rows"] == contents.facts["target"]["rows"] == ROWS
    assert [(finding.kind, finding.where) for finding in contents.findings] == [
        ("changed-values", "price"),
        ("changed-partition", "day=2026-01-02/bucket(2, id)=0"),
    ]
    (before,), (after,) = contents.facts["rows-only-at-source"], contents.facts["rows-only-at-target"]
    assert (json.loads(before)["id"], json.loads(before)["price"]) == (100, 12.5)
    assert (json.loads(after)["id"], json.loads(after)["price"]) == (100, 12.501)


def test_values_that_moved_to_other_rows_are_found_in_a_table_without_partitions(ends: Ends, events: str) -> None:
    ends("CREATE TABLE here.pairs (a INT, m MAP<STRING, INT>) USING iceberg")
    ends("INSERT INTO here.pairs VALUES (1, map('x', 2)), (2, map('x', 1)), (3, null)")
    rows = "SELECT * FROM VALUES (1, map('x', 1)), (2, map('x', 2)), (3, null) AS t(a, m)"

    (contents,) = look(ends.made("pairs", lambda: ends.sql.spark.sql(rows), "copy", {}), "L2")

    assert [finding.kind for finding in contents.findings] == ["changed-rows"]
    assert contents.facts["rows-only-at-source"] == ['{"a":1,"m":{"x":1}}', '{"a":2,"m":{"x":2}}']
    assert contents.facts["rows-only-at-target"] == ['{"a":1,"m":{"x":2}}', '{"a":2,"m":{"x":1}}']


def test_schema_drift_is_named_by_column(ends: Ends, events: str) -> None:
    pair = ends.registered(events)
    ends(f"ALTER TABLE {pair.target_name} RENAME COLUMN city TO town")
    ends(f"ALTER TABLE {pair.target_name} ALTER COLUMN place.name COMMENT 'of the place'")
    ends(f"ALTER TABLE {pair.target_name} ALTER COLUMN id DROP NOT NULL")
    ends(f"ALTER TABLE {pair.target_name} DROP COLUMN ok")

    identity, contents = look(pair, "L0", "L2")

    assert {finding.text for finding in identity.findings if finding.kind == "schema-drift"} >= {
        "column city is called town",
        "doc of column place.name was not set and is of the place",
        "required of column id was true and is false",
        "column ok is missing",
    }
    assert {(finding.kind, finding.where) for finding in contents.findings} >= {
        ("missing-column", "city"),
        ("missing-column", "ok"),
        ("new-column", "town"),
    }


def test_a_commit_to_the_source_is_noticed_before_and_while_it_is_verified(ends: Ends, events: str) -> None:
    name = f"{OLD}.db.busy"
    ends(f"CREATE TABLE {name} USING iceberg AS SELECT id FROM range(5)")
    pair = ends.registered(name)

    def rows_while_somebody_writes() -> "DataFrame":
        ends(f"INSERT INTO {name} VALUES (5)")
        return ends.sql.spark.table(name)

    (during,) = look(TablePair(**{**vars(pair), "source_rows": rows_while_somebody_writes}), "L2")
    before = look(pair, "L0", "L1")
    late = ends.client.register_table(pair.planned.target, ends.pointer(name), overwrite=True)
    caught_up = msgspec.structs.replace(pair.table, source_pointer=ends.pointer(name))
    after = look(TablePair(**{**vars(pair), "table": caught_up}), "L0", "L1", "L2")

    assert not during.ok
    assert during.findings[-1].kind == "moved-source"
    assert "while it was verified" in during.findings[-1].text
    assert [[finding.kind for finding in one.findings] for one in before] == [["moved-source"], ["moved-source"]]
    assert before[0].findings[0].where == ends.pointer(name)
    assert all(one.ok for one in after)
    assert after[0].target_pointer == late["metadata-location"]


def test_somebody_who_writes_to_the_target_meanwhile_is_noticed(ends: Ends, events: str) -> None:
    pair = ends.registered(events)

    def metadata_while_somebody_writes() -> dict[str, Any] | None:
        document = pair.source_metadata()
        ends(f"ALTER TABLE {pair.target_name} SET TBLPROPERTIES ('hurry' = 'yes')")
        return document

    (identity,) = look(TablePair(**{**vars(pair), "source_metadata": metadata_while_somebody_writes}), "L0")

    assert [finding.kind for finding in identity.findings] == ["moved-target"]


def test_a_table_that_is_at_one_end_only_is_not_green(ends: Ends, events: str) -> None:
    pair = ends.registered(events)

    gone = look(TablePair(**{**vars(pair), "source_pointer": lambda: ""}), "L0", "L2")
    nowhere = look(
        TablePair(**{**vars(pair), "planned": TablePlan("register", (ends.sql.namespace, "nowhere"))}), "L0", "L1"
    )

    assert [[finding.kind for finding in one.findings] for one in gone] == [["no-source"], ["no-source"]]
    assert [[finding.kind for finding in one.findings] for one in nowhere] == [["no-target"], ["no-target"]]


# Files that were no Iceberg table


@pytest.fixture
def folder(ends: Ends, shared_server: RunningServer) -> Path:
    """Parquet as Hive lays it out, with a partition of nulls."""
    place = shared_server.data / "warehouse" / f"folder_{next(NAMES)}"
    rows = "SELECT id, cast(id % 100 AS tinyint) AS small, nullif(concat('c', id % 3), 'c2') AS city FROM range(30)"
    ends.sql.frame(rows).write.partitionBy("city").parquet(f"file://{place}")
    assert (place / "city=__HIVE_DEFAULT_PARTITION__").is_dir()
    return place


def test_files_that_were_added_are_green_and_what_differs_by_right_is_said(ends: Ends, folder: Path) -> None:
    ends("CREATE TABLE here.added (id BIGINT, small INT, city STRING) USING iceberg PARTITIONED BY (city)")
    place = f"`parquet`.`file://{folder}`"
    ends(f"CALL lake.system.add_files(table => '{ends.sql.namespace}.added', source_table => '{place}')")
    columns = {"id": "bigint", "small": "tinyint", "city": "string"}

    def rows() -> "DataFrame":
        return ends.sql.spark.read.parquet(f"file://{folder}")

    identity, reach, contents, engines = verify(ends.made("added", rows, "add_files", columns))

    assert [one.findings for one in (identity, reach, contents, engines)] == [(), (), (), ()]
    assert identity.facts["compared"].startswith("columns only: add_files")
    assert identity.facts["accepted"] == ["type of column small was byte and is integer"]
    assert contents.facts["target"]["columns"]["city"]["nulls"] == 10


def test_nulls_of_a_partition_that_became_text_are_caught(ends: Ends, folder: Path) -> None:
    """As many rows as before, and another value in the column that the folders are named after."""

    def rows() -> "DataFrame":
        return ends.sql.spark.read.parquet(f"file://{folder}")

    rows().selectExpr("id", "small", "coalesce(city, '__HIVE_DEFAULT_PARTITION__') AS city").writeTo(
        f"lake.{ends.sql.namespace}.spoiled"
    ).using("iceberg").partitionedBy("city").create()

    (contents,) = look(ends.made("spoiled", rows, "copy", {}), "L2")

    assert contents.facts["source"]["rows"] == contents.facts["target"]["rows"] == 30
    assert [(finding.kind, finding.where) for finding in contents.findings] == [
        ("changed-values", "city"),
        ("changed-partition", "city is null"),
        ("changed-partition", "city=__HIVE_DEFAULT_PARTITION__"),
    ]


def test_padding_of_char_is_no_difference(ends: Ends, events: str) -> None:
    table = f"spark_catalog.default.padded_{next(NAMES)}"
    ends(f"CREATE TABLE {table} (id INT, code CHAR(5)) USING parquet")
    try:
        ends(f"INSERT INTO {table} VALUES (1, 'ab'), (2, 'abcde'), (3, null)")
        ends("CREATE TABLE here.padded (id INT, code STRING) USING iceberg")
        ends("INSERT INTO here.padded VALUES (1, 'ab'), (2, 'abcde'), (3, null)")
        pair = ends.made("padded", lambda: ends.sql.spark.table(table), "copy", {"id": "int", "code": "char(5)"})

        identity, contents = look(pair, "L0", "L2")
        ends("UPDATE here.padded SET code = ' ab' WHERE id = 1")
        (spoiled,) = look(pair, "L2")
    finally:
        ends(f"DROP TABLE {table}")

    assert (identity.findings, contents.findings) == ((), ())
    assert identity.facts["accepted"] == ["type of column code was char(5) and is string"]
    assert contents.facts["compared-without-trailing-spaces"] == ["code"]
    assert [finding.where for finding in spoiled.findings] == ["code"]  # only spaces at the end are let pass
