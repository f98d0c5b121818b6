"""What a register refuses because other clients could not load it, and what it must not refuse."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.wire import a_commit, add_snapshot, ok, path_of, set_branch, set_properties
from tests.support.catalogs.local import LocalCatalog

REGISTER, REGISTER_VIEW = path_of("ns") + "/register", path_of("ns") + "/register-view"
NO_MAP = "Cannot parse string map from non-object value: properties: null"
ILLEGAL, INVALID = "IllegalArgumentException", "ValidationException"


@pytest.fixture
def full(catalog: LocalCatalog) -> LocalCatalog:
    catalog.table("ns", "t", properties={"format-version": "2"})
    ok(catalog.commit("ns", "t", a_commit(add_snapshot(1), set_branch(1))))
    catalog.view("ns", "v", properties={"a": "b"})
    return catalog


def a_file(catalog: LocalCatalog, kind: str = "tables", **changes: Any) -> dict[str, str]:
    """A request to register what the table or the view says, with changes."""
    folder = catalog.warehouse / "foreign"
    folder.mkdir()
    metadata = catalog.load("ns", "t" if kind == "tables" else "v", kind)["metadata"]
    file = folder / "v1.metadata.json"
    file.write_text(json.dumps(metadata | {"location": f"file://{folder}"} | changes))
    return {"name": "foreign", "metadata-location": f"file://{file}"}


def a_spec(transform: str, source_id: int) -> list[dict[str, Any]]:
    field = {"name": "p", "transform": transform, "source-id": source_id, "field-id": 1000}
    return [{"spec-id": 0, "fields": [field]}]


Change = Callable[[dict[str, Any]], dict[str, Any]]
REFUSED: list[tuple[Change, str, str]] = [
    (
        lambda now: {"last-sequence-number": 0},
        INVALID,
        "Invalid snapshot with sequence number 1 greater than last sequence number 0",
    ),
    (
        lambda now: {"snapshot-log": [*now["snapshot-log"], {"timestamp-ms": 5, "snapshot-id": 1}]},
        ILLEGAL,
        "[BUG] Expected sorted snapshot log entries.",
    ),
    (
        lambda now: {"last-updated-ms": 5, "snapshot-log": [{"timestamp-ms": 70_000, "snapshot-id": 1}]},
        ILLEGAL,
        "Invalid update timestamp 5: before last snapshot log entry at 70000",
    ),
    (
        lambda now: {
            "metadata-log": [{"timestamp-ms": at, "metadata-file": f"file:///{at}.metadata.json"} for at in (70_000, 1)]
        },
        ILLEGAL,
        "[BUG] Expected sorted previous metadata log entries.",
    ),
    (
        lambda now: {"partition-specs": a_spec("bucket[4]", 99)},
        INVALID,
        "Cannot find source column for partition field: 1000: p: bucket[4](99)",
    ),
    (
        lambda now: {"refs": {"main": now["refs"]["main"] | {"max-ref-age-ms": -1}}},
        ILLEGAL,
        "Max reference age must be greater than 0",
    ),
    (lambda now: {"properties": None}, ILLEGAL, NO_MAP),
]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(("change", "kind", "message"), REFUSED)
def test_a_table_that_java_cannot_load_is_not_registered(
    full: LocalCatalog, change: Change, kind: str, message: str, *, overwrite: bool
) -> None:
    before = full.load("ns", "t")
    body: dict[str, Any] = a_file(full, **change(before["metadata"])) | {"overwrite": overwrite}
    if overwrite:
        body["name"] = "t"
    state, files = full.state(), full.files()

    refused = full.call("POST", REGISTER, body)

    assert refused.error == (400, kind, message)
    assert refused.hint.startswith("In this file ")
    assert full.state() == state
    assert full.files() == files
    assert full.load("ns", "t") == before


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"partition-specs": a_spec("void", 99)},
        {"snapshot-log": None, "metadata-log": None, "from-the-future": None},
        {"last-column-id": 1},
    ],
)
def test_a_table_that_java_can_load_is_registered(full: LocalCatalog, changes: dict[str, Any]) -> None:
    ok(full.call("POST", REGISTER, a_file(full, **changes)))

    ok(full.commit("ns", "foreign", a_commit(set_properties(a="b"))))


def test_a_view_that_java_cannot_load_is_not_registered(full: LocalCatalog) -> None:
    body = a_file(full, "views", properties=None)
    state = full.state()

    refused = full.call("POST", REGISTER_VIEW, body)

    assert refused.error == (400, ILLEGAL, NO_MAP)
    assert refused.hint == (
        "In this file properties is null; clients on Iceberg's Java library, such as Spark, could not load it."
    )
    assert full.state() == state


def test_a_view_whose_column_has_null_for_a_default_is_not_registered(full: LocalCatalog) -> None:
    schema = full.load("ns", "v", "views")["metadata"]["schemas"][0]
    schema["fields"][1]["write-default"] = None

    refused = full.call("POST", REGISTER_VIEW, a_file(full, "views", schemas=[schema]))

    assert refused.error == (400, ILLEGAL, "Cannot create expression literal from null")


def test_a_view_that_java_can_load_is_registered(full: LocalCatalog) -> None:
    ok(full.call("POST", REGISTER_VIEW, a_file(full, "views", **{"from-the-future": None})))


def test_what_was_registered_before_there_were_checks_is_still_served_and_committed_to(full: LocalCatalog) -> None:
    body = a_file(full)
    ok(full.call("POST", REGISTER, body))
    stricter = {"properties": None, "last-sequence-number": 0, "partition-specs": a_spec("bucket[4]", 99)}
    file = full.warehouse / "foreign" / "v2.metadata.json"
    metadata = json.loads((full.warehouse / "foreign" / "v1.metadata.json").read_text())
    file.write_text(json.dumps(metadata | stricter))
    location = f"file://{file}"
    full.rows("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'foreign'", location)

    assert full.load("ns", "foreign")["metadata-location"] == location
    committed = ok(full.commit("ns", "foreign", a_commit(set_properties(a="b"))))

    assert committed["metadata"]["properties"] == {"a": "b"}


@pytest.mark.parametrize("adopted", [False, True], ids=["registered", "put there by another client"])
@pytest.mark.parametrize("written", ["missing", "null"])
def test_a_table_whose_file_has_no_uuid_is_served_with_the_one_it_goes_by(
    full: LocalCatalog, written: str, adopted: bool
) -> None:
    """Clients make one up where they find none, and would never be let in with it."""
    full.table("ns", "old", properties={"format-version": "1"})
    metadata = full.load("ns", "old")["metadata"] | {"table-uuid": None}
    if written == "missing":
        del metadata["table-uuid"]
    folder = full.warehouse / "foreign"
    folder.mkdir()
    file = folder / "v1.metadata.json"
    file.write_text(json.dumps(metadata | {"location": f"file://{folder}"}, indent=2) + "\n")
    if adopted:
        columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        full.rows(
            f"INSERT INTO iceberg_tables ({columns}) VALUES ('default', 'ns', 'foreign', ?, 'TABLE')", f"file://{file}"
        )
    else:
        ok(full.call("POST", REGISTER, {"name": "foreign", "metadata-location": f"file://{file}"}))

    loaded = full.load("ns", "foreign")["metadata"]
    same = {"type": "assert-table-uuid", "uuid": loaded["table-uuid"]}
    committed = ok(full.commit("ns", "foreign", a_commit(set_properties(a="b"), requires=[same])))

    assert committed["metadata"]["table-uuid"] == loaded["table-uuid"]
    assert "table-uuid" not in file.read_text() or written == "null"
