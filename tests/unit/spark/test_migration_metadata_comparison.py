"""What two metadata documents say about one table, without Spark."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from nunatak_spark.migration.metadata_comparison import (
    compare_columns,
    compare_documents,
    document_digest,
    document_facts,
    normalize_document,
    replaced_types,
)

Json = dict[str, Any]


def a_document(**changes: Any) -> Json:
    """A partitioned v2 table with two snapshots, a tag, statistics and a nested column."""
    fields = [
        {"id": 1, "name": "id", "required": True, "type": "long", "doc": "the key"},
        {"id": 2, "name": "city", "required": False, "type": "string", "write-default": "Oslo"},
        {
            "id": 3,
            "name": "place",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 4, "name": "lat", "required": False, "type": "double"}]},
        },
        {
            "id": 5,
            "name": "tags",
            "required": False,
            "type": {"type": "list", "element-id": 6, "element": "decimal(9, 2)", "element-required": False},
        },
    ]
    return {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:///lake/t",
        "last-column-id": 6,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": [1]}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {"owner": "anna"},
        "current-snapshot-id": 12,
        "snapshots": [{"snapshot-id": 11, "manifest-list": "a"}, {"snapshot-id": 12, "manifest-list": "b"}],
        "refs": {"main": {"type": "branch", "snapshot-id": 12}, "v1": {"type": "tag", "snapshot-id": 11}},
        "statistics": [{"snapshot-id": 12, "statistics-path": "s", "file-size-in-bytes": 9}],
        **changes,
    }


def set_column(key: str, value: Any) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        document["schemas"][0]["fields"][1][key] = value

    return change


def set_member(member: str, value: Any) -> Callable[[Json], None]:
    return lambda document: document.__setitem__(member, value)


def drop_column(document: Json) -> None:
    del document["schemas"][0]["fields"][1]


def add_column(document: Json) -> None:
    document["schemas"][0]["fields"].append({"id": 7, "name": "new", "required": False, "type": "int"})


def move_column(document: Json) -> None:
    fields = document["schemas"][0]["fields"]
    fields[0], fields[1] = fields[1], fields[0]


def widen_inside(document: Json) -> None:
    document["schemas"][0]["fields"][2]["type"]["fields"][0]["type"] = "float"


def require_element(document: Json) -> None:
    document["schemas"][0]["fields"][3]["type"]["element-required"] = True


DIFFERENCES = {
    "uuid": (set_member("table-uuid", "other"), "other-uuid", "table-uuid", "the table's uuid was 9c12d441"),
    "format": (set_member("format-version", 3), "other-format-version", "format-version", "was 2 and is 3"),
    "location": (set_member("location", "file:///x"), "other-location", "location", "file:///x"),
    "current snapshot": (
        set_member("current-snapshot-id", 11),
        "other-snapshot",
        "current-snapshot-id",
        "12 and is 11",
    ),
    "no snapshot": (set_member("current-snapshot-id", -1), "other-snapshot", "current-snapshot-id", "is not set"),
    "property": (set_member("properties", {"owner": "ben"}), "other-property", "owner", "was anna and is ben"),
    "new property": (set_member("properties", {"owner": "anna", "x": "1"}), "other-property", "x", "was not set"),
    "lost ref": (
        set_member("refs", {}),
        "other-ref",
        "v1",
        "a tag on snapshot 11 at the source, nothing at the target",
    ),
    "lost snapshot": (
        lambda document: document["snapshots"].pop(0),
        "other-snapshots",
        "snapshots",
        "snapshot 11 is missing",
    ),
    "other manifest list": (
        lambda document: document["snapshots"][0].update({"manifest-list": "z"}),
        "other-snapshots",
        "snapshots",
        "snapshot 11 differs",
    ),
    "lost statistics": (
        set_member("statistics", []),
        "other-statistics",
        "statistics",
        "the statistics file of snapshot 12 is missing",
    ),
    "spec": (
        set_member("partition-specs", [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": []}]),
        "other-spec",
        "partition-specs",
        "partition spec 1 is not at the source",
    ),
    "sort order": (
        set_member("sort-orders", [{"order-id": 0, "fields": [{"source-id": 1}]}]),
        "other-sort-order",
        "sort-orders",
        "sort order 0 differs",
    ),
    "anything else": (set_member("last-column-id", 9), "other-metadata", "last-column-id", "last-column-id"),
    "renamed column": (set_column("name", "town"), "schema-drift", "city", "column city is called town"),
    "retyped column": (set_column("type", "binary"), "schema-drift", "city", "type of column city was string and is"),
    "required column": (set_column("required", True), "schema-drift", "city", "required of column city was false"),
    "documented column": (set_column("doc", "where"), "schema-drift", "city", "doc of column city was not set"),
    "other default": (set_column("write-default", "Bodø"), "schema-drift", "city", "write-default of column city"),
    "dropped column": (drop_column, "schema-drift", "city", "column city is missing"),
    "added column": (add_column, "schema-drift", "new", "column new is not at the source"),
    "moved column": (move_column, "schema-drift", "city", "column city has another position"),
    "nested type": (widen_inside, "schema-drift", "place.lat", "type of column place.lat was double and is float"),
    "nested required": (require_element, "schema-drift", "tags.element", "required of column tags.element"),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_each_difference_is_named(case: str) -> None:
    """MISSION: 003-66"""
    change, kind, where, text = DIFFERENCES[case]
    target = copy.deepcopy(a_document())
    change(target)

    found = compare_documents(a_document(), target)

    assert any(one.kind == kind and one.where == where and text in one.text for one in found), found


def test_the_same_document_has_no_differences() -> None:
    facts = document_facts(a_document(), a_document())

    assert compare_documents(a_document(), a_document()) == ()
    assert facts["source-metadata-sha256"] == facts["target-metadata-sha256"]
    assert facts["refs"] == {"main": 12, "v1": 11}


def test_what_may_be_written_in_several_ways_is_the_same() -> None:
    document = a_document(refs={"main": {"type": "branch", "snapshot-id": 12}}, statistics=[])
    other = copy.deepcopy(document)
    del other["refs"], other["statistics"]  # main follows from the current snapshot
    other["snapshots"].reverse()
    other["schemas"][0]["fields"][3]["type"]["element"] = "decimal(9,2)"
    other["sort-orders"] = [*other["sort-orders"]]
    other["encryption-keys"] = None

    found = compare_documents(document, other)

    assert [one.text for one in found] == ["schema 0 differs"]  # the spelling, and no column with it
    assert compare_documents(a_document(snapshots=[], **{"current-snapshot-id": -1, "refs": {}}), a_document(
        snapshots=[], **{"current-snapshot-id": None, "refs": {}}
    )) == ()  # fmt: skip


def test_a_version_one_document_is_understood() -> None:
    fields = [{"id": 1, "name": "id", "required": False, "type": "int"}]
    older = {"format-version": 1, "schema": {"type": "struct", "fields": fields}, "partition-spec": []}
    newer = {
        "format-version": 1,
        "schema": {"type": "struct", "fields": fields},
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
    }

    assert compare_documents(older, newer) == ()
    assert document_digest(normalize_document(older)) == document_digest(normalize_document(newer))


def test_thousands_of_missing_snapshots_are_one_finding() -> None:
    source = a_document(snapshots=[{"snapshot-id": n} for n in range(3000)])

    (found,) = compare_documents(source, {**source, "snapshots": [{"snapshot-id": 7}]})

    assert found.text == "snapshots 0, 1, 2, 3, 4 and 2994 more are missing"


# Tables that were made anew


def spark_schema(*fields: Json) -> Json:
    return {"type": "struct", "fields": [{"nullable": True, "metadata": {}, **field} for field in fields]}


def test_documented_widenings_are_accepted_and_said() -> None:
    source = spark_schema(
        {"name": "tiny", "type": "byte"},
        {"name": "code", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}},
        {"name": "id", "type": "long", "nullable": False},
        {"name": "userid", "type": "long"},
    )
    target = spark_schema(
        {"name": "userId", "type": "long"},
        {"name": "id", "type": "long"},
        {"name": "code", "type": "string"},
        {"name": "tiny", "type": "integer"},
    )

    found = compare_columns(source, target)

    assert found.findings == []
    assert found.accepted == [
        "type of column tiny was byte and is integer",
        "type of column code was char(3) and is string",
        "id may be null, which it might not at the source",
        "userid is written userId",
    ]


def test_drift_of_a_copied_table_is_named_however_deep() -> None:
    def schema(inner: str, *more: Json) -> Json:
        array = {"type": "array", "elementType": spark_schema({"name": "x", "type": inner}), "containsNull": True}
        kept = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
        return spark_schema({"name": "list", "type": array}, {"name": "map", "type": kept}, *more)

    found = compare_columns(schema("integer", {"name": "gone", "type": "date"}), schema("string"))

    assert [(one.kind, one.where, one.text) for one in found.findings] == [
        ("schema-drift", "list.element.x", "type of column list.element.x was integer and is string"),
        ("schema-drift", "map.value", "type of column map.value was integer and is string"),
        ("schema-drift", "gone", "column gone is missing"),
    ]


def test_a_column_that_may_no_longer_be_null_is_drift() -> None:
    found = compare_columns(
        spark_schema({"name": "a", "type": "long"}), spark_schema({"name": "a", "type": "long", "nullable": False})
    )

    assert [one.text for one in found.findings] == ["column a may not be null any more"]


def test_types_that_spark_cannot_write_are_told() -> None:
    def with_columns(key: str, digest: str, deep: str) -> Json:
        inner = {"type": "struct", "fields": [{"id": 3, "name": "key", "required": False, "type": deep}]}
        kinds = {"key": key, "digest": digest, "in": inner, "city": "string"}
        fields = [
            {"id": n, "name": name, "required": False, "type": kind} for n, (name, kind) in enumerate(kinds.items())
        ]
        return a_document(schemas=[{"type": "struct", "schema-id": 0, "fields": fields}])

    assert replaced_types(with_columns("uuid", "fixed[16]", "uuid"), with_columns("string", "binary", "string")) == [
        "type of column key was uuid and is string",
        "type of column digest was fixed[16] and is binary",
        "type of column in.key was uuid and is string",
    ]
