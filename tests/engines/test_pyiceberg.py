"""PyIceberg, as its users run it: every catalog and table operation that the library offers over REST."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, TimestampType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tests.support.catalogs.process import RunningServer, running_server

CITIES = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])
CITIES_WITH_IDS = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "city", StringType()), identifier_field_ids=[1]
)
BY_CITY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="city"))
WAIT_SECONDS = 30  # for work the server does after its answer; a bound against hanging, not a promise of speed


@pytest.fixture
def catalog(shared_server: RunningServer) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=shared_server.uri)) as opened:
        yield opened


@pytest.fixture
def namespace(catalog: RestCatalog) -> str:
    """A namespace that no other test knows."""
    name = f"pyiceberg_{uuid.uuid4().hex[:12]}"
    catalog.create_namespace(name)
    return name


@pytest.fixture
def cities(catalog: RestCatalog, namespace: str) -> Table:
    """A table that holds Oslo and Bergen."""
    table = catalog.create_table((namespace, "cities"), CITIES)
    table.append(rows((1, "Oslo"), (2, "Bergen")))
    return table


def rows(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "city": city} for number, city in pairs], schema=CITIES)


def contents(table: Table, **scan: Any) -> list[tuple[int, str | None]]:
    """What a reader sees, from a fresh load of the table."""
    found = table.catalog.load_table(table.name()).scan(**scan).to_arrow().to_pylist()
    return sorted((row["id"], row["city"]) for row in found)


def local_path(location: str) -> Path:
    return Path(urlsplit(location).path)


# Wiring


@pytest.mark.parametrize(
    "root",
    ["", "/", "/v1", "/iceberg", "/iceberg/v1", "/apis/iceberg", "/apis/iceberg/v1", "/api/catalog", "/api/catalog/v1"],
)
@pytest.mark.parametrize("prefix", [None, "default"])
def test_every_way_to_write_the_uri_reaches_the_same_catalog(
    shared_server: RunningServer, cities: Table, root: str, prefix: str | None
) -> None:
    """MISSION: 000-03, 000-04, 000-11, 001-02, 003-01, 003-20"""
    properties = {"prefix": prefix} if prefix else {}
    with closing(load_catalog("lake", type="rest", uri=shared_server.uri + root, **properties)) as other:
        found = other.load_table(cities.name())
        found.append(rows((3, "Tromsø")))

    assert contents(cities) == [(1, "Oslo"), (2, "Bergen"), (3, "Tromsø")]


def test_a_uri_with_v1_a_warehouse_and_a_filtered_scan_work_together(
    shared_server: RunningServer, cities: Table
) -> None:
    """The wiring of the operations guide, without its credential. MISSION: 003-01, 003-63"""
    warehouse = (shared_server.data / "warehouse").as_uri()
    with closing(RestCatalog("lake", uri=f"{shared_server.uri}/v1", warehouse=warehouse, scope="catalog")) as other:
        found = other.load_table(cities.name()).scan(row_filter="id >= 2").to_arrow()

    assert found.num_rows == 1


def test_the_client_beats_the_defaults_of_the_server_and_the_overrides_beat_the_client(tmp_path: Path) -> None:
    """MISSION: 001-04"""
    locations = {name: (tmp_path / name).as_uri() for name in ("first", "second")}
    environment = {"NUNATAK_WAREHOUSE": locations["first"], "NUNATAK_WAREHOUSES": f"second={locations['second']}"}
    with running_server(tmp_path / "nunatak-data", environment=environment) as server:
        with closing(RestCatalog("lake", uri=server.uri)) as silent:
            assert silent.properties["warehouse"] == locations["first"]
        with closing(RestCatalog("lake", uri=server.uri, warehouse="second", prefix="mine")) as outspoken:
            assert outspoken.properties["warehouse"] == "second"
            assert outspoken.properties["prefix"] == "second"
            outspoken.create_namespace("own")
            table = outspoken.create_table("own.cities", CITIES)
            table.append(rows((1, "Oslo")))
            assert table.location().startswith(locations["second"])
            assert contents(table) == [(1, "Oslo")]
        with closing(RestCatalog("lake", uri=server.uri)) as silent:
            assert silent.list_namespaces() == []


# Namespaces


def test_namespaces_are_created_described_and_dropped(catalog: RestCatalog) -> None:
    """MISSION: 000-05, 000-08, 003-06"""
    name = f"pyiceberg_{uuid.uuid4().hex[:12]}"
    assert not catalog.namespace_exists(name)

    catalog.create_namespace(name, {"owner": "data-team", "tier": "gold"})
    summary = catalog.update_namespace_properties(name, removals={"tier", "absent"}, updates={"owner": "ops"})

    assert catalog.namespace_exists(name)
    assert (name,) in catalog.list_namespaces()
    properties = catalog.load_namespace_properties(name)
    assert properties["owner"] == "ops"
    assert "tier" not in properties
    assert (summary.updated, summary.removed, summary.missing) == (["owner"], ["tier"], ["absent"])

    catalog.drop_namespace(name)
    assert not catalog.namespace_exists(name)
    with pytest.raises(NoSuchNamespaceError):
        catalog.load_namespace_properties(name)


def test_a_namespace_is_created_once(catalog: RestCatalog, namespace: str) -> None:
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(namespace)
    catalog.create_namespace_if_not_exists(namespace)


def test_a_namespace_with_a_table_is_not_dropped(catalog: RestCatalog, cities: Table) -> None:
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(cities.name()[0])
    assert contents(cities) == [(1, "Oslo"), (2, "Bergen")]


def test_namespaces_nest(catalog: RestCatalog, namespace: str) -> None:
    catalog.create_namespace((namespace, "silver"))
    catalog.create_namespace((namespace, "gold"))
    catalog.create_namespace((namespace, "gold", "eu"))

    table = catalog.create_table((namespace, "gold", "eu", "cities"), CITIES)
    table.append(rows((1, "Oslo")))

    assert sorted(catalog.list_namespaces(namespace)) == [(namespace, "gold"), (namespace, "silver")]
    assert catalog.list_namespaces((namespace, "gold")) == [(namespace, "gold", "eu")]
    assert catalog.list_tables((namespace, "gold", "eu")) == [(namespace, "gold", "eu", "cities")]
    assert catalog.list_tables((namespace, "gold")) == []
    assert contents(table) == [(1, "Oslo")]


@pytest.mark.parametrize(
    "name", ["a/b", "a.b", "a b", "a+b", "Ærø–雪–снег", "50%", "50%25", "a&b=c?d#e", 'it\'s "it"', "x" * 200]
)
def test_a_name_may_hold_any_printable_character(catalog: RestCatalog, namespace: str, name: str) -> None:
    catalog.create_namespace((namespace, name), {"named": name})
    table = catalog.create_table((namespace, name, name), CITIES)
    table.append(rows((1, "Oslo")))

    assert catalog.list_namespaces(namespace) == [(namespace, name)]
    assert catalog.load_namespace_properties((namespace, name))["named"] == name
    assert catalog.list_tables((namespace, name)) == [(namespace, name, name)]
    assert catalog.table_exists((namespace, name, name))
    assert contents(table) == [(1, "Oslo")]

    catalog.rename_table((namespace, name, name), (namespace, name + "'"))
    assert contents(catalog.load_table((namespace, name + "'"))) == [(1, "Oslo")]
    catalog.drop_table((namespace, name + "'"))
    catalog.drop_namespace((namespace, name))
    assert catalog.list_namespaces(namespace) == []


# The life of a table


@pytest.mark.parametrize("version", [1, 2])
def test_a_table_of_either_format_version_is_created_written_and_read(
    catalog: RestCatalog, namespace: str, version: int
) -> None:
    """MISSION: 003-07"""
    table = catalog.create_table(
        (namespace, "cities"), CITIES, properties={"format-version": str(version), "owner": "ops"}
    )
    table.append(rows((1, "Oslo")))

    loaded = catalog.load_table((namespace, "cities"))
    assert loaded.format_version == version
    assert loaded.properties["owner"] == "ops"
    assert "format-version" not in loaded.properties
    assert contents(loaded) == [(1, "Oslo")]
    assert local_path(loaded.metadata_location).is_file()


def test_a_table_of_format_version_three_is_created_and_changed(catalog: RestCatalog, namespace: str) -> None:
    """PyIceberg reads version three and writes its metadata, though no rows yet."""
    table = catalog.create_table((namespace, "cities"), CITIES, properties={"format-version": "3"})
    with table.transaction() as transaction:
        transaction.set_properties(owner="ops")
    with table.update_schema() as update:
        update.add_column("height", DoubleType())

    loaded = catalog.load_table((namespace, "cities"))
    assert loaded.format_version == 3
    assert loaded.properties["owner"] == "ops"
    assert [field.name for field in loaded.schema().fields] == ["id", "city", "height"]
    assert loaded.scan().to_arrow().num_rows == 0


def test_a_table_is_upgraded_to_format_version_two(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "cities"), CITIES, properties={"format-version": "1"})
    table.append(rows((1, "Oslo")))

    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table.append(rows((2, "Bergen")))

    assert table.format_version == 2
    assert contents(table) == [(1, "Oslo"), (2, "Bergen")]


def test_a_table_is_created_once(catalog: RestCatalog, cities: Table) -> None:
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(cities.name(), CITIES)
    assert catalog.create_table_if_not_exists(cities.name(), CITIES).metadata.table_uuid == cities.metadata.table_uuid


def test_a_table_needs_its_namespace(catalog: RestCatalog) -> None:
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table((f"absent_{uuid.uuid4().hex}", "cities"), CITIES)


def test_a_table_that_does_not_exist_is_reported_as_such(catalog: RestCatalog, namespace: str) -> None:
    assert not catalog.table_exists((namespace, "absent"))
    with pytest.raises(NoSuchTableError):
        catalog.load_table((namespace, "absent"))
    with pytest.raises(NoSuchTableError):
        catalog.drop_table((namespace, "absent"))


def test_a_renamed_table_keeps_its_identity(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 000-87, 003-07"""
    namespace = cities.name()[0]
    catalog.create_namespace((namespace, "archive"))

    renamed = catalog.rename_table(cities.name(), (namespace, "archive", "towns"))
    renamed.append(rows((3, "Tromsø")))

    assert renamed.metadata.table_uuid == cities.metadata.table_uuid
    assert contents(renamed) == [(1, "Oslo"), (2, "Bergen"), (3, "Tromsø")]
    assert not catalog.table_exists(cities.name())


