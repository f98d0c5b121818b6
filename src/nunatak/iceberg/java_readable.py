"""Checks of metadata files beyond what Nunatak needs to read them. No I/O; commits do not wait for these checks.

The reference refuses to load some files that Nunatak could serve, and so do Spark and all clients that are built on it.
The error texts are those of the reference; the hints say what the file contains.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from nunatak.errors import BadRequest, IllegalArgument, InvalidMetadata
from nunatak.iceberg import partition_spec, sort_order
from nunatak.iceberg.partition_spec import UNPARTITIONED_LAST_FIELD_ID, last_field_id
from nunatak.iceberg.schema import Schema, parse_schema
from nunatak.iceberg.shapes import Json, is_base64, print_json
from nunatak.iceberg.snapshot import check_retention, check_rows, sequence_number
from nunatak.iceberg.table_metadata import TableMetadata, decode_fields
from nunatak.iceberg.updates import runs_back
from nunatak.iceberg.view_metadata import ViewMetadata, check_namespace, parse_json

_NO_MAP = "Cannot parse string map from non-object value: properties: null"

# Fields in which the reference reads null as a wrong value, not as a missing one; `[]` is each object of a list.
_VIEW_NULLS = {"properties": _NO_MAP}
_TABLE_NULLS = {
    "schemas": "Cannot parse schemas from non-array: null",
    "partition-specs": "Cannot parse partition specs from non-array: null",
    "partition-specs[].fields[].field-id": "Cannot parse to an integer value: field-id: null",
    "sort-orders": "Sort orders cannot be null or empty",
    "properties": _NO_MAP,
    "encryption-keys": "Cannot parse JSON array from non-array value: encryption-keys: null",
    "encryption-keys[].properties": _NO_MAP,
    "refs": "Cannot parse refs from non-object: null",
    "snapshots": "Cannot parse missing field: snapshots",
    "snapshots[].sequence-number": "Cannot parse to a long value: sequence-number: null",
    "snapshots[].parent-snapshot-id": "Cannot parse to a long value: parent-snapshot-id: null",
    "snapshots[].summary": "Cannot parse summary from non-object value: null",
    "snapshots[].manifest-list": "Cannot parse to a string value: manifest-list: null",
    "statistics": "Cannot parse statistics files from non-array: null",
    "statistics[].blob-metadata[].properties": _NO_MAP,
    "partition-statistics": "Cannot parse partition statistics files from non-array: null",
}
_OLD_TABLE_NULLS = {**_TABLE_NULLS, "partition-spec[].field-id": "Cannot parse to an integer value: field-id: null"}


def check_table(data: bytes, metadata: TableMetadata) -> None:
    """Raise BadRequest if the reference could not load the file, from which `metadata` was read."""
    document = decode_fields(data)
    # The reference reads `partition-spec` only in old files, which have no `partition-specs`.
    _raise_first(_nulls(document, _TABLE_NULLS if "partition-specs" in document else _OLD_TABLE_NULLS))
    _raise_first(_of_snapshot_files(document.get("snapshots") or ()))
    _raise_first(_of_parts(metadata))
    _raise_first(_of_whole(metadata))


def check_view(data: bytes, metadata: ViewMetadata) -> None:
    _raise_first(_nulls(parse_json(data, "view metadata"), _VIEW_NULLS))
    _raise_first(_of_defaults(metadata.schemas))
    for version in metadata.versions:
        what = f"version {version['version-id']}"
        _raise_first(
            _collect_refusals(what, version["default-namespace"], check_namespace, version["default-namespace"])
        )


def contradictions(metadata: TableMetadata) -> list[str]:
    """Return a sentence for each part of the metadata that contradicts another, or that the reference cannot read."""
    lists = {
        "snapshots": list(metadata.snapshots),
        "statistics": metadata.statistics,
        "encryption-keys": metadata.encryption_keys,
    }
    return [
        *_of_ids(metadata),
        *(f"{refusal.hint}: {refusal.message}" for refusal in _of_parts(metadata)),
        *(f"{refusal.hint}" for refusal in (*_nulls(lists, _TABLE_NULLS), *_of_whole(metadata))),
        *_of_log_end(metadata),
    ]


def _raise_first(refusals: Iterable[BadRequest]) -> None:
    for refusal in refusals:
        told = f"In this file {refusal.hint}; clients on Iceberg's Java library, such as Spark, could not load it."
        raise type(refusal)(refusal.message, hint=told)


def _collect_refusals(
    what: str, said: object, check: Callable[..., object], *arguments: object
) -> Iterator[BadRequest]:
    try:
        check(*arguments)
    except BadRequest as error:
        yield type(error)(error.message, hint=f"{what} says {print_json(said)}")


# The JSON of the file


def _nulls(document: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[BadRequest]:
    for path, message in words.items():
        for place in _null_places(document, path):
            yield IllegalArgument(message, hint=f"{place} is null")


def _null_places(value: Mapping[str, Any], path: str) -> Iterator[str]:
    name, nested, rest = path.partition("[].")
    if not nested:
        if name in value and value[name] is None:
            yield name
        return
    for index, inner in enumerate(value.get(name) or ()):
        for place in _null_places(inner, rest):
            yield f"{name}[{index}].{place}"


def _of_snapshot_files(snapshots: Iterable[Json]) -> Iterator[BadRequest]:
    for each in snapshots:
        yield from _collect_refusals(f"snapshot {each['snapshot-id']}", each, _check_snapshot_files, each)


def _check_snapshot_files(snapshot: Json) -> None:
    if "manifest-list" in snapshot:
        check_rows(snapshot.get("first-row-id"), snapshot.get("added-rows"))
    elif "manifests" not in snapshot:
        raise IllegalArgument("Cannot parse missing list: manifests")
    elif snapshot["manifests"] is None:
        raise IllegalArgument("Cannot parse JSON array from non-array value: manifests: null")


def _of_defaults(schemas: Iterable[Json]) -> Iterator[BadRequest]:
    for schema in schemas:
        for told in _null_defaults(schema):
            yield IllegalArgument("Cannot create expression literal from null", hint=told)


def _null_defaults(type_json: str | Json) -> Iterator[str]:
    if isinstance(type_json, str):
        return
    for field in type_json.get("fields", ()):
        for name in ("initial-default", "write-default"):
            if name in field and field[name] is None:
                yield f"the {name} of the column {field['name']} is null"
        yield from _null_defaults(field["type"])
    for name in ("element", "key", "value"):
        if name in type_json:
            yield from _null_defaults(type_json[name])


# The values of the metadata


def _of_parts(metadata: TableMetadata) -> Iterator[BadRequest]:
    """Yield an error for each spec, sort order or reference that cannot be used; the hints only quote it."""
    current = parse_schema(metadata.current_schema)
    for spec in metadata.partition_specs:
        what = f"partition spec {spec['spec-id']}"
        yield from _collect_refusals(what, spec["fields"], _check_spec, spec, current, metadata.default_spec_id)
    for order in metadata.sort_orders:
        what = f"sort order {order['order-id']}"
        yield from _collect_refusals(
            what, order["fields"], _check_order, order, current, metadata.default_sort_order_id
        )
    for name, ref in metadata.refs.items():
        yield from _collect_refusals(f"the reference {name}", ref, check_retention, ref)


def _of_whole(metadata: TableMetadata) -> Iterator[BadRequest]:
    yield from _of_defaults(metadata.schemas)
    for key in metadata.encryption_keys:
        if not is_base64(key["encrypted-key-metadata"]):
            message = "Cannot parse encryption key: encrypted-key-metadata is not base64"
            yield IllegalArgument(message, hint=f"the encryption key {key['key-id']} is not base64")
    ids = Counter(key["key-id"] for key in metadata.encryption_keys)
    for key_id, count in ids.items():
        if count > 1:
            yield IllegalArgument(f"Duplicate key {key_id}", hint=f"the encryption key {key_id} is there {count} times")
    yield from _of_sequence_numbers(metadata)
    yield from _of_times(metadata)


def _check_spec(spec: Json, schema: Schema, default_spec_id: int) -> None:
    """Check a spec; only the default must fit the schema completely: others may use columns that were dropped since."""
    read = partition_spec.read_spec(spec)
    partition_spec.check_transforms(read["fields"], schema)
    partition_spec.check_names(read, schema)
    if read["spec-id"] == default_spec_id:
        partition_spec.check_compatibility(read, schema)


def _check_order(order: Json, schema: Schema, default_sort_order_id: int) -> None:
    read = sort_order.read_order(order)
    if read["order-id"] == default_sort_order_id:
        partition_spec.check_transforms(read["fields"], schema)
        sort_order.check_compatibility(read, schema)


def _of_sequence_numbers(metadata: TableMetadata) -> Iterator[BadRequest]:
    last = metadata.last_sequence_number  # 0 in v1, which has no sequence numbers
    for snapshot in metadata.snapshots:
        number = sequence_number(snapshot)
        if number > last:
            yield InvalidMetadata(
                f"Invalid snapshot with sequence number {number} greater than last sequence number {last}",
                hint=f"snapshot {snapshot['snapshot-id']} has the sequence number {number}, "
                f"but last-sequence-number is {last}",
            )


def _of_times(metadata: TableMetadata) -> Iterator[BadRequest]:
    """Yield an error where a log goes back in time by more than clocks may differ: readers search logs by time."""
    updated = metadata.last_updated_ms
    for log, entries, latest in (
        ("snapshot log", metadata.snapshot_log, "last snapshot log entry at"),
        ("previous metadata log", metadata.metadata_log, "the latest metadata log entry timestamp"),
    ):
        times = [entry["timestamp-ms"] for entry in entries]
        for before, after in pairwise(times):
            if runs_back(before, after):
                yield IllegalArgument(
                    f"[BUG] Expected sorted {log} entries.", hint=f"the {log} goes back from {before} to {after}"
                )
        if times and runs_back(times[-1], updated):
            yield IllegalArgument(
                f"Invalid update timestamp {updated}: before {latest} {times[-1]}",
                hint=f"last-updated-ms is {updated}, but the {log} ends at {times[-1]}",
            )


# Contradictions that no reader refuses


def _of_ids(metadata: TableMetadata) -> Iterator[str]:
    highest = max(parse_schema(schema).highest_field_id for schema in metadata.schemas)
    if highest > metadata.last_column_id:
        yield f"last-column-id is {metadata.last_column_id}, but a column has the id {highest}"
    highest = max(last_field_id(spec) for spec in metadata.partition_specs)
    if highest > max(metadata.last_partition_id, UNPARTITIONED_LAST_FIELD_ID):
        yield f"last-partition-id is {metadata.last_partition_id}, but a partition field has the id {highest}"


def _of_log_end(metadata: TableMetadata) -> Iterator[str]:
    if metadata.current_snapshot_id is not None and metadata.snapshot_log:
        logged = metadata.snapshot_log[-1]["snapshot-id"]
        if logged != metadata.current_snapshot_id:
            yield f"the snapshot log ends with {logged}, but {metadata.current_snapshot_id} is current"
