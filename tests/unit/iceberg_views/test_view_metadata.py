"""A view's metadata file is read with care and written back whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.errors import BadRequest, InvalidMetadata
from nunatak.iceberg.view_metadata import decode, encode
from tests.unit.iceberg_views.builders import LOCATION, VIEW_UUID, a_document, a_query, a_schema, a_version

Json = dict[str, Any]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
unknown_fields = st.dictionaries(st.text(max_size=8).map("x-".__add__), json_values, max_size=3)


def spread(document: Json, extras: list[Json]) -> Json:
    """Put one dictionary of unknown fields at each level of the document."""
    top, schema, field, version, query, entry = extras
    document["schemas"][0]["fields"][0] |= field
    document["schemas"][0] |= schema
    document["versions"][0]["representations"][0] |= query
    document["versions"][0] |= version
    document["version-log"][0] |= entry
    return document | top


def test_a_file_becomes_a_value() -> None:
    view = decode(json.dumps(a_document()).encode())

    assert view.view_uuid == VIEW_UUID
    assert view.format_version == 1
    assert view.location == LOCATION
    assert view.schemas == (a_schema(id=0),)
    assert view.current_version_id == 1
    assert view.versions == (a_version(),)
    assert view.version_log == ({"timestamp-ms": 1_700_000_000_000, "version-id": 1},)
    assert view.properties == {"comment": "daily counts"}
    assert view.unknown == {}


@given(st.lists(unknown_fields, min_size=6, max_size=6))
def test_unknown_fields_at_every_level_survive_reading_and_writing(extras: list[Json]) -> None:
    document = spread(a_document(), extras)

    assert json.loads(encode(decode(json.dumps(document).encode()))) == document


@given(st.lists(unknown_fields, min_size=6, max_size=6))
def test_reading_what_was_written_gives_the_same_value(extras: list[Json]) -> None:
    view = decode(json.dumps(spread(a_document(), extras)).encode())

    assert decode(encode(view)) == view


def test_empty_properties_are_left_out_as_the_reference_does() -> None:
    assert b"properties" not in encode(decode(json.dumps(a_document(properties={})).encode()))


def test_a_representation_of_an_unknown_type_survives() -> None:
    other = {"type": "substrait", "plan": "…"}
    document = a_document(versions=[a_version(a_query(), other)])

    assert json.loads(encode(decode(json.dumps(document).encode()))) == document


def test_a_schema_without_an_id_is_schema_zero() -> None:
    schema = a_schema()
    del schema["schema-id"]

    assert decode(json.dumps(a_document(schemas=[schema])).encode()).schemas == (schema,)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (a_document(view_uuid=None), "Cannot parse view metadata: Object missing required field `view-uuid`"),
        (a_document(location=7), "Cannot parse view metadata: Expected `str`, got `int` - at `$.location`"),
        (a_document(format_version=2), "Unsupported format version: 2"),
        (a_document(current_version_id=9), "Cannot find current version 9 in view versions: [1]"),
        (a_document(versions=[a_version(schema_id=4)]), "Cannot find current schema with id 4 in schemas: [0]"),
        (a_document(versions=[a_version(), a_version()]), "Invalid view metadata: version ids are not unique: [1]"),
        (a_document(schemas=[a_schema(id=0)] * 2), "Invalid view metadata: schema ids are not unique: [0, 0]"),
        (
            a_document(current_version_id=2**31),
            "Cannot parse view metadata: Expected `int` <= 2147483647 - at `$.current-version-id`",
        ),
        (
            a_document(versions=[a_version({"type": "sql", "sql": "SELECT 1"})]),
            "Cannot parse view version: SQL representation misses the string `dialect`",
        ),
        ([], "Cannot parse view metadata: Expected `object`, got `array`"),
    ],
)
def test_a_file_that_is_no_view_is_refused_by_name(document: Any, text: str) -> None:
    with pytest.raises(InvalidMetadata) as refused:
        decode(json.dumps(document).encode())

    assert refused.value.message == text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'"\xff"',
        b'{"a": 1e400}',
        b"[" * 100_000,
        b"[" * 300 + b"]" * 300,
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
)
def test_bytes_that_are_not_usable_json_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetadata, match=r"^Cannot parse view metadata: "):
        decode(data)


@given(st.data())
def test_no_damaged_file_ends_in_anything_but_a_refusal(data: st.DataObject) -> None:
    """One value anywhere in the file is replaced by an arbitrary one, as a bug elsewhere would."""
    document = a_document()
    holder: Any = document
    key = data.draw(st.sampled_from(sorted(document)))
    while isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))))
    holder[key] = data.draw(json_values)

    try:
        view = decode(json.dumps(document).encode())
    except BadRequest:
        return
    assert decode(encode(view)) == view