def test_a_rename_never_replaces_a_table(catalog: RestCatalog, cities: Table) -> None:
    namespace = cities.name()[0]
    catalog.create_table((namespace, "towns"), CITIES)

    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(cities.name(), (namespace, "towns"))
    assert contents(cities) == [(1, "Oslo"), (2, "Bergen")]


def test_a_dropped_table_keeps_its_files_and_can_be_registered_again(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 003-17, 003-47"""
    catalog.drop_table(cities.name())
    assert not catalog.table_exists(cities.name())

    restored = catalog.register_table((cities.name()[0], "restored"), cities.metadata_location)

    assert restored.metadata.table_uuid == cities.metadata.table_uuid
    restored.append(rows((3, "Tromsø")))
    assert contents(restored) == [(1, "Oslo"), (2, "Bergen"), (3, "Tromsø")]
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table(restored.name(), cities.metadata_location)


def test_a_registered_table_from_before_uuids_is_written_to(catalog: RestCatalog, cities: Table) -> None:
    """A client that is told no uuid makes one up, and asserts it with each commit."""
    old = json.loads(local_path(cities.metadata_location).read_text())
    for name in (
        "table-uuid",
        "schemas",
        "partition-specs",
        "current-schema-id",
        "default-spec-id",
        "last-partition-id",
    ):
        del old[name]
    fields = cities.schema().model_dump(by_alias=True)["fields"]
    folder = local_path(cities.metadata_location).parents[2] / "before"
    (folder / "metadata").mkdir(parents=True)
    old |= {"format-version": 1, "location": f"file://{folder}", "schema": {"type": "struct", "fields": fields}}
    old |= {"partition-spec": [], "snapshots": [], "current-snapshot-id": -1, "refs": {}, "snapshot-log": []}
    file = folder / "metadata" / "v1.metadata.json"
    file.write_text(json.dumps(old))

    before = catalog.register_table((cities.name()[0], "before"), f"file://{file}")
    before.append(rows((3, "Tromsø")))

    assert contents(catalog.load_table(before.name())) == [(3, "Tromsø")]


def test_registering_with_overwrite_points_a_table_at_older_metadata(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 003-47"""
    older = cities.metadata_location
    cities.append(rows((3, "Tromsø")))

    catalog.register_table(cities.name(), older, overwrite=True)

    assert contents(cities) == [(1, "Oslo"), (2, "Bergen")]


def test_a_purged_table_leaves_no_file_behind(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 002-17, 002-18"""
    cities.append(rows((3, "Tromsø")))
    neighbour = catalog.create_table((cities.name()[0], "towns"), CITIES)
    neighbour.append(rows((4, "Bodø")))
    files = [local_path(task.file.file_path) for task in cities.scan().plan_files()] + [
        local_path(cities.metadata_location)
    ]
    assert len(files) == 3
    assert all(path.is_file() for path in files)

    catalog.purge_table(cities.name())

    assert not catalog.table_exists(cities.name())
    deadline = time.monotonic() + WAIT_SECONDS
    while any(path.exists() for path in files) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [path for path in files if path.exists()] == []
    assert contents(neighbour) == [(4, "Bodø")]


def test_a_table_may_lie_at_a_chosen_place_of_the_warehouse(catalog: RestCatalog, cities: Table) -> None:
    location = f"{cities.location()}-chosen"
    table = catalog.create_table((cities.name()[0], "chosen"), CITIES, location=location)
    table.append(rows((1, "Oslo")))

    assert table.location() == location
    assert local_path(table.metadata_location).is_relative_to(local_path(location))
    assert contents(table) == [(1, "Oslo")]


def test_a_staged_table_appears_with_its_first_rows(catalog: RestCatalog, namespace: str) -> None:
    """MISSION: 002-13"""
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    with catalog.create_table_transaction(
        (namespace, "cities"), CITIES_WITH_IDS, partition_spec=BY_CITY, sort_order=order, properties={"owner": "ops"}
    ) as transaction:
        transaction.append(rows((1, "Oslo"), (2, "Bergen")))
        assert not catalog.table_exists((namespace, "cities"))

    table = catalog.load_table((namespace, "cities"))
    assert contents(table) == [(1, "Oslo"), (2, "Bergen")]
    assert [field.name for field in table.spec().fields] == ["city"]
    assert len(table.sort_order().fields) == 1
    assert table.properties["owner"] == "ops"


def test_a_staged_table_loses_against_one_created_meanwhile(catalog: RestCatalog, namespace: str) -> None:
    """MISSION: 000-40"""
    transaction = catalog.create_table_transaction((namespace, "cities"), CITIES)
    winner = catalog.create_table((namespace, "cities"), CITIES)

    with pytest.raises((CommitFailedException, TableAlreadyExistsError)):
        transaction.commit_transaction()

    assert catalog.load_table((namespace, "cities")).metadata.table_uuid == winner.metadata.table_uuid


# Writing rows


def test_overwrite_replaces_all_rows_or_those_that_match(cities: Table) -> None:
    cities.overwrite(rows((3, "Tromsø"), (4, "Bodø")))
    assert contents(cities) == [(3, "Tromsø"), (4, "Bodø")]

    cities.overwrite(rows((5, "Narvik")), overwrite_filter="id = 4")
    assert contents(cities) == [(3, "Tromsø"), (5, "Narvik")]


def test_delete_removes_the_rows_that_match(cities: Table) -> None:
    cities.delete("city = 'Oslo'")
    assert contents(cities) == [(2, "Bergen")]
    assert cities.current_snapshot().summary.operation.value == "overwrite"

    cities.delete("id = 2")
    assert contents(cities) == []
    assert cities.current_snapshot().summary.operation.value == "delete"


def test_upsert_updates_and_inserts_in_one_commit(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "cities"), CITIES_WITH_IDS)
    table.append(rows((1, "Oslo"), (2, "Bergen")))

    result = table.upsert(rows((2, "Bryggen"), (3, "Tromsø")))

    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert contents(table) == [(1, "Oslo"), (2, "Bryggen"), (3, "Tromsø")]


def test_a_dynamic_partition_overwrite_touches_only_its_partitions(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "cities"), CITIES_WITH_IDS, partition_spec=BY_CITY)
    table.append(rows((1, "Oslo"), (2, "Oslo"), (3, "Bergen")))

    table.dynamic_partition_overwrite(rows((9, "Oslo")))

    assert contents(table) == [(3, "Bergen"), (9, "Oslo")]


def test_existing_parquet_files_join_a_table(cities: Table) -> None:
    file = local_path(cities.location()) / "data" / "found.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows((3, "Tromsø")), file)

    cities.add_files([file.as_uri()])

    assert contents(cities) == [(1, "Oslo"), (2, "Bergen"), (3, "Tromsø")]


def test_one_transaction_changes_schema_properties_and_rows_together(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 000-34"""
    before = len(cities.metadata.metadata_log)
    with cities.transaction() as transaction:
        transaction.set_properties(owner="ops")
        with transaction.update_schema() as schema:
            schema.add_column("height", DoubleType())
        transaction.append(rows((3, "Tromsø")).append_column("height", pa.array([10.0])))

    loaded = catalog.load_table(cities.name())
    assert loaded.properties["owner"] == "ops"
    assert loaded.scan(row_filter="id = 3").to_arrow().to_pylist() == [{"id": 3, "city": "Tromsø", "height": 10.0}]
    assert len(loaded.metadata.metadata_log) == before + 1


# Evolution


def test_columns_are_added_renamed_moved_promoted_made_optional_and_dropped(
    catalog: RestCatalog, namespace: str
) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "city", StringType()),
        NestedField(3, "height", FloatType(), required=True),
        NestedField(4, "gone", StringType()),
    )
    table = catalog.create_table((namespace, "cities"), schema)
    arrow = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("city", pa.string()),
            pa.field("height", pa.float32(), nullable=False),
        ]
    )
    table.append(pa.Table.from_pylist([{"id": 1, "city": "Oslo", "height": 23.5}], schema=arrow))

    with table.update_schema() as update:
        update.add_column("country", StringType(), doc="where it lies")
        update.rename_column("city", "town")
        update.update_column("id", LongType())
        update.update_column("height", DoubleType(), required=False)
        update.delete_column("gone")
        update.move_first("country")
        update.move_after("height", "id")

    loaded = catalog.load_table((namespace, "cities"))
    assert [field.name for field in loaded.schema().fields] == ["country", "id", "height", "town"]
    assert [field.field_id for field in loaded.schema().fields] == [5, 1, 3, 2]
    assert loaded.schema().find_type("id") == LongType()
    assert loaded.schema().find_field("country").doc == "where it lies"
    assert loaded.metadata.last_column_id == 5
    assert len(loaded.schemas()) == 2
    assert loaded.scan().to_arrow().to_pylist() == [{"country": None, "id": 1, "height": 23.5, "town": "Oslo"}]


