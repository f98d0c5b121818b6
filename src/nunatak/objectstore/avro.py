"""Reads untrusted Avro files: block by block, only the requested fields, within limits.

A file of some kilobytes can expand to gigabytes: by compression, by array items of zero bytes, by recursive types.
Each of these is refused before it is expanded.
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fastavro
import msgspec
import zstandard

from nunatak.errors import InvalidMetadata

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MAX_HEADER_BYTES = 8 * 1024 * 1024  # the schema of a manifest holds the partition columns only
MAX_TYPES = 20_000  # of a schema, counted at each use
MAX_DEPTH = 32  # of nested types; a manifest has five
MAX_BLOCK_BYTES = 16 * 1024 * 1024  # decompressed; writers close a block after tens of kilobytes
MAX_RATIO = 100  # of decompressed to stored bytes; manifests have about ten
ALWAYS_ALLOWED_BYTES = 16 * 1024 * 1024  # allowed at any ratio
MAX_DECOMPRESSED_BYTES = 1024 * 1024 * 1024  # of one file, decompressed
MAX_DECIMAL_BYTES = 16  # Spec: a decimal has up to 38 digits, in a fixed of as many bytes as they need

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_VARIABLE = frozenset({"int", "long", "bytes", "string"})

Fields = Mapping[str, "Fields | None"]  # the requested fields of a record; None: the whole value, if it is simple
Record = dict[str, Any]


def read_records(data: bytes, wanted: Fields) -> Iterator[Record]:
    """Yields the records of a file, reduced to the wanted fields; raises InvalidMetadata if it exceeds a limit."""
    try:
        yield from _records(data, wanted)
    except InvalidMetadata:
        raise
    # A damaged or hostile file makes the decoding libraries raise any of these; none may become a status 500.
    except (
        ArithmeticError,
        EOFError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
        StopIteration,
        zlib.error,
        lzma.LZMAError,
        OSError,
        zstandard.ZstdError,
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        fastavro.read.SchemaResolutionError,
    ) as error:
        raise InvalidMetadata(f"Not a readable Avro file: {error or type(error).__name__}"[:500]) from error


def _records(data: bytes, wanted: Fields) -> Iterator[Record]:
    reader = _Bytes(data)
    if reader.take(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin with the Avro magic bytes")
    header = _header(reader)
    sync = reader.take(SYNC_BYTES)
    schema = msgspec.json.decode(header.get("avro.schema", b""))
    types = _Types(schema)
    writer = fastavro.parse_schema(types.checked_schema())
    projection = fastavro.parse_schema(types.project(wanted))
    decompress = _CODECS.get(header.get("avro.codec", b"null").decode())
    if decompress is None:
        raise ValueError(f"its compression {header['avro.codec'][:50]!r} is not supported")
    left = min(MAX_DECOMPRESSED_BYTES, max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * len(data)))
    while not reader.is_at_end():
        count, size = reader.long(), reader.long()
        if count < 0 or size < 0:
            raise ValueError("a block has a negative size")
        block = decompress(reader.take(size), min(left, MAX_BLOCK_BYTES))
        if reader.take(SYNC_BYTES) != sync:
            raise ValueError("the sync marker after a block is wrong")
        left -= len(block)
        if count > len(block):  # each record has at least one byte
            raise ValueError(f"a block of {len(block)} bytes claims to hold {count} records")
        stream = io.BytesIO(block)
        for _ in range(count):
            record = fastavro.schemaless_reader(stream, writer, projection)
            if isinstance(record, dict):
                yield record


class _Bytes:
    """A forward reader; raises EOFError past the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise EOFError("the data end too early")
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def long(self) -> int:
        """Reads an Avro long: variable-length, seven bits per byte, lowest first, zigzag-encoded."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number is longer than ten bytes")


def _header(reader: _Bytes) -> dict[str, bytes]:
    """Reads the Avro header: a map of bytes, in blocks of entries."""
    header: dict[str, bytes] = {}
    size = 0
    while count := reader.long():
        if count < 0:  # Avro: a negative count is followed by the block's size in bytes
            count = -count
            reader.long()
        for _ in range(count):
            key, value = reader.take(reader.long()), reader.take(reader.long())
            size += len(key) + len(value) + 1
            if size > MAX_HEADER_BYTES:
                raise ValueError(f"its header is larger than {MAX_HEADER_BYTES} bytes")
            header[key.decode()] = value
    return header


# What a block is compressed with


def _uncompressed(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise ValueError(_block_too_large(limit))
    return data


def _block_too_large(limit: int) -> str:
    return f"a block decompresses to more than {limit} bytes"


def _limit_output(decompress: Callable[[bytes, int], bytes]) -> Callable[[bytes, int], bytes]:
    """Wraps a decompressor so that it stops one byte past the limit and raises."""

    def decompress_limited(data: bytes, limit: int) -> bytes:
        block = decompress(data, limit + 1)
        if len(block) > limit:
            raise ValueError(_block_too_large(limit))
        return block

    return decompress_limited


def _zstd(data: bytes, limit: int) -> bytes:
    # The frame header names the size of the window, and the decoder allocates it before it reads any data.
    frame = zstandard.ZstdDecompressor(max_window_size=MAX_BLOCK_BYTES)
    with frame.stream_reader(data, read_across_frames=True) as reader:
        return reader.read(limit)


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": _uncompressed,
    "deflate": _limit_output(lambda data, limit: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, limit)),
    "bzip2": _limit_output(lambda data, limit: bz2.BZ2Decompressor().decompress(data, limit)),
    "xz": _limit_output(
        lambda data, limit: lzma.LZMADecompressor(memlimit=4 * MAX_BLOCK_BYTES).decompress(data, limit),
    ),
    "zstandard": _limit_output(_zstd),
}


# What a schema may be


class _Types:
    """A schema as it was written, its names resolved and its size checked."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named_types: dict[str, Any] = {}
        self._count = 0

    def checked_schema(self) -> Any:
        """Returns the schema; raises ValueError if a value of it could take far more memory or time than its bytes."""
        if not self._detects_end(self._schema, 0, ""):
            raise ValueError("its records have no field of variable length")
        return _without_long_decimals(self._schema)

    def _detects_end(self, schema: Any, depth: int, namespace: str) -> bool:
        """Whether fastavro raises when it reads or skips a value past the end of the data. It does for variable-length
        numbers, with which texts and unions begin, too; of other types it would read as many as an array claims."""
        self._count += 1
        if self._count > MAX_TYPES or depth > MAX_DEPTH:
            raise ValueError("its schema is too large")
        if isinstance(schema, list):
            for each in schema:
                self._detects_end(each, depth + 1, namespace)
            return True
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema in _VARIABLE
            found, inside = self._named_type(schema, namespace)
            return self._detects_end(found, depth + 1, inside)
        return self._detects_end_of_object(schema, depth, namespace)

    def _detects_end_of_object(self, schema: Any, depth: int, namespace: str) -> bool:
        match schema.get("type") if isinstance(schema, dict) else None:
            case "record":
                inside = self._register(schema, namespace)
                found = [self._detects_end(field["type"], depth + 1, inside) for field in schema["fields"]]
                return any(found)
            case "array":
                if not self._detects_end(schema["items"], depth + 1, namespace):
                    raise ValueError("its arrays have items without a field of variable length")
                return True
            case "map":
                self._detects_end(schema["values"], depth + 1, namespace)
                return True
            case "fixed":
                self._register(schema, namespace)
                return False
            case "enum":
                self._register(schema, namespace)
                return True
            case None:
                raise ValueError("its schema has no type")
            case inner:
                return self._detects_end(inner, depth + 1, namespace)

    def _register(self, schema: Any, namespace: str) -> str:
        """Registers a type under its full name; returns the namespace of the types inside it."""
        name = str(schema["name"])
        around = schema.get("namespace", namespace) or ""
        full = name if "." in name or not around else f"{around}.{name}"
        inside = full.rpartition(".")[0]
        self._named_types[full] = (schema, inside)
        return inside

    def _named_type(self, name: str, namespace: str) -> tuple[Any, str]:
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        found = self._named_types.get(full) or self._named_types.get(name)
        if found is None:
            raise ValueError(f"its schema names an unknown type {name[:50]!r}")
        schema, inside = found
        return schema, inside

    def project(self, wanted: Fields) -> Any:
        """Returns the schema with only the wanted fields: the reader skips the others without creating objects."""
        if not isinstance(self._schema, dict) or self._schema.get("type") != "record":
            raise ValueError("it holds no records")
        return self._project(self._schema, wanted)

    def _project(self, schema: Any, wanted: Fields) -> Any:
        fields = []
        for field in schema["fields"]:
            name = field["name"]
            if name not in wanted:
                continue
            inner, kind = wanted[name], self._resolve(field["type"])
            if inner is not None and _is_record(kind):
                fields.append({"name": name, "type": self._project(kind, inner)})
            elif inner is None and _is_record(kind):
                simple = {each["name"]: None for each in kind["fields"] if not _is_record(self._resolve(each["type"]))}
                fields.append({"name": name, "type": self._project(kind, simple)})
            elif inner is None and (kept := _simple(kind)) is not None:
                fields.append({"name": name, "type": kept})
        return {**{key: schema[key] for key in ("type", "name", "namespace") if key in schema}, "fields": fields}

    def _resolve(self, schema: Any) -> Any:
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            return self._named_type(schema, "")[0]
        if isinstance(schema, dict) and isinstance(schema.get("type"), dict):
            return self._resolve(schema["type"])
        return schema


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record"


def _simple(schema: Any) -> Any:
    """Returns a primitive or fixed type, or a union of such; None for types that may hold many values."""
    if isinstance(schema, list):
        kept = [_simple(each) for each in schema]
        return None if None in kept else kept
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else None
    kind = schema.get("type") if isinstance(schema, dict) else None
    return _without_long_decimals(schema) if kind == "fixed" or kind in _PRIMITIVES else None


def _without_long_decimals(schema: Any) -> Any:
    """Removes the decimal type of long values, which stay bytes: converting megabytes to digits would take hours."""
    if isinstance(schema, list):
        return [_without_long_decimals(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for inner in ("type", "items", "values"):
        if inner in result:
            result[inner] = _without_long_decimals(result[inner])
    if isinstance(result.get("fields"), list):
        result["fields"] = [field | {"type": _without_long_decimals(field["type"])} for field in result["fields"]]
    size = result.get("size") if result.get("type") == "fixed" else None
    if result.get("logicalType") == "decimal" and not (isinstance(size, int) and size <= MAX_DECIMAL_BYTES):
        del result["logicalType"]
    return result
