"""Every kind of source, moved and moved back: what it holds afterwards is what it held before, at either end.

MISSION 003-65 to 003-71: inventory, shadow, pilot, cut-over and the way back, for each kind of catalog.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from nunatak.client import Client
from nunatak_spark.comparison import compare
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.migration.metastore import Metastore
from nunatak_spark.migration.model import LEVELS, InventoryTable, Method, MigrationSource, TablePlan, sql_name
from nunatak_spark.migration.planning_rules import PlanOptions
from nunatak_spark.migration.sources.folder import folder_source, read_files
from nunatak_spark.migration.sources.glue import glue_source
from nunatak_spark.migration.sources.hadoop import hadoop_source
from nunatak_spark.migration.sources.hive import hive_source
from nunatak_spark.migration.sources.jdbc import jdbc_source
from nunatak_spark.migration.sources.rest import rest_source
from nunatak_spark.migration.sources.source_catalog import add_source_catalog
from tests.spark.migration.conftest import TARGET
from tests.spark.migration.moving import Move, states
from tests.support.glue import REGION, declare_in_glue, grant_in_glue
from tests.support.hive_metastore import PARQUET, TEXT, add_hive_partition, create_hive_table, grant
from tests.support.reference import ReferenceServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
HADOOP_FILES = {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}  # the target keeps its files there, too


@dataclass
class Kind:
    """A source with tables in it: how each is to move, how to read it there, and how somebody writes one more row."""

    source: MigrationSource
    methods: dict[str, Method]
    rows: Callable[[str], "DataFrame"]
    write: Callable[[], object]
    freezes: bool = True
    unfrozen: set[str] = field(default_factory=set)
    team: str | None = None  # a property of the namespace


def test_a_hadoop_catalog_moves_and_moves_back(spark: "SparkSession", move: Move, name: str, tmp_path: Path) -> None:
    source = hadoop_source(name, str(tmp_path / "hadoop"), {})

    there_and_back(move, iceberg_source(spark, source, name))


def test_a_rest_catalog_moves_and_moves_back(
    spark: "SparkSession", move: Move, name: str, reference: ReferenceServer
) -> None:
    source = rest_source(name, reference.uri, None, {}, {})

    there_and_back(move, iceberg_source(spark, source, name))


def test_glue_moves_and_moves_back(spark: "SparkSession", move: Move, name: str, tmp_path: Path, aws: str) -> None:
    """Iceberg's tables, and Hive's own; and who was granted what by Lake Formation."""
    source = glue_source(name, aws, REGION, None, {**HADOOP_FILES, "warehouse": f"file:{tmp_path / 'glue'}"})
    kind = iceberg_source(spark, source, name)
    location = f"file:{tmp_path}/files"
    spark.sql("SELECT id, concat('e', id) AS what FROM range(5)").write.parquet(location)
    declare_in_glue(aws, (name, "events"), location, {"id": "bigint", "what": "string"}, PARQUET)
    grant_in_glue(aws, (name, "cities"), "arn:aws:iam::123456789012:user/alice", "SELECT")
    kind.methods |= {f"{name}.events": "add_files"}
    kind.unfrozen = {f"{name}.events"}
    kind.rows = either_kind(move)

    there_and_back(move, kind)

    assert f"nunatak grant add principal:alice READ table:default/{name}/cities" in move.whole().grants


def test_nessie_is_copied_and_its_tables_come_back(
    spark: "SparkSession", move: Move, name: str, aws: str, nessie_catalog: str
) -> None:
    """Its tables lie in a store that the target does not reach, so that every row is read and written anew."""
    storage = {"s3.endpoint": aws, "s3.path-style-access": "true", "client.region": REGION}
    headers = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    kind = iceberg_source(spark, rest_source(name, f"{nessie_catalog}/main", None, headers, storage), name)
    kind.methods = {f"{name}.cities": "copy"}

    there_and_back(move, kind)


def test_a_catalog_that_pyiceberg_made_in_a_database_moves_and_moves_back(
    spark: "SparkSession", move: Move, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "catalog.db"
    rows = pyarrow.table({"id": [1, 2, 3], "city": ["Oslo", None, "Bergen"]})
    with closing(SqlCatalog(name, uri=f"sqlite:///{file}", warehouse=f"file://{tmp_path}/lake")) as catalog:
        catalog.create_namespace(name)
        table = catalog.create_table((name, "cities"), rows.schema)
        table.append(rows)
        source = jdbc_source(name, f"jdbc:sqlite:{file}", None, {})
        add_source_catalog(spark, source, {})

        there_and_back(
            move,
            Kind(
                source,
                {f"{name}.cities": "register"},
                lambda one: spark.table(f"{name}.{one}"),
                lambda: catalog.load_table((name, "cities")).append(rows),
            ),
        )


def test_a_hive_metastore_moves_and_moves_back(
    spark: "SparkSession", move: Move, name: str, tmp_path: Path, metastore: str
) -> None:
    """Iceberg's tables, and Hive's own with partitions, one of them null, and with text."""
    source = hive_source(name, metastore, {"warehouse": f"file:{tmp_path}/warehouse"})
    kind = iceberg_source(spark, source, name)
    location, columns = f"file:{tmp_path}/files/events", {"id": "bigint", "what": "varchar(20)"}
    events = "SELECT id, concat('e', id) AS what, IF(id % 3 = 0, NULL, cast(id % 3 AS string)) AS part FROM range(10)"
    spark.sql(events).write.partitionBy("part").parquet(location)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "000000_0").write_text('1,first\n2,\\N\n3,it\'s "quoted"\n')
    with Metastore(metastore) as hive:
        create_hive_table(hive, (name, "events"), location, columns, PARQUET, partitions={"part": "string"})
        for value in ("1", "2", NULL_PARTITION):
            add_hive_partition(hive, (name, "events"), (value,), f"{location}/part={value}", columns, PARQUET)
        notes = {"id": "int", "note": "string"}
        create_hive_table(hive, (name, "notes"), f"file:{tmp_path}/notes", notes, TEXT, managed=True)
        grant(hive, (name, "events"), "alice", "SELECT")
    kind.methods |= {f"{name}.events": "add_files", f"{name}.notes": "copy"}
    kind.unfrozen = {f"{name}.notes"}  # Hive moves the files of a managed table with its name

    kind.rows = either_kind(move)

    there_and_back(move, kind)

    found = found_by_name(move)
    assert {risk.kind for risk in found[f"{name}.events"].risks} == {"char", "null-partition"}
    assert {risk.kind for risk in found[f"{name}.notes"].risks} == {"managed"}
    assert f"nunatak grant add principal:alice READ table:default/{name}/events" in move.whole().grants


def test_folders_of_files_move_and_move_back(spark: "SparkSession", move: Move, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    frame = spark.sql("SELECT id, cast(id AS decimal(9,2)) AS price, concat('n', id) AS what FROM range(7)")
    frame.selectExpr("*", "id % 2 AS even").write.partitionBy("even").parquet(f"file:{folder}/{name}/parquet")
    frame.write.orc(f"file:{folder}/{name}/orc")
    (folder / name / "csv").mkdir()
    (folder / name / "csv" / "a.csv").write_text("id,what\n1,a\n2,\n")
    (folder / name / "json").mkdir()
    more = folder / name / "json" / "b.jsonl"
    (folder / name / "json" / "a.jsonl").write_text(json.dumps({"id": 1, "tags": ["x", None], "in": {"k": 1.5}}) + "\n")
    source = folder_source(name, str(folder), None, {})

    def write() -> None:
        more.write_text(json.dumps({"id": 2, "tags": [], "in": None, "a column that came late": True}) + "\n")

    there_and_back(
        move,
        Kind(
            source,
            {
                f"{name}.parquet": "add_files",
                f"{name}.orc": "add_files",
                f"{name}.csv": "copy",
                f"{name}.json": "copy",
            },
            lambda one: read_files(spark, found_by_name(move)[one]),
            write,
            freezes=False,
        ),
    )

    assert "a column that came late" in {column.name for column in found_by_name(move)[f"{name}.json"].columns}


def test_a_rollback_of_files_names_the_ones_that_are_gone(
    spark: "SparkSession", move: Move, name: str, tmp_path: Path
) -> None:
    """The target was made of the source's own files, so their list is known although the source keeps none."""
    folder = tmp_path / "files" / name / "parquet"
    spark.range(10).repartition(2).write.parquet(f"file:{folder}")
    move.inventory(folder_source(name, str(tmp_path / "files"), None, {}))
    move.plan()
    assert states(move.shadow()) == {f"{name}.parquet": "shadowed"}
    lost = min(folder.glob("*.parquet"))
    lost.unlink()

    refused = move.roll_back()[f"{name}.parquet"]

    assert (refused.state, refused.failed_at) == ("shadowed", "rollback")
    assert "1 of " in refused.problem
    assert lost.name in refused.problem
    assert states(move.roll_back(accept_loss=True)) == {f"{name}.parquet": "rolled-back"}


