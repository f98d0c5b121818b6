"""Untrusted Avro files: legal manifests are read; what would decompress to gigabytes is refused before it does."""

import bz2
import datetime
import io
import json
import lzma
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
import zstandard

from nunatak.errors import InvalidMetadata
from nunatak.objectstore import avro
from nunatak.objectstore.live_files import LiveFile, ManifestFile, live_data_files, manifests_of
from nunatak.objectstore.manifests import ENTRY_FIELDS, file_paths, manifest_paths

MOST_MEMORY = 200 * 1024 * 1024  # while a hostile file is read; those below decompress to gigabytes
SYNC = b"s" * 16

Schema = dict[str, Any]


def a_record(name: str, **fields: Any) -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": value} for key, value in fields.items()]}


def an_array(items: Any) -> Schema:
    return {"type": "array", "items": items}


PARTITION = a_record("r102", day=["null", {"type": "int", "logicalType": "date"}], part=["null", "string"])
METRICS = an_array(a_record("k117_v118", key="int", value="long"))
DATA_FILE = a_record(
    "r2",
    content="int",
    file_path="string",
    file_format="string",
    partition=PARTITION,
    record_count="long",
    file_size_in_bytes="long",
    column_sizes=["null", METRICS],
    split_offsets=["null", an_array("long")],
)
ENTRY = a_record("manifest_entry", status="int", snapshot_id=["null", "long"], data_file=DATA_FILE)
SUMMARY = a_record("r508", contains_null="boolean", contains_nan=["null", "boolean"], lower_bound=["null", "bytes"])
LISTED = a_record(
    "manifest_file",
    manifest_path="string",
    manifest_length="long",
    content="int",
    added_files_count="int",
    existing_files_count="int",
    partitions=["null", an_array(SUMMARY)],
)


def an_entry(number: int) -> dict[str, Any]:
    return {
        "status": 1,
        "snapshot_id": 1,
        "data_file": {
            "content": 0,
            "file_path": f"s3://bucket/table/data/{number}.parquet",
            "file_format": "PARQUET",
            "partition": {"day": datetime.date(2024, 1, 1 + number % 28), "part": "a"},
            "record_count": 10,
            "file_size_in_bytes": 1000 + number,
            "column_sizes": [{"key": column, "value": number} for column in range(4)],
            "split_offsets": [4],
        },
    }


def written(schema: Schema, records: list[dict[str, Any]], codec: str = "deflate") -> bytes:
    file = io.BytesIO()
    if codec == "zstandard":  # the library needs another package for that
        for record in records:
            fastavro.schemaless_writer(file, schema, record)
        return a_file(schema, (len(records), zstandard.compress(file.getvalue())), codec=codec.encode())
    fastavro.writer(file, schema, records, codec=codec)
    return file.getvalue()


