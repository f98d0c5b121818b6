"""Random schemas, tables and commits, for the property tests of the metadata engine."""

from typing import Any

from hypothesis import strategies as st

from tests.unit.iceberg.builders import Json, a_field, a_list, a_map, a_struct, requirement, set_ref, update

PRIMITIVES = [
    "boolean", "int", "long", "float", "double", "decimal(9, 2)", "date", "time", "timestamp", "timestamptz", "string",
    "uuid", "fixed[16]", "binary",
]  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False)
)
any_json: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
# Names no format version uses: what a newer writer may have put there.
unknown_fields = st.dictionaries(st.text(max_size=4).map(lambda name: f"x-{name}"), any_json, max_size=2)


@st.composite
def types(draw: st.DrawFn, ids: list[int], depth: int = 2) -> str | Json:
    kind = draw(st.sampled_from(["primitive"] * 4 + (["struct", "list", "map"] if depth else [])))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "list":
        element_id = _next(ids)
        return a_list(element_id, draw(types(ids, depth - 1)), required=draw(st.booleans()))
    if kind == "map":
        key_id, value_id = _next(ids), _next(ids)
        return a_map(key_id, draw(types(ids, depth - 1)), value_id, draw(types(ids, depth - 1)))
    return a_struct(*draw(fields(ids, depth - 1)))


@st.composite
def fields(draw: st.DrawFn, ids: list[int], depth: int = 2) -> list[Json]:
    names = draw(
        st.lists(
            st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), max_size=4),
            max_size=4,
            unique=True,
        )
    )
    result = []
    for name in names:
        field_id = _next(ids)
        doc = draw(st.none() | st.just("a doc"))
        field = a_field(field_id, name, draw(types(ids, depth)), required=draw(st.booleans()))
        result.append(field | ({"doc": doc} if doc else {}) | draw(unknown_fields))
    return result


@st.composite
def schemas(draw: st.DrawFn) -> Json:
    """Ids are unique but in no special order, as after years of schema evolution."""
    ids = draw(st.permutations(range(1, 60)))
    return {"type": "struct", "schema-id": 0, "fields": draw(fields(ids)), **draw(unknown_fields)}


def _next(ids: list[int]) -> int:
    return ids.pop() if ids else 1_000_000  # more than sixty fields are never drawn


small_ids = st.integers(-1, 6)
ref_names = st.sampled_from(["main", "audit", "release"])


@st.composite
def snapshots(draw: st.DrawFn) -> Json:
    sent: Json = {
        "snapshot-id": draw(st.integers(1, 12)),
        "timestamp-ms": 1_700_000_000_000 + draw(st.integers(-100_000, 100_000)),
        "manifest-list": "s3://bucket/list.avro",
        "summary": {"operation": "append"},
    }
    optional = {
        "parent-snapshot-id": st.integers(1, 12),
        "sequence-number": st.integers(0, 12),
        "first-row-id": st.integers(0, 60),
        "added-rows": st.integers(0, 10),
        "schema-id": small_ids,
    }
    return sent | {name: draw(value) for name, value in optional.items() if draw(st.booleans())} | draw(unknown_fields)


updates = st.one_of(
    st.builds(lambda each: update("add-snapshot", snapshot=each), snapshots()),
    st.builds(lambda each: update("add-snapshot", snapshot=each), snapshots()),
    st.builds(set_ref, st.integers(1, 12), ref_names, st.sampled_from(["branch", "branch", "tag"])),
    st.builds(lambda ids: update("remove-snapshots", snapshot_ids=ids), st.lists(st.integers(1, 12), max_size=3)),
    st.builds(lambda name: update("remove-snapshot-ref", ref_name=name), ref_names),
    st.builds(lambda each: update("add-schema", schema=each), schemas()),
    st.builds(lambda each: update("set-current-schema", schema_id=each), small_ids),
    st.builds(
        lambda name, transform, source: update(
            "add-spec", spec={"spec-id": 0, "fields": [{"name": name, "transform": transform, "source-id": source}]}
        ),
        st.sampled_from(["p", "q"]),
        st.sampled_from(["identity", "void", "bucket[4]", "future"]),
        small_ids,
    ),
    st.builds(lambda each: update("set-default-spec", spec_id=each), small_ids),
    st.builds(
        lambda source: update(
            "add-sort-order",
            sort_order={
                "order-id": 1,
                "fields": [
                    {"transform": "identity", "source-id": source, "direction": "asc", "null-order": "nulls-last"}
                ],
            },
        ),
        small_ids,
    ),
    st.builds(lambda each: update("set-default-sort-order", sort_order_id=each), small_ids),
    st.builds(
        lambda each: update("set-properties", updates=each), st.dictionaries(st.text(max_size=3), st.text(max_size=3))
    ),
    st.builds(lambda each: update("remove-properties", removals=each), st.lists(st.text(max_size=3), max_size=2)),
    st.builds(lambda each: update("upgrade-format-version", format_version=each), st.integers(1, 4)),
    st.builds(lambda each: update("remove-schemas", schema_ids=each), st.lists(small_ids, max_size=2)),
    st.builds(lambda each: update("remove-partition-specs", spec_ids=each), st.lists(small_ids, max_size=2)),
    st.builds(
        lambda each: update(
            "set-partition-statistics",
            partition_statistics={"snapshot-id": each, "statistics-path": "p", "file-size-in-bytes": 1},
        ),
        st.integers(1, 12),
    ),
)
requirements = st.one_of(
    st.builds(
        lambda ref, each: requirement("assert-ref-snapshot-id", ref=ref, snapshot_id=each),
        ref_names,
        st.none() | small_ids,
    ),
    st.builds(lambda each: requirement("assert-current-schema-id", current_schema_id=each), small_ids),
)
