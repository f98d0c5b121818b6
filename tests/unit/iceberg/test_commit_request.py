"""What a commit looks like on the wire, and how a malformed one is answered."""

import json
from typing import Any

import pytest

from nunatak.errors import BadRequest
from nunatak.iceberg.commit_request import (
    AddSchema,
    AssertRefSnapshotId,
    SetProperties,
    TableIdentifier,
    decode_commit,
    decode_transaction,
)
from tests.unit.iceberg.builders import Json, a_schema, a_snapshot, requirement, update

ONE_OF_EACH_UPDATE = [
    update("assign-uuid", uuid="x"),
    update("upgrade-format-version", format_version=2),
    update("add-schema", schema=a_schema(), last_column_id=3),
    update("set-current-schema", schema_id=-1),
    update("add-spec", spec={"fields": []}),
    update("set-default-spec", spec_id=-1),
    update("add-sort-order", sort_order={"fields": []}),
    update("set-default-sort-order", sort_order_id=-1),
    update("add-snapshot", snapshot=a_snapshot(1)),
    update("set-snapshot-ref", ref_name="main", snapshot_id=1, type="branch"),
    update("set-current-snapshot", snapshot_id=1),
    update("remove-snapshots", snapshot_ids=[1]),
    update("remove-snapshot-ref", ref_name="main"),
    update("set-location", location="s3://x"),
    update("set-properties", updates={"a": "b"}),
    update("remove-properties", removals=["a"]),
    update("set-statistics", snapshot_id=1, statistics={}),
    update("remove-statistics", snapshot_id=1),
    update("set-partition-statistics", partition_statistics={}),
    update("remove-partition-statistics", snapshot_id=1),
    update("remove-partition-specs", spec_ids=[1]),
    update("remove-schemas", schema_ids=[1]),
    update("add-encryption-key", encryption_key={}),
    update("remove-encryption-key", key_id="k"),
    update("add-view-version", view_version={}),
    update("set-current-view-version", view_version_id=1),
]


def decode(commit: Any) -> Any:
    return decode_commit(json.dumps(commit).encode())


@pytest.mark.parametrize("each", ONE_OF_EACH_UPDATE, ids=lambda each: each["action"])
def test_every_action_is_understood_with_fields_of_the_future(each: Json) -> None:
    (decoded,) = decode({"updates": [each | {"x-future": {"a": 1}}], "x-future": 1}).updates

    assert decoded.__struct_config__.tag == each["action"]


def test_a_commit_is_read_with_its_requirements_updates_and_identifier() -> None:
    commit = decode(
        {
            "identifier": {"namespace": ["a", "b"], "name": "t"},
            "requirements": [requirement("assert-ref-snapshot-id", ref="main", snapshot_id=None)],
            "updates": [update("add-schema", schema=a_schema()), update("set-properties", updates={"a": "b"})],
        }
    )

    assert commit.identifier == TableIdentifier(["a", "b"], "t")
    assert commit.requirements == [AssertRefSnapshotId("main", None)]
    assert commit.updates == [AddSchema(a_schema()), SetProperties({"a": "b"})]


@pytest.mark.parametrize(
    ("commit", "message"),
    [
        ({"updates": [{"action": "paint"}]}, "Unknown update action: paint"),
        ({"requirements": [{"type": "assert-mood"}], "updates": []}, "Unknown requirement type: assert-mood"),
        ({}, "Malformed commit request: Object missing required field `updates`"),
        ([], "Malformed commit request: Expected `object`, got `array`"),
        ({"updates": {}}, "Malformed commit request: Expected `array`, got `object` - at `$.updates`"),
        ({"updates": [3]}, "Malformed commit request: Expected `object`, got `int` - at `$.updates[0]`"),
        (
            {"updates": [{"schema": {}}]},
            "Malformed commit request: Object missing required field `action` - at `$.updates[0]`",
        ),
        (
            {"updates": [{"action": 3}]},
            "Malformed commit request: Expected `str` - at `$.updates[0].action`",
        ),
        (
            {"updates": [update("add-schema", schema=3)]},
            "Malformed commit request: Expected `object`, got `int` - at `$.updates[0].schema`",
        ),
        (
            {"updates": [update("set-current-schema", schema_id=2**40)]},
            "Malformed commit request: Expected `int` <= 2147483647 - at `$.updates[0].schema-id`",
        ),
        (
            {"updates": [update("set-properties")]},
            "Malformed commit request: Object missing required field `updates` - at `$.updates[0]`",
        ),
        (
            {"updates": [update("remove-properties")]},
            "Malformed commit request: Object missing required field `removals` - at `$.updates[0]`",
        ),
        (
            {"updates": [], "requirements": [requirement("assert-table-uuid")]},
            "Malformed commit request: Object missing required field `uuid` - at `$.requirements[0]`",
        ),
    ],
)
def test_a_malformed_commit_is_refused_and_says_where(commit: Any, message: str) -> None:
    """000-67."""
    with pytest.raises(BadRequest) as refused:
        decode(commit)
    assert refused.value.message == message
    assert (refused.value.status, refused.value.iceberg_type) == (400, "BadRequestException")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"nonsense", b'{"updates": [1e999]}', b"\xff\xfe", b'{"updates": "\xff"}', b"[" * 100_000]
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    for read in (decode_commit, decode_transaction):
        with pytest.raises(BadRequest):
            read(data)


def test_a_transaction_names_each_of_its_tables() -> None:
    change: Json = {"identifier": {"namespace": ["a"], "name": "t"}, "requirements": [], "updates": []}

    (decoded,) = decode_transaction(json.dumps({"table-changes": [change]}).encode()).table_changes
    assert decoded.identifier == TableIdentifier(["a"], "t")

    del change["identifier"]
    with pytest.raises(BadRequest, match="missing required field `identifier`"):
        decode_transaction(json.dumps({"table-changes": [change]}).encode())


def test_an_unknown_action_inside_a_transaction_is_named() -> None:
    change = {"identifier": {"namespace": ["a"], "name": "t"}, "updates": [{"action": "paint"}]}

    with pytest.raises(BadRequest, match="Unknown update action: paint"):
        decode_transaction(json.dumps({"table-changes": [change]}).encode())
