"""What a commit changes on a view, and the texts clients rely on when it may not. MISSION 000-27, 000-29, 002-27."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.errors import BadRequest, CatalogError, CommitFailed, IllegalArgument, InvalidMetadata, bound_text
from nunatak.iceberg.view_commit import CommitViewRequest, ViewIdentifier, apply_all, check_all, decode_commit, new_view
from nunatak.iceberg.view_metadata import ViewMetadata, decode, encode
from tests.unit.iceberg_views.builders import (
    CREATED_MS,
    LOCATION,
    NOW_MS,
    VIEW_UUID,
    a_document,
    a_query,
    a_schema,
    a_version,
    a_view,
)
from tests.unit.iceberg_views.test_view_metadata import json_values, spread, unknown_fields

Json = dict[str, Any]


def a_request(*updates: Any, **more: Any) -> bytes:
    return json.dumps({"updates": list(updates), **more}).encode()


def commit(base: ViewMetadata | None, *updates: Json, now_ms: int = NOW_MS) -> ViewMetadata:
    return apply_all(decode_commit(a_request(*updates)).updates, base, now_ms=now_ms)


def add_version(version: Json) -> Json:
    return {"action": "add-view-version", "view-version": version}


def set_current(id: int = -1) -> Json:
    return {"action": "set-current-view-version", "view-version-id": id}


def add_schema(schema: Json) -> Json:
    return {"action": "add-schema", "schema": schema}


def set_properties(**updates: str) -> Json:
    return {"action": "set-properties", "updates": {k.replace("_", "."): v for k, v in updates.items()}}


def replaced(base: ViewMetadata, sql: str, **more: Any) -> ViewMetadata:
    """A replace as engines send it: a version that follows theirs, made current."""
    return commit(base, add_version(a_version(a_query(sql), id=base.current_version_id + 1, **more)), set_current())


def version_ids(view: ViewMetadata) -> list[int]:
    return [version["version-id"] for version in view.versions]


def log_ids(view: ViewMetadata) -> list[int]:
    return [entry["version-id"] for entry in view.version_log]


# Creating


def test_a_new_view_renumbers_schema_and_version_and_keeps_field_ids() -> None:
    view = a_view(schema=a_schema("id", "data", id=5, first_field_id=3), version=a_version(id=42, schema_id=5))

    assert [schema["schema-id"] for schema in view.schemas] == [0]
    assert [field["id"] for field in view.schemas[0]["fields"]] == [3, 4]
    assert view.current_version_id == 1
    assert (view.versions[0]["version-id"], view.versions[0]["schema-id"]) == (1, 0)


def test_a_new_view_keeps_what_the_client_said_about_its_version() -> None:
    more: dict[str, Any] = {"default-catalog": "prod", "x-unknown": [1]}
    version = a_version(a_query("SELECT 1", "trino"), a_query("SELECT 1", "spark"), timestamp_ms=1234, **more)

    view = a_view(version=version, properties={"comment": "kept"})

    assert view.versions == (version,)
    assert view.version_log == ({"timestamp-ms": 1234, "version-id": 1},)
    assert (view.view_uuid, view.format_version, view.location) == (VIEW_UUID, 1, LOCATION)
    assert view.properties == {"comment": "kept"}


@pytest.mark.parametrize("sent", [{}, {"default-catalog": None}])
def test_a_default_catalog_that_was_not_sent_stays_absent(sent: Json) -> None:
    assert "default-catalog" not in a_view(version=a_version(**sent)).versions[0]


def test_a_view_can_be_built_from_updates_alone() -> None:
    view = commit(
        None,
        {"action": "assign-uuid", "uuid": VIEW_UUID},
        {"action": "upgrade-format-version", "format-version": 1},
        add_schema(a_schema()),
        {"action": "set-location", "location": LOCATION},
        set_properties(),
        add_version(a_version(schema_id=-1)),
        set_current(),
    )

    assert view == a_view()


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("set-location", "Invalid location: null"),
        ("add-view-version", "Invalid view: no versions were added"),
        ("set-current-view-version", "Invalid view: no current version was set"),
        ("assign-uuid", "Cannot set uuid to null"),
    ],
)
def test_a_view_is_not_built_from_half_of_what_it_needs(missing: str, text: str) -> None:
    updates = [
        {"action": "assign-uuid", "uuid": VIEW_UUID},
        add_schema(a_schema()),
        {"action": "set-location", "location": LOCATION},
        add_version(a_version(schema_id=-1)),
        set_current(),
    ]
    left = [u for u in updates if u["action"] != missing and not (missing == "add-view-version" and u == updates[-1])]

    with pytest.raises(IllegalArgument) as refused:
        commit(None, *left)

    assert refused.value.message == text


@pytest.mark.parametrize(
    ("version", "error", "text"),
    [
        (
            a_version(a_query("SELECT 1", "trino"), a_query("SELECT 2", "TRINO")),
            IllegalArgument,
            "Invalid view version: Cannot add multiple queries for dialect trino",
        ),
        (
            {**a_version(), "representations": []},
            IllegalArgument,
            "Cannot create view without specifying a query",
        ),
        (
            a_version({"type": "substrait"}, a_query()),
            IllegalArgument,
            "Found unsupported view representations: [substrait]",
        ),
        ({}, IllegalArgument, "Cannot parse view version: Object missing required field `version-id`"),
        (None, IllegalArgument, "Cannot parse view version: Expected `object`, got `null`"),
        (
            a_version(id=2**31),
            IllegalArgument,
            "Cannot parse view version: Expected `int` <= 2147483647 - at `$.version-id`",
        ),
        (
            {**a_version(), "default-namespace": None},
            IllegalArgument,
            "Cannot parse view version: Expected `array`, got `null` - at `$.default-namespace`",
        ),
        (
            {**a_version(), "default-namespace": ["a", "b\0"]},
            IllegalArgument,
            "Cannot create a namespace with the null-byte character",
        ),
    ],
)
def test_a_view_is_not_created_with_a_bad_version(version: Any, error: type[CatalogError], text: str) -> None:
    with pytest.raises(error) as refused:
        new_view(
            schema=a_schema(),
            view_version=version,
            location=LOCATION,
            properties={},
            view_uuid=VIEW_UUID,
            now_ms=NOW_MS,
        )

    assert type(refused.value) is error
    assert refused.value.message == text


@pytest.mark.parametrize(
    "schema",
    [
        [],
        {"type": "list", "fields": []},
        {"type": "struct"},
        {"type": "struct", "fields": [{"id": 1, "name": "x", "required": False, "type": "no-such-type"}]},
        {**a_schema(), "identifier-field-ids": [[1]]},
    ],
)
def test_a_view_is_not_created_with_a_bad_schema(schema: Any) -> None:
    with pytest.raises(IllegalArgument):
        new_view(
            schema=schema,
            view_version=a_version(),
            location=LOCATION,
            properties={},
            view_uuid=VIEW_UUID,
            now_ms=NOW_MS,
        )


# Versions


def test_a_replace_adds_a_version_and_one_log_entry() -> None:
    view = replaced(a_view(), "SELECT 2", timestamp_ms=CREATED_MS + 5)

    assert version_ids(view) == [1, 2]
    assert view.current_version_id == 2
    assert view.version_log == (
        {"timestamp-ms": CREATED_MS, "version-id": 1},
        {"timestamp-ms": CREATED_MS + 5, "version-id": 2},
    )


def test_a_version_whose_id_is_taken_gets_the_next_one() -> None:
    """Two engines replaced the same version; the second one keeps its query under a new id."""
    view = replaced(a_view(), "SELECT 2")

    view = commit(view, add_version(a_version(a_query("SELECT 3"), id=2)), set_current())

    assert version_ids(view) == [1, 2, 3]
    assert view.versions[2]["representations"] == [a_query("SELECT 3")]
    assert view.current_version_id == 3


def test_a_version_id_beyond_the_highest_is_kept() -> None:
    assert version_ids(commit(a_view(), add_version(a_version(a_query("SELECT 2"), id=7)), set_current(7))) == [1, 7]


def test_an_equal_version_is_reused() -> None:
    view = replaced(a_view(), "SELECT 2")

    again = commit(view, add_version(a_version(id=3, timestamp_ms=CREATED_MS + 9)), set_current())

    assert version_ids(again) == [1, 2]
    assert again.current_version_id == 1
    assert again.version_log[-1] == {"timestamp-ms": NOW_MS, "version-id": 1}


def test_a_replace_that_arrives_twice_changes_nothing() -> None:
    updates = [
        add_schema(a_schema("other")),
        add_version(a_version(a_query("SELECT 2"), id=2, schema_id=-1)),
        set_current(),
    ]
    view = commit(a_view(), *updates)

    assert commit(view, *updates) is view


@pytest.mark.parametrize(
    "different",
    [
        {"summary": {"engine-name": "trino"}},
        {"default-catalog": "other"},
        {"default-namespace": ["elsewhere"]},
        {"representations": [a_query("SELECT 2")]},
    ],
)
def test_a_version_that_differs_in_anything_that_matters_is_new(different: Json) -> None:
    assert version_ids(commit(a_view(), add_version({**a_version(), **different}))) == [1, 2]


def test_going_back_to_an_old_version_is_logged_with_the_time_of_the_commit() -> None:
    view = commit(replaced(a_view(), "SELECT 2"), set_current(1), now_ms=NOW_MS + 1)

    assert view.current_version_id == 1
    assert log_ids(view) == [1, 2, 1]
    assert view.version_log[-1]["timestamp-ms"] == NOW_MS + 1


def test_a_commit_leaves_one_log_entry_however_often_it_switches() -> None:
    view = replaced(replaced(a_view(), "SELECT 2"), "SELECT 3")

    assert log_ids(commit(view, set_current(1), set_current(2))) == [1, 2, 3, 2]


def test_an_added_version_is_not_current_until_it_is_set() -> None:
    view = commit(a_view(), add_version(a_version(a_query("SELECT 2"))))

    assert view.current_version_id == 1
    assert log_ids(view) == [1]


@pytest.mark.parametrize(
    ("updates", "error", "text"),
    [
        ([set_current(9)], IllegalArgument, "Cannot set current version to unknown version: 9"),
        (
            [set_current()],
            InvalidMetadata,
            "Cannot set last version id: no current version id has been set",
        ),
        (
            [add_version(a_version(a_query("SELECT 2"), schema_id=9))],
            IllegalArgument,
            "Cannot add version with unknown schema: 9",
        ),
        (
            [add_version(a_version(a_query("SELECT 2"), schema_id=-1))],
            InvalidMetadata,
            "Cannot set last added schema: no schema has been added",
        ),
        (
            [add_version(a_version(a_query("SELECT 1", "Trino"), a_query("SELECT 2", "trino")))],
            IllegalArgument,
            "Invalid view version: Cannot add multiple queries for dialect trino",
        ),
        (
            [add_version(a_version(a_query("SELECT 2"), id=2**31 - 1)), add_version(a_version(a_query("SELECT 3")))],
            IllegalArgument,
            "Cannot add version: no version id is left after 2147483647",
        ),
        ([{"action": "assign-uuid", "uuid": "another"}], IllegalArgument, "Cannot reassign uuid"),
        (
            [{"action": "upgrade-format-version", "format-version": 0}],
            IllegalArgument,
            "Cannot downgrade v1 view to v0",
        ),
        (
            [{"action": "upgrade-format-version", "format-version": 2}],
            IllegalArgument,
            "Unsupported format version: 2",
        ),
    ],
)
def test_a_commit_that_the_metadata_does_not_allow_is_refused(
    updates: list[Json], error: type[CatalogError], text: str
) -> None:
    with pytest.raises(error) as refused:
        commit(a_view(), *updates)

    assert type(refused.value) is error
    assert refused.value.message == text


# Schemas


def test_a_new_schema_gets_the_next_id_whatever_the_client_sent() -> None:
    view = commit(
        a_view(),
        add_schema(a_schema("other", id=7, first_field_id=11)),
        add_version(a_version(schema_id=-1)),
        set_current(),
    )

    assert [schema["schema-id"] for schema in view.schemas] == [0, 1]
    assert view.schemas[1]["fields"][0]["id"] == 11
    assert view.versions[-1]["schema-id"] == 1


def test_an_equal_schema_is_reused() -> None:
    view = a_view()

    assert commit(view, add_schema(a_schema(id=7))) is view


def with_identifiers(*ids: int) -> Json:
    """Every field required, and `ids` the identifier fields."""
    schema = a_schema()
    return {**schema, "identifier-field-ids": list(ids), "fields": [{**f, "required": True} for f in schema["fields"]]}


def test_schemas_with_different_identifier_fields_differ() -> None:
    view = commit(a_view(schema=with_identifiers(3)), add_schema(with_identifiers(4)))

    assert len(view.schemas) == 2


def test_the_order_of_identifier_fields_does_not_matter() -> None:
    view = a_view(schema=with_identifiers(3, 4))

    assert commit(view, add_schema(with_identifiers(4, 3))) is view


# Properties and location


def test_properties_and_location_change_neither_versions_nor_log() -> None:
    base = a_view(properties={"a": "1", "b": "2"})

    view = commit(
        base,
        set_properties(a="3", c="4"),
        {"action": "remove-properties", "removals": ["b", "never-there"]},
        {"action": "set-location", "location": "file:/elsewhere"},
    )

    assert view.properties == {"a": "3", "c": "4"}
    assert view.location == "file:/elsewhere"
    assert (view.versions, view.version_log) == (base.versions, base.version_log)


def test_the_old_spellings_of_property_updates_are_understood() -> None:
    view = commit(
        a_view(properties={"b": "2"}),
        {"action": "set-properties", "updated": {"a": "1"}},
        {"action": "remove-properties", "removed": ["b"]},
    )

    assert view.properties == {"a": "1"}


def test_the_new_spelling_wins_over_the_old_one() -> None:
    assert commit(
        a_view(), {"action": "set-properties", "updated": {"a": "old"}, "updates": {"a": "new"}}
    ).properties == {"a": "new"}


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [set_properties(color="red")],
        [{"action": "remove-properties", "removals": ["never-there"]}],
        [{"action": "set-location", "location": LOCATION}],
        [{"action": "assign-uuid", "uuid": VIEW_UUID}],
        [{"action": "upgrade-format-version", "format-version": 1}],
        [set_current(1)],
        [add_version(a_version())],
    ],
)
def test_updates_that_change_nothing_give_back_the_base_itself(updates: list[Json]) -> None:
    base = a_view(properties={"color": "red"})

    assert commit(base, *updates) is base


# Dialects


def test_losing_a_dialect_is_refused() -> None:
    base = a_view(version=a_version(a_query("SELECT 1", "spark"), a_query("SELECT 1", "Trino")))

    with pytest.raises(IllegalArgument) as refused:
        replaced(base, "SELECT 2")

    assert refused.value.message == (
        "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
        "Previous dialects: [spark, trino]\nNew dialects: [spark]"
    )


@pytest.mark.parametrize("when", ["before", "in the same commit"])
def test_losing_a_dialect_is_allowed_when_the_view_says_so(when: str) -> None:
    base = a_view(version=a_version(a_query("SELECT 1", "spark"), a_query("SELECT 1", "trino")))
    allow = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}
    change = [add_version(a_version(a_query("SELECT 2"))), set_current()]

    view = commit(commit(base, allow), *change) if when == "before" else commit(base, allow, *change)

    assert view.current_version_id == 2


def test_gaining_a_dialect_and_changing_its_case_are_allowed() -> None:
    change = add_version(a_version(a_query("SELECT 2", "SPARK"), a_query("SELECT 2", "trino")))

    assert commit(a_view(), change, set_current()).current_version_id == 2


# How many versions stay


def test_ten_versions_are_kept_unless_the_view_says_otherwise() -> None:
    view = a_view()
    for number in range(2, 13):
        view = replaced(view, f"SELECT {number}")

    assert sorted(version_ids(view)) == list(range(3, 13))
    assert log_ids(view) == list(range(3, 13))


def test_the_current_version_stays_however_old_it_is() -> None:
    view = replaced(replaced(replaced(a_view(), "SELECT 2"), "SELECT 3"), "SELECT 4")

    view = commit(view, set_current(1))
    view = commit(view, {"action": "set-properties", "updates": {"version.history.num-entries": "2"}})

    assert version_ids(view) == [1, 4]
    assert log_ids(view) == [4, 1], "the log starts after the last version it lost"


def test_versions_added_by_the_commit_itself_are_all_kept() -> None:
    view = a_view(properties={"version.history.num-entries": "1"})

    view = commit(
        view,
        add_version(a_version(a_query("SELECT 2"))),
        add_version(a_version(a_query("SELECT 3"))),
        set_current(),
    )

    assert sorted(version_ids(view)) == [2, 3]
    assert log_ids(view) == [3]


@pytest.mark.parametrize("size", ["0", "-1", "many", "", "1_0", "٣", "2147483648", "9" * 5000])
def test_a_history_size_that_is_no_positive_number_is_refused(size: str) -> None:
    with pytest.raises(IllegalArgument) as refused:
        a_view(properties={"version.history.num-entries": size})

    assert refused.value.message == bound_text(f"version.history.num-entries must be positive but was {size}")


# Requirements


def test_a_matching_uuid_passes_in_any_case() -> None:
    request = decode_commit(a_request(requirements=[{"type": "assert-view-uuid", "uuid": VIEW_UUID.upper()}]))

    check_all(request.requirements, a_view())


def test_another_uuid_fails_the_commit() -> None:
    request = decode_commit(a_request(requirements=[{"type": "assert-view-uuid", "uuid": "another"}]))

    with pytest.raises(CommitFailed) as refused:
        check_all(request.requirements, a_view())

    assert refused.value.message == f"Requirement failed: view UUID does not match: expected {VIEW_UUID} != another"


def test_a_view_that_is_not_there_fails_the_commit() -> None:
    request = decode_commit(a_request(requirements=[{"type": "assert-view-uuid", "uuid": VIEW_UUID}]))

    with pytest.raises(CommitFailed, match=r"^Requirement failed: view does not exist"):
        check_all(request.requirements, None)


# Requests


def test_a_request_may_name_its_view_and_leave_out_requirements() -> None:
    request = decode_commit(a_request(identifier={"namespace": ["a", "b"], "name": "v"}, requirements=None))

    assert request == CommitViewRequest(
        updates=[], requirements=[], identifier=ViewIdentifier(namespace=["a", "b"], name="v")
    )


@pytest.mark.parametrize(
    ("request_body", "text"),
    [
        (b"", "Cannot parse commit view request: Input data was truncated"),
        (b"[]", "Cannot parse commit view request: Expected `object`, got `array`"),
        (b"{}", "Cannot parse commit view request: Object missing required field `updates`"),
        (a_request(1), "Cannot parse commit view request: Expected `object`, got `int` - at `$.updates[0]`"),
        (a_request({}), "Cannot parse metadata update. Missing field: action"),
        (a_request({"action": 7}), "Cannot parse metadata update. Missing field: action"),
        (a_request({"action": "paint-it-black"}), "Unknown update action: paint-it-black"),
        (a_request({"action": "add-snapshot", "snapshot": {}}), "Cannot apply update AddSnapshot to a view"),
        (a_request({"action": "set-current-schema"}), "Cannot apply update SetCurrentSchema to a view"),
        (
            a_request({"action": "set-properties", "updates": {"a": 1}}),
            "Cannot parse set-properties update: Expected `str`, got `int` - at `$.updates[...]`",
        ),
        (
            a_request({"action": "set-properties"}),
            "Cannot parse set-properties update: Object missing required field `updates`",
        ),
        (
            a_request({"action": "set-location", "location": None}),
            "Cannot parse set-location update: Expected `str`, got `null` - at `$.location`",
        ),
        (
            a_request(add_version({**a_version(), "summary": None})),
            "Cannot parse view version: Expected `object`, got `null` - at `$.summary`",
        ),
        (a_request(add_schema({"type": "map", "fields": []})), 'Cannot create schema, not a struct type: "map"'),
        (a_request(requirements=[{}]), "Cannot parse update requirement. Missing field: type"),
        (a_request(requirements=[{"type": "assert-mood"}]), "Unknown update requirement: assert-mood"),
        (
            a_request(requirements=[{"type": "assert-view-uuid"}]),
            "Cannot parse assert-view-uuid requirement: Object missing required field `uuid`",
        ),
        (
            a_request(requirements=[{"type": "assert-table-uuid", "uuid": VIEW_UUID}]),
            "Cannot validate AssertTableUUID against a view",
        ),
        (
            a_request(identifier={"namespace": "a", "name": "v"}),
            "Cannot parse commit view request: Expected `array`, got `str` - at `$.identifier.namespace`",
        ),
    ],
)
def test_a_malformed_request_is_refused_by_name(request_body: bytes, text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        decode_commit(request_body)

    assert refused.value.message == text


def test_an_action_is_understood_in_any_case() -> None:
    assert commit(a_view(), {"action": "SET-PROPERTIES", "updates": {"a": "1"}}).properties == {"a": "1"}


# What holds for every commit


updates = st.lists(
    st.sampled_from(
        [
            set_properties(color="red"),
            {"action": "set-properties", "updates": {"version.history.num-entries": "2"}},
            {"action": "remove-properties", "removals": ["color"]},
            {"action": "set-location", "location": "file:/elsewhere"},
            add_schema(a_schema("other")),
            add_version(a_version(a_query("SELECT 2"))),
            add_version(a_version(a_query("SELECT 3"), schema_id=-1)),
            add_version(a_version(a_query("SELECT 4"), id=9)),
            set_current(),
            set_current(1),
            set_current(2),
            {"action": "assign-uuid", "uuid": "another"},
        ]
    ),
    max_size=8,
)


@given(st.lists(unknown_fields, min_size=6, max_size=6), updates)
def test_a_commit_never_changes_its_base_and_never_loses_unknown_fields(
    extras: list[Json], changes: list[Json]
) -> None:
    base = decode(json.dumps(spread(a_document(), extras)).encode())
    before = copy.deepcopy(base)

    try:
        updated = commit(base, *changes)
    except CatalogError:
        updated = base

    assert base == before
    assert updated.unknown == before.unknown
    assert updated.schemas[0] == before.schemas[0]
    assert all(version == before.versions[0] for version in updated.versions if version["version-id"] == 1)
    assert decode(encode(updated)) == updated


@given(updates, updates)
def test_ids_stay_unique_and_the_log_ends_at_the_current_version(first: list[Json], second: list[Json]) -> None:
    view = a_view()
    for changes in (first, second):
        try:
            view = commit(view, *changes)
        except CatalogError:
            continue

    assert len(set(version_ids(view))) == len(view.versions)
    assert view.current_version_id in version_ids(view)
    assert log_ids(view)[-1] == view.current_version_id
    assert set(log_ids(view)) <= set(version_ids(view))


@given(st.data())
def test_no_damaged_request_ends_in_anything_but_a_refusal(data: st.DataObject) -> None:
    """One value anywhere in a full request is replaced by an arbitrary one."""
    request: Json = copy.deepcopy(
        {
            "identifier": {"namespace": ["ns"], "name": "view"},
            "requirements": [{"type": "assert-view-uuid", "uuid": VIEW_UUID}],
            "updates": [
                add_schema(a_schema("other")),
                add_version(a_version(a_query("SELECT 2"), schema_id=-1)),
                set_current(),
                set_properties(color="red"),
                {"action": "remove-properties", "removals": ["b"]},
                {"action": "set-location", "location": "file:/elsewhere"},
            ],
        }
    )
    holder: Any = request
    key: Any = data.draw(st.sampled_from(sorted(request)))
    while isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))))
    holder[key] = data.draw(json_values)

    base = a_view()
    try:
        decoded = decode_commit(json.dumps(request).encode())
        check_all(decoded.requirements, base)
        updated = apply_all(decoded.updates, base, now_ms=NOW_MS)
    except (BadRequest, CommitFailed):
        return
    assert decode(encode(updated)) == updated
