"""What may be registered: every file the reference loads, and none that it refuses; its words were taken from it."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from nunatak.errors import BadRequest, IllegalArgument
from nunatak.iceberg import table_metadata
from nunatak.iceberg.java_readable import check_table, contradictions
from nunatak.iceberg.shapes import EncryptedKeyShape, PartitionStatisticsFileShape, StatisticsFileShape, read_object
from tests.unit.iceberg.builders import (
    NOW_MS,
    Json,
    a_field,
    a_list,
    a_schema,
    a_spec,
    a_struct,
    a_table,
    an_order,
)

MINUTE_MS = 60_000
MISSING = "Cannot find source column for partition field: 1000: p: bucket[4](99)"
NO_MAP = "Cannot parse string map from non-object value: properties: null"

SCHEMA = a_schema(
    a_field(1, "id", required=True),
    a_field(2, "data", "string"),
    a_field(3, "s", a_struct(a_field(6, "x", "int"))),
    a_field(4, "l", a_list(7, "int")),
    a_field(5, "b", "boolean"),
)
BLOB = {"type": "t", "snapshot-id": 2, "sequence-number": 2, "fields": [1], "properties": {"ndv": "1"}}
STATISTICS = {
    "snapshot-id": 2,
    "statistics-path": "s3://bucket/table/metadata/2.puffin",
    "file-size-in-bytes": 10,
    "file-footer-size-in-bytes": 5,
    "blob-metadata": [BLOB],
}
KEY = {"key-id": "k", "encrypted-key-metadata": "a2V5", "properties": {"a": "b"}}


def a_file(format_version: int = 2) -> Json:
    """With two snapshots, a tag, statistics, a second spec, an order, both logs, and in v3 a key."""
    table = a_table(format_version, schema=SCHEMA, spec=a_spec(("id_b", "bucket[4]", 1)), snapshots=2)
    document: Json = json.loads(table_metadata.encode(table))
    document["partition-specs"].append({"spec-id": 1, "fields": []})
    document["sort-orders"].append(an_order(("identity", 1), order_id=1))
    document["default-sort-order-id"] = 1
    document["refs"]["old"] = {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 1000}
    document["statistics"] = [deepcopy(STATISTICS)]
    document["partition-statistics"] = [
        {"snapshot-id": 2, "statistics-path": "s3://bucket/table/metadata/p", "file-size-in-bytes": 10}
    ]
    document["metadata-log"] = [
        {"timestamp-ms": NOW_MS, "metadata-file": "s3://bucket/table/metadata/0.metadata.json"},
        {"timestamp-ms": NOW_MS + 1, "metadata-file": "s3://bucket/table/metadata/1.metadata.json"},
    ]
    if format_version >= 3:
        document["encryption-keys"] = [KEY]
    return document


def an_old_file() -> Json:
    """As the first writers of v1 left it."""
    document = a_file(1)
    newer = (
        "table-uuid", "schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id",
        "sort-orders", "default-sort-order-id", "properties", "refs", "statistics", "partition-statistics",
        "snapshot-log", "metadata-log",
    )  # fmt: skip
    for name in newer:
        del document[name]
    del document["schema"]["schema-id"]
    document["partition-spec"] = [{"name": "id_b", "transform": "bucket[4]", "source-id": 1}]
    return document


def put(document: Json, path: str, value: object) -> Json:
    """`path` is names and places with dots between them."""
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at: Any = document
    for step in way:
        at = at[step]
    at[last] = value
    return document


def without(document: Json, path: str) -> Json:
    way, _, last = path.rpartition(".")
    at: Any = document
    for step in way.split(".") if way else ():
        at = at[int(step) if step.isdigit() else step]
    del at[last]
    return document


def check(document: Json) -> None:
    data = json.dumps(document).encode()
    check_table(data, table_metadata.decode(data))


def a_partition(name: str, transform: str, source_id: int) -> list[Json]:
    return [{"name": name, "transform": transform, "source-id": source_id, "field-id": 1000}]


def a_sort(transform: str, source_id: int, **more: str) -> list[Json]:
    return [{"transform": transform, "source-id": source_id, "direction": "asc", "null-order": "nulls-first", **more}]


# What the reference loads


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_a_good_file_may_be_registered(format_version: int) -> None:
    check(a_file(format_version))
    check(json.loads(table_metadata.encode(a_table(format_version))))


def test_a_file_of_the_first_writers_may_be_registered() -> None:
    check(an_old_file())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        # Somebody's clock may be a minute wrong.
        ("snapshot-log.1.timestamp-ms", NOW_MS + 1 - MINUTE_MS),
        ("metadata-log.1.timestamp-ms", NOW_MS - MINUTE_MS),
        ("last-updated-ms", NOW_MS + 2 - MINUTE_MS),
        # Nothing is said of these but by a check of the whole catalog.
        ("snapshot-log.1.snapshot-id", 77),
        ("last-column-id", 2),
        ("last-partition-id", 999),
        # Nulls that are read as nothing.
        ("snapshot-log", None),
        ("metadata-log", None),
        ("refs.old.max-ref-age-ms", None),
        ("refs.old.min-snapshots-to-keep", None),
        ("snapshots.0.schema-id", None),
        ("snapshots.0.first-row-id", None),
        ("snapshots.0.key-id", None),
        ("snapshots.0.manifests", None),
        ("schemas.0.fields.0.doc", None),
        ("schemas.0.identifier-field-ids", None),
        ("from-the-future", None),
        ("statistics.0.from-the-future", None),
        # A spec or an order that is not the default may be about columns that are gone.
        ("partition-specs.1.fields", a_partition("p", "bucket[4]", 99)),
        ("partition-specs.1.fields", a_partition("data", "identity", 99)),
        ("partition-specs.1.fields", a_partition("p", "identity", 3)),
        ("partition-specs.1.fields", a_partition("p", "identity", 7)),
        ("sort-orders.0", an_order(("identity", 99), order_id=2)),
        ("sort-orders.0", an_order(("year", 1), order_id=2)),
        # The default may be about them if it does nothing with them.
        ("partition-specs.0.fields", a_partition("p", "void", 99)),
        ("partition-specs.0.fields", a_partition("p", "VOID", 3)),
        ("partition-specs.0.fields", a_partition("p", "from the future", 1)),
        ("partition-specs.0.fields", a_partition("id", "bucket[2]", 1)),
        ("partition-specs.0.fields", a_partition("s.x", "identity", 6)),
        ("sort-orders.1.fields", a_sort("identity", 7)),
        ("sort-orders.1.fields", a_sort("identity", 1, direction="ASC")),
        ("refs.main.type", "BRANCH"),
        ("properties", {}),
    ],
)
def test_what_the_reference_loads_may_be_registered(path: str, value: object) -> None:
    check(put(a_file(), path, value))


@pytest.mark.parametrize(
    "path",
    [
        "refs", "snapshot-log", "metadata-log", "statistics", "partition-statistics", "properties",
        "snapshots.0.sequence-number", "snapshots.0.summary", "statistics.0.blob-metadata.0.properties",
    ],
)  # fmt: skip
def test_what_may_be_missing_may_be_missing(path: str) -> None:
    check(without(a_file(), path))


@pytest.mark.parametrize("key", ["a2V5", "a2V5YQ==", "a2V5YQ", "a2V5YWI=", "a2V5YWI", ""])
def test_a_key_needs_no_padding(key: str) -> None:
    check(put(a_file(3), "encryption-keys", [KEY | {"encrypted-key-metadata": key}]))


# What it refuses


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "last-sequence-number",
            0,
            "Invalid snapshot with sequence number 1 greater than last sequence number 0",
        ),
        ("snapshot-log.1.timestamp-ms", NOW_MS - MINUTE_MS, "[BUG] Expected sorted snapshot log entries."),
        (
            "last-updated-ms",
            NOW_MS + 1 - MINUTE_MS,
            f"Invalid update timestamp {NOW_MS + 1 - MINUTE_MS}: before last snapshot log entry at {NOW_MS + 2}",
        ),
        (
            "metadata-log.1.timestamp-ms",
            NOW_MS - MINUTE_MS - 1,
            "[BUG] Expected sorted previous metadata log entries.",
        ),
        (
            "metadata-log.1.timestamp-ms",
            NOW_MS * 2,
            f"Invalid update timestamp {NOW_MS + 2}: before the latest metadata log entry timestamp {NOW_MS * 2}",
        ),
        ("refs.main.max-ref-age-ms", -1, "Max reference age must be greater than 0"),
        ("refs.main.max-snapshot-age-ms", 0, "Max snapshot age must be greater than 0 ms"),
        ("refs.main.min-snapshots-to-keep", 0, "Min snapshots to keep must be greater than 0"),
        ("refs.old.min-snapshots-to-keep", 1, "Tags do not support setting minSnapshotsToKeep"),
        ("refs.old.max-snapshot-age-ms", 1, "Tags do not support setting maxSnapshotAgeMs"),
        ("partition-specs.0.fields", a_partition("p", "bucket[4]", 99), MISSING),
        (
            "partition-specs.0.fields",
            a_partition("p", "identity", 3),
            "Cannot partition by non-primitive source field: struct<6: x: optional int>",
        ),
        ("partition-specs.0.fields", a_partition("p", "identity", 7), "Invalid partition field parent: list<int>"),
        ("partition-specs.1.fields", a_partition("p", "bucket[4]", 5), "Cannot bucket by type: boolean"),
        ("partition-specs.1.fields", a_partition("p", "truncate[4]", 5), "Cannot truncate type: boolean"),
        ("partition-specs.1.fields", a_partition("p", "year", 1), "Unsupported type: long"),
        (
            "partition-specs.1.fields",
            a_partition("data", "identity", 1),
            "Cannot create identity partition sourced from different field in schema: data",
        ),
        (
            "partition-specs.1.fields",
            a_partition("p", "identity", 1) * 2,
            "Cannot use partition name more than once: p",
        ),
        (
            "partition-specs.1.fields",
            a_partition("p", "bucket[0]", 1),
            "Invalid number of buckets: 0 (must be > 0)",
        ),
        (
            "partition-specs.0.fields.0.field-id",
            None,
            "Cannot parse to an integer value: field-id: null",
        ),
        (
            "sort-orders.1.fields",
            a_sort("identity", 99),
            "Cannot find source column for sort field: identity(99) ASC NULLS FIRST",
        ),
        ("sort-orders.1.fields", a_sort("hour", 1), "Unsupported type: long"),
        ("sort-orders.0", an_order(("identity", 1), order_id=0), "Sort order ID 0 is reserved for unsorted order"),
        ("sort-orders.0", an_order(order_id=2), "Unsorted order ID must be 0"),
        ("sort-orders.1.fields", a_sort("identity", 1, direction="up"), "Invalid sort direction: up"),
        ("properties", None, NO_MAP),
        ("refs", None, "Cannot parse refs from non-object: null"),
        ("statistics", None, "Cannot parse statistics files from non-array: null"),
        ("partition-statistics", None, "Cannot parse partition statistics files from non-array: null"),
        (
            "encryption-keys",
            None,
            "Cannot parse JSON array from non-array value: encryption-keys: null",
        ),
        ("statistics.0.blob-metadata.0.properties", None, NO_MAP),
        ("encryption-keys", [KEY | {"properties": None}], NO_MAP),
        (
            "encryption-keys",
            [KEY | {"encrypted-key-metadata": "%%"}],
            "Cannot parse encryption key: encrypted-key-metadata is not base64",
        ),
        ("encryption-keys", [KEY, KEY], f"Duplicate key {KEY['key-id']}"),
        ("snapshots.0.sequence-number", None, "Cannot parse to a long value: sequence-number: null"),
        ("snapshots.0.parent-snapshot-id", None, "Cannot parse to a long value: parent-snapshot-id: null"),
        ("snapshots.0.summary", None, "Cannot parse summary from non-object value: null"),
        ("snapshots.0.manifest-list", None, "Cannot parse to a string value: manifest-list: null"),
        ("snapshots.0.first-row-id", -1, "Invalid first-row-id (cannot be negative): -1"),
        ("snapshots.0.first-row-id", 1, "Invalid added-rows (required when first-row-id is set): null"),
        ("snapshots.0.added-rows", -1, "Invalid added-rows (cannot be negative): -1"),
        ("schemas.0.fields.1.initial-default", None, "Cannot create expression literal from null"),
        ("schemas.0.fields.2.type.fields.0.write-default", None, "Cannot create expression literal from null"),
    ],
)
def test_what_the_reference_refuses_is_refused_in_its_words(path: str, value: object, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check(put(a_file(), path, value))

    assert refused.value.message == message
    assert refused.value.hint is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: without(file, "snapshots.0.manifest-list"), "Cannot parse missing list: manifests"),
        (
            lambda file: put(without(file, "snapshots.0.manifest-list"), "snapshots.0.manifests", None),
            "Cannot parse JSON array from non-array value: manifests: null",
        ),
        (
            lambda file: put(file, "snapshots.0.sequence-number", 1),
            "Invalid snapshot with sequence number 1 greater than last sequence number 0",
        ),
        (lambda file: put(file, "schemas", None), "Cannot parse schemas from non-array: null"),
        (lambda file: put(file, "partition-specs", None), "Cannot parse partition specs from non-array: null"),
        (lambda file: put(file, "sort-orders", None), "Sort orders cannot be null or empty"),
        (
            lambda file: put(put(file, "current-snapshot-id", -1), "refs", {}) | {"snapshots": None},
            "Cannot parse missing field: snapshots",
        ),
    ],
)
def test_what_the_reference_refuses_of_v1_is_refused(change: Callable[[Json], Json], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check(change(a_file(1)))

    assert refused.value.message == message


def test_the_one_spec_of_an_old_file_has_to_fit_its_schema() -> None:
    spec = {"name": "p", "transform": "bucket[4]", "source-id": 99}
    with pytest.raises(BadRequest, match="Cannot find source column for partition field"):
        check(put(an_old_file(), "partition-spec", [spec]))
    with pytest.raises(BadRequest, match="Cannot parse to an integer value: field-id: null"):
        check(put(an_old_file(), "partition-spec", [spec | {"source-id": 1, "field-id": None}]))

    check(put(an_old_file(), "partition-spec", [spec | {"transform": "void"}]))


def test_the_hint_says_what_the_file_says() -> None:
    def hint(path: str, value: object) -> str | None:
        with pytest.raises(BadRequest) as refused:
            check(put(a_file(), path, value))
        return refused.value.hint

    end = "; clients on Iceberg's Java library, such as Spark, could not load it."
    assert hint("properties", None) == f"In this file properties is null{end}"
    assert hint("snapshots.1.summary", None) == f"In this file snapshots[1].summary is null{end}"
    assert hint("schemas.0.fields.1.write-default", None) == (
        f"In this file the write-default of the column data is null{end}"
    )
    assert hint("last-updated-ms", 5) == (
        f"In this file last-updated-ms is 5, but the snapshot log ends at {NOW_MS + 2}{end}"
    )
    assert hint("refs.old.max-ref-age-ms", 0) == (
        f'In this file the reference old says {{"snapshot-id":1,"type":"tag","max-ref-age-ms":0}}{end}'
    )


# What a check of the catalog tells of the same


def test_a_check_of_the_catalog_tells_all_that_the_reference_refuses() -> None:
    document = a_file()
    put(document, "refs.old.max-ref-age-ms", 0)
    put(document, "partition-specs.0.fields", a_partition("p", "bucket[4]", 99))
    put(document, "encryption-keys", [KEY | {"properties": None}])
    put(document, "last-updated-ms", 5)

    assert contradictions(table_metadata.decode(json.dumps(document).encode())) == [
        f'partition spec 0 says [{{"name":"p","transform":"bucket[4]","source-id":99,"field-id":1000}}]: {MISSING}',
        'the reference old says {"snapshot-id":1,"type":"tag","max-ref-age-ms":0}: '
        "Max reference age must be greater than 0",
        "encryption-keys[0].properties is null",
        f"last-updated-ms is 5, but the snapshot log ends at {NOW_MS + 2}",
        f"last-updated-ms is 5, but the previous metadata log ends at {NOW_MS + 1}",
    ]


def test_a_check_of_the_catalog_finds_nothing_in_good_files() -> None:
    for document in (a_file(1), a_file(2), a_file(3), an_old_file()):
        assert contradictions(table_metadata.decode(json.dumps(document).encode())) == []


# Nulls that a client sends


def test_nulls_that_a_client_sends_are_not_written_down() -> None:
    blob = {name: value for name, value in BLOB.items() if name != "properties"}
    sent = STATISTICS | {"blob-metadata": [blob | {"properties": None}], "one": None, "another": {"a": None}}

    read = read_object(sent, StatisticsFileShape, "statistics")

    assert read == STATISTICS | {"blob-metadata": [blob], "another": {"a": None}}
    partition = {"snapshot-id": 2, "statistics-path": "s3://p", "file-size-in-bytes": 1}
    assert read_object(partition | {"x": None}, PartitionStatisticsFileShape, "partition statistics") == partition
    bare = {"key-id": "k", "encrypted-key-metadata": "a2V5"}
    assert read_object(bare | {"encrypted-by-id": None, "properties": None}, EncryptedKeyShape, "key") == bare


def test_a_null_that_stands_for_something_needed_is_refused() -> None:
    with pytest.raises(IllegalArgument, match=r"Cannot parse encryption key: .*key-id"):
        read_object(KEY | {"key-id": None}, EncryptedKeyShape, "encryption key")
