"""Column types in Spark's JSON form: printed, parsed, and which type changes keep every value. No Spark.

A type change that `keeps_values` does not list is a difference even if the stored numbers are equal: the microseconds
of a timestamp are a valid bigint, and the digits of 1.50 are those of 0.150.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Type = str | Mapping[str, Any]

PLAIN_NAME = re.compile(r"\w+")
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
BOUNDED_TEXT = re.compile(r"(var)?char\(\d+\)")
# Each list from the narrowest to the widest. Iceberg has no byte and no short: they become int.
INTEGERS = ("byte", "short", "integer", "long")
FLOATS = ("float", "double")
NESTED = ("struct", "array", "map")
IN_SQL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
# One token of a printed type: a quoted or plain name before a colon, a bracket, a comma, or the name of a type.
TOKEN = re.compile(r"\s*(?:(?P<name>`(?:[^`]|``)*`|\w+):|(?P<mark>[<>,])|(?P<type>[^<>,:(]+(?:\([^)]*\))?[^<>,:(]*))")


def format_type(kind: Type) -> str:
    """Returns a type as people write it; `parse_type` reads it back."""
    return _format(kind, {}, " ")


def ddl_type(kind: Type) -> str:
    """Returns a type as SQL takes it in a schema."""
    return _format(kind, IN_SQL, "")


def _format(kind: Type, simple: Mapping[str, str], space: str) -> str:
    """Formats a type; `simple` renames simple types. Field names inside structs are quoted where they have to be."""
    if isinstance(kind, str):
        return simple.get(kind, kind)
    inner = [_format(kind[part], simple, space) for part in ("elementType", "keyType", "valueType") if part in kind]
    inner += [
        f"{_quote_field_name(field['name'])}:{space}{_format(field['type'], simple, space)}"
        for field in kind.get("fields", ())
    ]
    return f"{kind['type']}<{f',{space}'.join(inner)}>" if kind["type"] in NESTED else str(kind["type"])


def _quote_field_name(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def parse_type(text: str) -> Type:
    """Parses what `format_type` returned. What the text leaves out, such as nullability, is missing."""
    tokens = list(TOKEN.finditer(text.strip()))
    if not tokens or "".join(token.group() for token in tokens) != text.strip():
        return text
    kind, rest = _parse(tokens)
    return text if rest else kind


def _parse(tokens: list[re.Match[str]]) -> tuple[Type, list[re.Match[str]]]:
    head, rest = (tokens[0].group("type") or "").strip(), tokens[1:]
    if head not in NESTED or not rest or rest[0].group("mark") != "<":
        return head, rest
    rest = rest[1:]
    parts: list[tuple[str, Type]] = []
    while rest and rest[0].group("mark") != ">":
        if rest[0].group("mark") == ",":
            rest = rest[1:]
        name = ""
        if rest[0].group("name") is not None:
            name, rest = rest[0].group("name"), rest[1:]
        kind, rest = _parse(rest)
        parts.append((name[1:-1].replace("``", "`") if name.startswith("`") else name, kind))
    rest = rest[1:]
    match head:
        case "struct":
            return {"type": head, "fields": [{"name": name, "type": kind} for name, kind in parts]}, rest
        case "array":
            return {"type": head, "elementType": parts[0][1]}, rest
        case _:
            return {"type": head, "keyType": parts[0][1], "valueType": parts[1][1]}, rest


# Which changes keep every value


def keeps_values(left: Type, right: Type) -> bool:
    """Returns whether every value of the left type has exactly one counterpart in the right type, with the same
    meaning.

    This holds for Iceberg's promotions (int to long, float to double, a higher decimal precision), for byte and short,
    for char and varchar that become string, and for struct fields in another order. Iceberg's promotion of date to
    timestamp is left out: neither Iceberg's Java library nor Spark implements it.
    """
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str) and _keeps_simple(left, right)
    if left["type"] != right["type"]:
        return False
    match left["type"]:
        case "struct":
            before, after = dict(_fields(left)), dict(_fields(right))
            is_clear = len(before) == len(left["fields"]) and len(after) == len(right["fields"])
            return is_clear and before.keys() == after.keys() and all(keeps_values(before[n], after[n]) for n in before)
        case "array":
            return keeps_values(left["elementType"], right["elementType"])
        case "map":
            return all(keeps_values(left[part], right[part]) for part in ("keyType", "valueType"))
        case _:
            return left == right


def _fields(kind: Mapping[str, Any]) -> Iterator[tuple[str, Type]]:
    for field in kind["fields"]:
        yield field["name"], field["type"]


def _keeps_simple(left: str, right: str) -> bool:
    if left == right:
        return True
    for order in (INTEGERS, FLOATS):
        if left in order and right in order:
            return order.index(left) <= order.index(right)
    before, after = DECIMAL.fullmatch(left), DECIMAL.fullmatch(right)
    if before and after:
        return before.group(2) == after.group(2) and int(before.group(1)) <= int(after.group(1))
    return right == "string" and BOUNDED_TEXT.fullmatch(left) is not None