# What is the same for all of them


def iceberg_source(spark: "SparkSession", source: MigrationSource, namespace: str) -> Kind:
    """One table with partitions and a delete, in a namespace of its own."""
    add_source_catalog(spark, source, {})
    table = f"{source.name}.{namespace}.cities"
    if source.kind != "hadoop":
        spark.sql(f"CREATE NAMESPACE {source.name}.{namespace} WITH PROPERTIES ('team' = 'geo')")
    properties = "TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    spark.sql(
        f"CREATE TABLE {table} (id bigint, city string, day date) USING iceberg PARTITIONED BY (day) {properties}"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 'Oslo', DATE'2024-01-01'), (2, NULL, NULL), (3, 'x', DATE'2024-01-02')")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    return Kind(
        source,
        {f"{namespace}.cities": "register"},
        lambda one: spark.table(f"{source.name}.{one}"),
        lambda: spark.sql(f"INSERT INTO {table} VALUES (4, 'Bergen', DATE'2024-01-02')"),
        team=None if source.kind == "hadoop" else "geo",
    )


def found_by_name(move: Move) -> dict[str, InventoryTable]:
    return {".".join(table.found.name): table.found for table in move.whole().tables}


def either_kind(move: Move) -> Callable[[str], "DataFrame"]:
    """How to read tables of a metastore, Iceberg's and Hive's own."""

    def rows(one: str) -> "DataFrame":
        found = found_by_name(move)[one]
        return move.spark.table(f"{found.source}.{one}") if found.kind == "iceberg" else read_files(move.spark, found)

    return rows


