"""Large metadata files: those of real tables are read in little more memory than their bytes, hostile ones refused."""

import tracemalloc
from collections.abc import Callable

import pytest

from nunatak.errors import InvalidMetadata
from nunatak.iceberg import java_readable, view_metadata
from nunatak.iceberg.table_metadata import decode, encode
from tests.unit.iceberg.builders import NOW_MS, UUID, a_table

FILE = encode(a_table(2, snapshots=1))
MANY = 1_200_000
OBJECTS = b"[" + b"{}," * MANY + b"{}]"
NAMED = b"{" + b",".join(b'"k%d":""' % number for number in range(5_100_000)) + b"}"


def with_field(name: bytes, value: bytes) -> bytes:
    """The last of two fields counts."""
    return FILE[:-1] + b',"%b":%b}' % (name, value)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "many objects in a field that nobody knows": lambda: with_field(b"x", OBJECTS),
    "many fields that nobody knows": lambda: FILE[:-1] + b"," + NAMED[1:],
    "many objects in a schema": lambda: with_field(
        b"schemas", b'[{"type":"struct","schema-id":0,"fields":[],"x":%b}]' % OBJECTS
    ),
    "many objects in statistics": lambda: with_field(b"statistics", OBJECTS),
    "many properties": lambda: with_field(b"properties", NAMED),
    "many references": lambda: with_field(
        b"refs", b"{" + b",".join(b'"r%d":{"snapshot-id":1,"type":"tag"}' % each for each in range(MANY)) + b"}"
    ),
    "many snapshots": lambda: with_field(
        b"snapshots", b"[" + b",".join([b'{"snapshot-id":1,"timestamp-ms":1}'] * MANY) + b"]"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_much_larger_as_objects_is_refused_before_it_is_read(name: str) -> None:
    data = HOSTILE[name]()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMetadata):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
    finally:
        tracemalloc.stop()


def test_a_view_too() -> None:
    view = b'{"view-uuid":"%b","format-version":1,"location":"s3://b","x":%b}' % (UUID.encode(), OBJECTS)

    with pytest.raises(InvalidMetadata, match="at most 1000000"):
        view_metadata.decode(view)


def test_a_table_of_many_snapshots_is_read_and_checked_in_a_few_times_its_bytes() -> None:
    summary = ",".join(f'"total-{number}":"12345"' for number in range(12))
    snapshot = (
        '{"snapshot-id":%d,"sequence-number":1,"timestamp-ms":%d,"manifest-list":"s3://bucket/metadata/snap.avro",'
        '"summary":{"operation":"append",' + summary + "}}"
    )
    many = ",".join(snapshot % (number, NOW_MS) for number in range(1, 20_001)).encode()
    data = with_field(b"snapshots", b"[" + many + b"]")
    tracemalloc.start()
    try:
        metadata = decode(data)
        java_readable.check_table(data, metadata)
        assert len(metadata.snapshots) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 6 * len(data)
    finally:
        tracemalloc.stop()