def number(value: int) -> bytes:
    """As Avro writes it."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def a_file(schema: Any, *blocks: tuple[int, bytes], codec: bytes = b"null") -> bytes:
    """A file by hand: each block has the number of records it claims, and bytes."""
    sent = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    header = number(2) + text(b"avro.schema") + text(sent) + text(b"avro.codec") + text(codec) + number(0)
    return avro.MAGIC + header + SYNC + b"".join(number(count) + text(block) + SYNC for count, block in blocks)


def read(data: bytes) -> int:
    return sum(1 for _ in avro.read_records(data, ENTRY_FIELDS))


# What is legal


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2", "xz"])
def test_a_manifest_is_read_whatever_it_is_compressed_with(codec: str) -> None:
    manifest = written(ENTRY, [an_entry(each) for each in range(3)], codec)

    assert list(file_paths(manifest)) == [f"s3://bucket/table/data/{each}.parquet" for each in range(3)]
    assert next(live_data_files(manifest)) == LiveFile(1000, "day=2024-01-01/part=a")


@pytest.mark.slow
def test_a_manifest_of_a_hundred_thousand_files_is_read() -> None:
    manifest = written(ENTRY, [an_entry(each) for each in range(100_000)])

    assert sum(1 for _ in file_paths(manifest)) == 100_000


def test_a_manifest_list_is_read() -> None:
    line = {"manifest_path": "s3://m", "manifest_length": 5, "content": 1, "added_files_count": 2}
    data = written(LISTED, [{**line, "existing_files_count": 3, "partitions": [{"contains_null": True}]}])

    assert list(manifest_paths(data)) == ["s3://m"]
    assert list(manifests_of(data)) == [ManifestFile("s3://m", 5, True, 5)]


def test_a_manifest_that_is_listed_twice_is_told_once() -> None:
    line = {"manifest_path": "s3://m", "manifest_length": 5, "content": 0, "added_files_count": 2}
    data = written(LISTED, [{**line, "existing_files_count": 0, "partitions": None}] * 3)

    assert list(manifests_of(data)) == [ManifestFile("s3://m", 5, False, 2)]


def test_a_file_without_records_has_none() -> None:
    assert list(file_paths(written(ENTRY, []))) == []


def test_a_field_of_another_kind_than_expected_is_left_out() -> None:
    odd = a_record("e", status=an_array("int"), data_file="string")

    records = list(avro.read_records(written(odd, [{"status": [1], "data_file": "x"}]), ENTRY_FIELDS))

    assert records == [{}]


# What is not


def folded(codec: bytes) -> Callable[[int], bytes]:
    """A block of zeros, compressed; each is read in pieces, so that the test needs little memory itself."""

    def deflate(size: int) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()

    def bzip2(size: int) -> bytes:
        packer = bz2.BZ2Compressor()
        return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()

    def xz(size: int) -> bytes:
        packer = lzma.LZMACompressor(preset=0)
        return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()

    def zstd(size: int) -> bytes:
        packer = zstandard.ZstdCompressor(level=1).compressobj()
        return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()

    return {b"deflate": deflate, b"bzip2": bzip2, b"xz": xz, b"zstandard": zstd}[codec]


@pytest.mark.slow
@pytest.mark.parametrize("codec", [b"deflate", b"bzip2", b"xz", b"zstandard"])
def test_a_block_that_unfolds_to_too_much_is_refused(codec: bytes) -> None:
    data = a_file(ENTRY, (1, folded(codec)(256 << 20)), codec=codec)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMetadata, match="decompresses to more than"):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def test_many_blocks_that_unfold_to_too_much_together_are_refused() -> None:
    schema = a_record("e", status="int", junk="bytes")
    content = zlib.compress(number(1) + text(bytes(10 << 20)), 9)[2:-4]

    assert read(a_file(schema, (1, content), codec=b"deflate")) == 1, "one of them is read"
    with pytest.raises(InvalidMetadata, match="decompresses to more than"):
        read(a_file(schema, *[(1, content)] * 3, codec=b"deflate"))


NODE: Schema = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
FAN: Schema = {"type": "record", "name": "f0", "fields": [{"name": "x", "type": "null"}]}
for _level in range(1, 30):  # each holds the one before it twice: a billion fields in no bytes
    _inner = FAN
    FAN = a_record(f"f{_level}", left=_inner, right=_inner["name"])

HOSTILE = {
    "records of no bytes": a_file(a_record("e", nothing="null"), (2**40, b"")),
    "more records than bytes": a_file(a_record("e", status="int"), (2**40, b"\0\0")),
    "a negative number of records": a_file(a_record("e", status="int"), (-(2**40), b"\0\0")),
    "an array of nulls": a_file(a_record("e", status="int", junk=an_array("null")), (1, b"\0" + number(2**40) + b"\0")),
    "an array of empty records": a_file(
        a_record("e", status="int", junk=an_array(a_record("n"))), (1, b"\0" + number(2**40) + b"\0")
    ),
    **{
        f"an array of {kind} that ends too early": a_file(
            a_record("e", status="int", junk=an_array(kind)), (1, b"\0" + number(2**40) + b"\0")
        )
        for kind in ("boolean", "float", "double", "int", "string")
    },
    "an array of fixed": a_file(
        a_record("e", status="int", junk=an_array({"type": "fixed", "name": "f", "size": 0})),
        (1, b"\0" + number(2**40) + b"\0"),
    ),
    "a map that ends too early": a_file(
        a_record("e", status="int", junk={"type": "map", "values": "null"}), (1, b"\0" + number(2**40) + b"\0")
    ),
    "a text that is longer than the file": a_file(
        a_record("e", data_file=a_record("d", file_path="string")), (1, number(2**60) + b"abc")
    ),
    "types that hold themselves": a_file(a_record("e", status="int", node=NODE), (1, b"\0" + b"\2" * 1_000_000)),
    "types that hold each other twice": a_file(a_record("e", status="int", fan=FAN), (1, b"\0")),
    "types in types": a_file(b'{"type":"array","items":' * 3000 + b'"int"' + b"}" * 3000, (1, b"\0")),
    "types in types in a record": a_file(
        b'{"type":"record","name":"e","fields":[{"name":"a","type":%b"int"%b}]}'
        % (b'{"type":"array","items":' * 100, b"}" * 100),
        (1, b"\0"),
    ),
    "a schema of nothing": a_file(b"", (1, b"\0")),
    "a schema of a number": a_file(b"7", (1, b"\0")),
    "an unknown type": a_file(a_record("e", status="elsewhere"), (1, b"\0")),
    "an unknown compression": a_file(a_record("e", status="int"), (1, b"\0"), codec=b"lz77"),
    "no Avro at all": b"PAR1" + bytes(100),
    "a header without an end": avro.MAGIC + number(2**40) + text(b"a") + text(b"b"),
    "a block that is cut off": a_file(a_record("e", status="int"), (1, b"\0"))[:-20],
    "a date outside the calendar": a_file(
        a_record("e", data_file=a_record("d", partition=a_record("p", day={"type": "int", "logicalType": "date"}))),
        (1, number(2**31 - 1)),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidMetadata):
        read(HOSTILE[name])


def test_what_is_not_asked_for_never_becomes_an_object() -> None:
    """Three million small objects in one field would take a gigabyte; they are skipped."""
    many = number(3_000_000) + b"\2" * 3_000_000 + b"\0"
    data = a_file(a_record("e", status="int", junk=an_array(a_record("n", a="int"))), (1, b"\2" + many))
    tracemalloc.start()
    try:
        assert list(avro.read_records(data, ENTRY_FIELDS)) == [{"status": 1}]
        assert tracemalloc.get_traced_memory()[1] < 50 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_number_of_megabytes_in_a_partition_is_not_turned_into_digits() -> None:
    digits = {"type": "bytes", "logicalType": "decimal", "precision": 10_000_000, "scale": 0}
    schema = a_record("e", data_file=a_record("d", file_path="string", partition=a_record("p", amount=digits)))
    data = a_file(schema, (1, text(b"a") + text(b"\x7f" * 4_000_000)))

    (record,) = avro.read_records(data, ENTRY_FIELDS)

    assert isinstance(record["data_file"]["partition"]["amount"], bytes)