def flags(move: Move, planned: Mapping[str, TablePlan]) -> dict[str, str | None]:
    """How the target flags each table."""
    with Client(move.uri) as client:
        found = {name: client.find_shadow(plan.target) for name, plan in planned.items()}
    return {name: None if flag is None else flag["state"] for name, flag in found.items()}


def there_and_back(move: Move, kind: Kind) -> None:
    """Inventory, plan, shadow, a commit meanwhile, verification, cut-over, rollback; others' tables stay out of it."""
    spark, ours = move.spark, f"{kind.source.name}."
    assert {name for name in move.inventory(kind.source) if name.startswith(ours)} == set(kind.methods)
    copied = tuple(name for name, method in kind.methods.items() if method == "copy")
    plans = move.plan(PlanOptions(include=(f"{ours}*",), copy=copied))
    planned = {name: table.planned for name, table in plans.items() if table.planned is not None}
    assert {name: plan.method for name, plan in planned.items()} == kind.methods
    assert states(move.shadow()) == dict.fromkeys(kind.methods, "shadowed")
    assert flags(move, planned) == dict.fromkeys(kind.methods, "shadow")
    with Client(move.uri) as client:
        properties = client.load_namespace((kind.source.name,))["properties"]
        assert properties.get("team") == kind.team

    kind.write()  # a commit during the migration: verification finds it and catches up

    assert states(move.verify()) == dict.fromkeys(kind.methods, "verified")
    before = {name: fingerprint(spark, kind.rows(name)) for name in kind.methods}
    for name in kind.methods:
        assert {each.level: each.ok for each in move.evidence(name)} == dict.fromkeys(LEVELS, True)
        there = fingerprint(spark, sql_name(TARGET, planned[name].target))
        assert compare(before[name], there).same_data

    done = states(move.cut_over(freeze=kind.freezes))
    if kind.unfrozen:
        assert all("cannot be frozen" in done[name] for name in kind.unfrozen)
        done = states(move.cut_over(freeze=False))
    assert done == dict.fromkeys(kind.methods, "done")
    # A copy has files of its own; the others share them with the source until that is retired.
    assert flags(move, planned) == {name: None if name in copied else "cut-over" for name in kind.methods}
    assert move.late_writes() == {}
    if kind.freezes:
        with pytest.raises(Exception, match=r"unsupported version|does not exist|NOT_FOUND"):
            kind.write()
    else:
        kind.write()
        assert {name: found[0].kind for name, found in move.late_writes().items()} == {f"{ours}json": "late-write"}

    assert states(move.roll_back()) == dict.fromkeys(kind.methods, "rolled-back")
    said = [line.text for line in move.whole().log if line.command == "rollback"]
    assert sum("every file is still there" in text for text in said) == len(kind.methods) - len(copied)
    with Client(move.uri) as client:
        assert not any(client.table_exists(plan.target) for plan in planned.values())
    for name in planned:
        assert compare(before[name], fingerprint(spark, kind.rows(name))).same_data
    kind.write()