def test_a_schema_change_against_a_stale_schema_is_refused(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 000-33, 000-43"""
    stale = catalog.load_table(cities.name())
    with cities.update_schema() as update:
        update.add_column("first", LongType())

    with pytest.raises(CommitFailedException), stale.update_schema() as update:
        update.add_column("second", LongType())

    assert [field.name for field in catalog.load_table(cities.name()).schema().fields] == ["id", "city", "first"]


def test_the_partitioning_of_a_table_evolves(catalog: RestCatalog, namespace: str) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "seen", TimestampType()))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=MonthTransform(), name="seen_month"))
    table = catalog.create_table((namespace, "visits"), schema, partition_spec=spec)
    arrow = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seen", pa.timestamp("us"))])
    table.append(pa.table({"id": [1], "seen": [1_700_000_000_000_000]}, schema=arrow))

    with table.update_spec() as update:
        update.remove_field("seen_month")
        update.add_field("seen", DayTransform(), "seen_day")
        update.add_field("id", BucketTransform(4), "id_bucket")
    table.append(pa.table({"id": [2], "seen": [1_700_100_000_000_000]}, schema=arrow))

    loaded = catalog.load_table((namespace, "visits"))
    assert [field.name for field in loaded.spec().fields] == ["seen_day", "id_bucket"]
    assert loaded.metadata.last_partition_id == 1002
    assert len(loaded.specs()) == 2
    assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert loaded.scan(row_filter="id = 2").count() == 1


def test_the_sort_order_of_a_table_evolves(catalog: RestCatalog, cities: Table) -> None:
    with cities.update_sort_order() as update:
        update.desc("city", IdentityTransform(), NullOrder.NULLS_LAST).asc("id", IdentityTransform())

    order = catalog.load_table(cities.name()).sort_order()
    assert order.order_id == 1
    assert [(field.source_id, field.direction) for field in order.fields] == [
        (2, SortDirection.DESC),
        (1, SortDirection.ASC),
    ]


def test_properties_change_in_commits(catalog: RestCatalog, cities: Table) -> None:
    with cities.transaction() as transaction:
        transaction.set_properties({"owner": "ops", "comment": "of Norway"})
    with cities.transaction() as transaction:
        transaction.remove_properties("comment")

    loaded = catalog.load_table(cities.name())
    assert loaded.properties["owner"] == "ops"
    assert "comment" not in loaded.properties


# Snapshots, branches, tags, statistics


def test_older_snapshots_stay_readable(cities: Table) -> None:
    first = cities.current_snapshot()
    cities.delete("id = 1")
    cities.append(rows((3, "Tromsø")))

    assert contents(cities) == [(2, "Bergen"), (3, "Tromsø")]
    assert contents(cities, snapshot_id=first.snapshot_id) == [(1, "Oslo"), (2, "Bergen")]
    assert cities.snapshot_as_of_timestamp(first.timestamp_ms).snapshot_id == first.snapshot_id
    assert [entry.snapshot_id for entry in cities.history()] == [
        snapshot.snapshot_id for snapshot in cities.snapshots()
    ]


def test_branches_and_tags_are_written_read_and_removed(catalog: RestCatalog, cities: Table) -> None:
    first = cities.current_snapshot().snapshot_id
    cities.manage_snapshots().create_tag(first, "v1").create_branch(first, "audit").commit()

    cities.append(rows((3, "Tromsø")), branch="audit")
    cities.append(rows((4, "Bodø")))

    loaded = catalog.load_table(cities.name())
    assert sorted(loaded.refs()) == ["audit", "main", "v1"]
    assert sorted(loaded.scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert sorted(loaded.scan().use_ref("v1").to_arrow()["id"].to_pylist()) == [1, 2]
    assert contents(loaded) == [(1, "Oslo"), (2, "Bergen"), (4, "Bodø")]

    loaded.manage_snapshots().remove_tag("v1").remove_branch("audit").commit()
    assert sorted(catalog.load_table(cities.name()).refs()) == ["main"]


def test_a_table_rolls_back(cities: Table) -> None:
    first = cities.current_snapshot().snapshot_id
    cities.append(rows((3, "Tromsø")))

    cities.manage_snapshots().rollback_to_snapshot(first).commit()

    assert contents(cities) == [(1, "Oslo"), (2, "Bergen")]
    assert cities.current_snapshot().snapshot_id == first


def test_expired_snapshots_leave_the_metadata(catalog: RestCatalog, cities: Table) -> None:
    first = cities.current_snapshot().snapshot_id
    cities.append(rows((3, "Tromsø")))

    cities.maintenance.expire_snapshots().by_id(first).commit()

    loaded = catalog.load_table(cities.name())
    assert [snapshot.snapshot_id for snapshot in loaded.snapshots()] == [cities.current_snapshot().snapshot_id]
    assert contents(loaded) == [(1, "Oslo"), (2, "Bergen"), (3, "Tromsø")]


def test_statistics_are_set_and_removed(catalog: RestCatalog, cities: Table) -> None:
    snapshot = cities.current_snapshot()
    blob = BlobMetadata(
        type="apache-datasketches-theta-v1",
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number,
        fields=[1],
        properties={"ndv": "2"},
    )
    statistics = StatisticsFile(
        snapshot_id=snapshot.snapshot_id,
        statistics_path=f"{cities.location()}/metadata/cities.puffin",
        file_size_in_bytes=413,
        file_footer_size_in_bytes=42,
        blob_metadata=[blob],
    )
    with cities.update_statistics() as update:
        update.set_statistics(statistics)
    assert catalog.load_table(cities.name()).metadata.statistics == [statistics]

    with cities.update_statistics() as update:
        update.remove_statistics(snapshot.snapshot_id)
    assert catalog.load_table(cities.name()).metadata.statistics == []


def test_the_metadata_file_says_what_the_server_says(catalog: RestCatalog, cities: Table) -> None:
    """The served metadata and the file behind its location are one state. MISSION: 000-06, 000-09"""
    older = cities.metadata_location
    with cities.transaction() as transaction:
        transaction.set_properties(owner="ops")

    loaded = catalog.load_table(cities.name())
    assert loaded.metadata_location != older
    assert StaticTable.from_metadata(loaded.metadata_location).metadata == loaded.metadata
    assert "owner" not in StaticTable.from_metadata(older).properties


# Concurrency


def test_concurrent_appends_all_arrive(shared_server: RunningServer, catalog: RestCatalog, namespace: str) -> None:
    """MISSION: 000-36, 000-38, 003-23, 003-24"""
    writers, appends = 4, 4
    patience = {"commit.retry.num-retries": "40", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "200"}
    table = catalog.create_table((namespace, "cities"), CITIES, properties=patience)
    failures: list[Exception] = []
    start = threading.Barrier(writers)

    def write(writer: int) -> None:
        try:
            with closing(RestCatalog("lake", uri=shared_server.uri)) as own:
                mine = own.load_table(table.name())
                start.wait(WAIT_SECONDS)
                for number in range(appends):
                    mine.append(rows((writer * appends + number, f"writer {writer}")))
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert failures == []
    assert [number for number, _ in contents(table)] == list(range(writers * appends))
    assert len(catalog.load_table(table.name()).snapshots()) == writers * appends


def test_a_stale_overwrite_is_refused_and_loses_nothing(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 000-36, 000-42, 000-69"""
    with cities.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    stale = catalog.load_table(cities.name())
    cities.append(rows((3, "Tromsø")))

    with pytest.raises(CommitFailedException):
        stale.overwrite(rows((9, "nothing else")))

    assert contents(cities) == [(1, "Oslo"), (2, "Bergen"), (3, "Tromsø")]


# Views


def a_view_version(namespace: str, sql: str) -> ViewVersion:
    representation = ViewRepresentation(root=SQLViewRepresentation(type="sql", sql=sql, dialect="spark"))
    return ViewVersion(
        version_id=1,
        schema_id=0,
        summary={"engine": "pyiceberg"},
        representations=[representation],
        default_namespace=(namespace,),
    )


def test_views_are_created_loaded_listed_and_dropped(catalog: RestCatalog, cities: Table) -> None:
    """MISSION: 000-07"""
    namespace = cities.name()[0]
    sql = "SELECT id, city FROM cities WHERE id > 1"
    created = catalog.create_view(
        (namespace, "some"), CITIES, a_view_version(namespace, sql), properties={"owner": "ops"}
    )

    loaded = catalog.load_view((namespace, "some"))
    assert loaded.uuid() == created.uuid()
    assert loaded.sql_for("spark").sql == sql
    assert loaded.properties["owner"] == "ops"
    assert [field.name for field in loaded.schema().fields] == ["id", "city"]
    assert catalog.list_views(namespace) == [(namespace, "some")]
    assert catalog.list_tables(namespace) == [(namespace, "cities")]
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view((namespace, "some"), CITIES, a_view_version(namespace, sql))

    catalog.drop_view((namespace, "some"))
    assert not catalog.view_exists((namespace, "some"))
    with pytest.raises(NoSuchViewError):
        catalog.load_view((namespace, "some"))


def test_a_view_and_a_table_cannot_share_a_name(catalog: RestCatalog, cities: Table) -> None:
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view(cities.name(), CITIES, a_view_version(cities.name()[0], "SELECT 1 AS id, 'x' AS city"))
    assert not catalog.view_exists(cities.name())
