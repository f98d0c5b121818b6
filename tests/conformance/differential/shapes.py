"""Random schemas, partition specs and sort orders: mostly sound, now and then not."""

from random import Random
from typing import Any

PRIMITIVES = (
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid", "binary",
    "decimal(9,2)", "decimal(38, 10)", "fixed[16]",
)  # fmt: skip
UNSOUND_TYPES = ("timestamp_ns", "variant", "unknown", "decimal(50,2)", "integer", "struct", 7, {"type": "tuple"})
COLUMNS = ("id", "data", "ts", "category", "amount", "größe", "a b", "Ünï/code", "point", "tags", "attributes")
TRANSFORMS = {
    "int": ("identity", "bucket[16]", "truncate[10]", "void"),
    "long": ("identity", "bucket[16]", "truncate[10]", "void"),
    "string": ("identity", "bucket[16]", "truncate[10]", "void"),
    "date": ("identity", "year", "month", "day", "bucket[4]"),
    "timestamp": ("identity", "year", "month", "day", "hour"),
    "timestamptz": ("identity", "year", "month", "day", "hour"),
}
UNSOUND_TRANSFORMS = ("day", "bucket[0]", "truncate[-1]", "zorder", "bucket", "")

Json = Any


class Dice(Random):
    """Randomness that makes at most one mistake per request: of two, each server may name the one it finds first."""

    may_slip = True

    def slips(self) -> bool:
        if self.may_slip and self.random() < 1 / 16:
            self.may_slip = False
            return True
        return False


def a_type(rng: Dice, next_id: list[int], depth: int = 0) -> Json:
    """A type; `next_id` holds the next free field id and is moved on."""
    if rng.slips():
        return rng.choice(UNSOUND_TYPES)
    kind = rng.randrange(12) if depth < 2 else 11
    if kind == 0:
        fields = [a_field(rng, name, next_id, depth + 1) for name in rng.sample(("x", "y", "z"), rng.randint(1, 3))]
        return {"type": "struct", "fields": fields}
    if kind == 1:
        element = take(next_id)
        return {
            "type": "list",
            "element-id": element,
            "element": a_type(rng, next_id, depth + 1),
            "element-required": rng.random() < 0.5,
        }
    if kind == 2:
        key, value = take(next_id), take(next_id)
        return {
            "type": "map",
            "key-id": key,
            "key": "string",
            "value-id": value,
            "value": a_type(rng, next_id, depth + 1),
            "value-required": rng.random() < 0.5,
        }
    return rng.choice(PRIMITIVES)


def a_field(rng: Dice, name: str, next_id: list[int], depth: int = 0) -> Json:
    field: Json = {"id": take(next_id), "name": name, "required": rng.random() < 0.3}
    field["type"] = a_type(rng, next_id, depth)
    if rng.random() < 0.2:
        field["doc"] = f"about {name} 🧊"
    if rng.slips() and field["type"] in ("int", "string"):
        field["initial-default"] = field["write-default"] = 7 if field["type"] == "int" else "seven"
    return field


def a_schema(rng: Dice) -> Json:
    next_id = [rng.choice((0, 1, 1, 1, 5))]
    names = rng.sample(COLUMNS, rng.randint(1, 6))
    schema: Json = {"type": "struct", "schema-id": rng.choice((0, 0, 0, 4)), "fields": []}
    schema["fields"] = [a_field(rng, name, next_id) for name in names]
    if rng.slips():
        schema["fields"].append({**schema["fields"][0], "id": take(next_id)})  # a name twice
    if rng.slips():
        schema["fields"].append({**schema["fields"][0], "name": "again"})  # an id twice
    required = [
        field["id"]
        for field in schema["fields"]
        if field["required"] and field["type"] in ("int", "long", "string", "date", "uuid")
    ]
    if required and rng.random() < 0.3:
        schema["identifier-field-ids"] = rng.sample(required, 1)
    elif rng.slips():
        schema["identifier-field-ids"] = [rng.choice(schema["fields"])["id"]]
    return schema


def evolved_schema(rng: Dice, schema: Json, last_column_id: int) -> Json:
    """The schema after one change a client might make."""
    fields = [dict(field) for field in schema["fields"]]
    change = rng.randrange(8)
    if change == 0:
        pass  # the same again: the server has to find the one it has
    elif change == 1 and len(fields) > 1:
        fields.pop(rng.randrange(len(fields)))
    elif change == 2:
        field = rng.choice(fields)
        field["name"] = rng.choice((f"{field['name']}_renamed", fields[0]["name"]))
    elif change == 3:
        field = rng.choice(fields)
        field["required"] = not field["required"]
    elif change == 4:
        for field in fields:
            field["type"] = {"int": "long", "float": "double"}.get(str(field["type"]), field["type"])
    else:
        next_id = [last_column_id + 1 if not rng.slips() else last_column_id]
        fields.append(a_field(rng, f"new_{next_id[0]}", next_id))
    return {**schema, "fields": fields}


def a_spec(rng: Dice, schema: Json, first_field_id: int | None) -> Json:
    fields: list[Json] = []
    for column in _some_primitive(rng, schema["fields"]):
        transforms = TRANSFORMS.get(str(column["type"]), ("void",))
        transform = rng.choice(UNSOUND_TRANSFORMS if rng.slips() else transforms)
        suffix = "" if transform == "identity" else "_" + transform.partition("[")[0]
        field: Json = {"name": f"{column['name']}{suffix}", "transform": transform, "source-id": column["id"]}
        if first_field_id is not None:
            field["field-id"] = first_field_id + len(fields)
        fields.append(field)
    if rng.slips():
        fields.append({"name": "lost", "transform": "identity", "source-id": 4711, "field-id": 1999})
    return {"spec-id": rng.choice((0, 0, 3)), "fields": fields}


def a_sort_order(rng: Dice, schema: Json) -> Json:
    fields: list[Json] = [
        {
            "transform": rng.choice(TRANSFORMS.get(str(column["type"]), ("identity",))),
            "source-id": column["id"],
            "direction": rng.choice(("asc", "desc")),
            "null-order": rng.choice(("nulls-first", "nulls-last")),
        }
        for column in _some_primitive(rng, schema["fields"])
    ]
    if rng.slips():
        fields.append({"transform": "identity", "source-id": 4711, "direction": "asc", "null-order": "nulls-first"})
    if rng.slips() and fields:
        fields[0]["direction"] = "sideways"
    # Id 0 is reserved for the order without fields.
    order_id = (1 if fields else 0) if not rng.slips() else rng.choice((0, 1))
    return {"order-id": order_id, "fields": fields}


def take(next_id: list[int]) -> int:
    next_id[0] += 1
    return next_id[0] - 1


def _some_primitive(rng: Dice, fields: list[Json]) -> list[Json]:
    if not rng.slips():
        fields = [field for field in fields if isinstance(field["type"], str)]
    return rng.sample(fields, rng.randint(0, min(2, len(fields))))
