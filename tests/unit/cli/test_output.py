"""What programs read: ids that survive every JSON reader, and columns as they were typed."""

import click
import pytest

from nunatak.cli.columns import parse_column, schema_of, type_text
from nunatak.cli.output import with_text_ids
from nunatak.settings import without_password


def test_snapshot_ids_are_strings_whatever_their_size() -> None:
    printed = with_text_ids({"current-snapshot-id": 3, "refs": {"main": {"snapshot-id": 2**62}}, "schema-id": 1})

    assert printed == {"current-snapshot-id": "3", "refs": {"main": {"snapshot-id": str(2**62)}}, "schema-id": 1}


def test_a_number_that_a_double_cannot_hold_is_a_string() -> None:
    assert with_text_ids({"a": [2**53 - 1, 2**53, -(2**53)], "b": True, "c": None, "d": 1.5}) == {
        "a": [2**53 - 1, str(2**53), str(-(2**53))],
        "b": True,
        "c": None,
        "d": 1.5,
    }


def test_a_column_is_a_name_a_type_and_whether_it_is_required() -> None:
    assert parse_column("id:long!", 1) == {"id": 1, "name": "id", "required": True, "type": "long"}
    assert parse_column("a:b:decimal(9,2)", 7) == {"id": 7, "name": "a:b", "required": False, "type": "decimal(9,2)"}


@pytest.mark.parametrize("text", ["id", "id:", ":long", "id:!", ""])
def test_a_broken_column_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a column"):
        parse_column(text, 1)


@pytest.mark.parametrize(
    ("columns", "schema", "message"),
    [
        ((), None, "either with --column or with --schema"),
        (("id:long",), '{"fields": []}', "either with --column or with --schema"),
        (("id",), None, "is not a column"),
        ((), "{", "not JSON"),
        ((), "[]", "an object with"),
        ((), '{"fields": 1}', "an object with"),
    ],
)
def test_a_schema_is_described_once_and_rightly(columns: tuple[str, ...], schema: str | None, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        schema_of(columns, schema)


def test_nested_types_print_in_one_line() -> None:
    inner = {"type": "struct", "fields": [{"id": 3, "name": "x", "required": True, "type": "int"}]}
    nested = {"type": "map", "key": "string", "value": {"type": "list", "element": inner}}

    assert type_text(nested) == "map<string, list<struct<x: int>>>"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:secret@db:5432/lake", "postgresql://me:***@db:5432/lake"),
        ("postgresql://me:a@b@db/lake", "postgresql://me:***@db/lake"),
        ("postgresql://db/lake", "postgresql://db/lake"),
        ("sqlite:///var/lake.db", "sqlite:///var/lake.db"),
        ("postgresql://me:a/b@db/lake", "postgresql://me:***@db/lake"),
        ("postgresql:/me:secret@db/lake", "postgresql:***@db/lake"),
        ("me:secret@db", "me:***@db"),
        ("postgresql://me@db/lake?password=secret&ssl=on", "postgresql://me@db/lake?password=***&ssl=on"),
        ("mariadb://me@db/lake?ssl=on&Passwd=secret", "mariadb://me@db/lake?ssl=on&Passwd=***"),
        ("", ""),
    ],
)
def test_a_password_is_never_shown(address: str, shown: str) -> None:
    assert without_password(address) == shown
