"""Parses and prints the columns, schema and properties of a table or view."""

import json
from typing import Any

import click

from nunatak.client import Json


def parse_column(text: str, field_id: int) -> Json:
    """Parses a column: `id:long!` is a required long named id. Raises ValueError."""
    name, colon, kind = text.rpartition(":")
    if not colon or not name or not kind.rstrip("!"):
        raise ValueError(f"{text!r} is not a column; write NAME:TYPE, or NAME:TYPE! if it must not be null")
    return {"id": field_id, "name": name, "required": kind.endswith("!"), "type": kind.rstrip("!").strip()}


def schema_of(columns: tuple[str, ...], schema: str | None) -> Json:
    """Returns the schema given by columns or as JSON; raises UsageError for both or neither."""
    if bool(columns) == bool(schema):
        raise click.UsageError("Describe the columns either with --column or with --schema.")
    if schema is None:
        try:
            fields = [parse_column(text, field_id) for field_id, text in enumerate(columns, 1)]
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--column") from error
        return {"type": "struct", "schema-id": 0, "fields": fields}
    try:
        parsed = json.loads(schema)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--schema") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("fields"), list):
        raise click.BadParameter('a schema is an object with "fields"', param_hint="--schema")
    return {"type": "struct", "schema-id": 0, **parsed}


def properties_option(command: Any) -> Any:
    return click.option(
        "--property", "properties", multiple=True, metavar="KEY=VALUE", callback=_properties, help="May be repeated."
    )(command)


def _properties(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    properties = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", ctx, param)
        properties[key] = value
    return properties


def column_rows(schema: Json) -> list[tuple[object, object, object, object]]:
    """Returns id, name, type and whether it is required for each column; nested types in one line."""
    return [
        (field["id"], field["name"], type_text(field["type"]), "required" if field.get("required") else "")
        for field in schema["fields"]
    ]


def type_text(kind: Any) -> str:
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] == "list":
        return f"list<{type_text(kind['element'])}>"
    if kind["type"] == "map":
        return f"map<{type_text(kind['key'])}, {type_text(kind['value'])}>"
    fields = ", ".join(f"{field['name']}: {type_text(field['type'])}" for field in kind.get("fields", []))
    return f"{kind['type']}<{fields}>"
