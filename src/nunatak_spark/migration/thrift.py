"""Thrift's binary protocol, as much as a Hive metastore needs; a value that is sent back is sent as it came."""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from types import TracebackType
from typing import Any, BinaryIO, Self

TIMEOUT_SECONDS = 60
VERSION = 0x80010000
CALL, REPLY, EXCEPTION = 1, 2, 3
STOP, BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 0, 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
CONTAINERS = {MAP, SET, LIST}
NUMBERS = {BOOL: ">?", BYTE: ">b", DOUBLE: ">d", I16: ">h", I32: ">i", I64: ">q"}
MOST_BYTES = 1 << 30  # a length beyond this is not a length: somebody else speaks there


@dataclass(frozen=True)
class Value:
    """A value with its type; of containers, `of` are the types inside. A map is a list of pairs: keys may be lists."""

    kind: int
    value: Any
    of: tuple[int, ...] = ()


Fields = Mapping[int, Value]


class NotThrift(Exception):
    """What came back is not what a metastore answers."""


class Refused(Exception):
    """The metastore answered with one of its exceptions; `number` tells which of those that the call declares."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


def text(value: str) -> Value:
    return Value(STRING, value.encode())


def number(value: int, kind: int = I32) -> Value:
    return Value(kind, value)


def structure(fields: Fields) -> Value:
    return Value(STRUCT, fields)


def listing(values: list[Value], kind: int) -> Value:
    return Value(LIST, [value.value for value in values], (kind,))


class Connection:
    """One connection; calls are made one after the other."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def call(self, name: str, fields: Fields) -> Any:
        """What the method returns (a container as a Value), None if nothing; Refused if it throws."""
        out = BytesIO()
        out.write(struct.pack(">I", VERSION | CALL))
        _write(out, STRING, name.encode())
        out.write(struct.pack(">i", 0))
        _write(out, STRUCT, fields)
        self._socket.sendall(out.getvalue())
        return self._answer(name)

    def _answer(self, name: str) -> Any:
        (head,) = _unpack(self._stream, ">I")
        if head & 0xFFFF0000 != VERSION:
            raise NotThrift("it does not speak Thrift's binary protocol; SASL and TLS are not supported")
        _read(self._stream, STRING)
        _unpack(self._stream, ">i")
        fields: Fields = _read(self._stream, STRUCT)
        if head & 0xFF == EXCEPTION:
            raise NotThrift(f"{name}: {string(fields, 1)}")
        for field, value in fields.items():
            if field == 0:
                return value if value.kind in CONTAINERS else value.value
            raise Refused(string(value.value, 1), field)
        return None


# Reading what came back


def string(fields: Fields, field: int) -> str:
    value = fields.get(field)
    return "" if value is None else decoded(value.value)


def strings(fields: Fields, field: int) -> dict[str, str]:
    """A map of texts."""
    value = fields.get(field)
    return {} if value is None else {decoded(key): decoded(one) for key, one in value.value}


def structures(fields: Fields, field: int) -> list[Fields]:
    value = fields.get(field)
    return [] if value is None else list(value.value)


def decoded(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


def _read(stream: BinaryIO, kind: int) -> Any:
    if kind in NUMBERS:
        (value,) = _unpack(stream, NUMBERS[kind])
        return value
    if kind == STRING:
        (size,) = _unpack(stream, ">i")
        return _exactly(stream, size)
    if kind == STRUCT:
        return _read_struct(stream)
    if kind in CONTAINERS:
        return _read_container(stream, kind)
    raise NotThrift(f"it sent a value of the unknown type {kind}")


def _read_struct(stream: BinaryIO) -> Fields:
    fields: dict[int, Value] = {}
    while (kind := _unpack(stream, ">b")[0]) != STOP:
        (field,) = _unpack(stream, ">h")
        value = _read(stream, kind)
        fields[field] = value if kind in CONTAINERS else Value(kind, value)
    return fields


def _read_container(stream: BinaryIO, kind: int) -> Value:
    """With the types inside, which an empty one would not tell."""
    if kind == MAP:
        key, value, size = _unpack(stream, ">bbi")
        return Value(kind, [(_read(stream, key), _read(stream, value)) for _ in range(size)], (key, value))
    inner, size = _unpack(stream, ">bi")
    return Value(kind, [_read(stream, inner) for _ in range(size)], (inner,))


def _unpack(stream: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, _exactly(stream, struct.calcsize(form)))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    if not 0 <= size <= MOST_BYTES:
        raise NotThrift(f"it announced {size} bytes")
    found = stream.read(size)
    if len(found) != size:
        raise NotThrift("it hung up in the middle of an answer")
    return found


def _write(out: BytesIO, kind: int, value: Any) -> None:
    if kind in NUMBERS:
        out.write(struct.pack(NUMBERS[kind], value))
    elif kind == STRING:
        out.write(struct.pack(">i", len(value)) + value)
    elif kind == STRUCT:
        for field, one in sorted(value.items()):
            out.write(struct.pack(">bh", one.kind, field))
            _write(out, one.kind, one if one.kind in CONTAINERS else one.value)
        out.write(struct.pack(">b", STOP))
    elif kind == MAP:
        out.write(struct.pack(">bbi", *value.of, len(value.value)))
        for pair in value.value:
            _write(out, value.of[0], pair[0])
            _write(out, value.of[1], pair[1])
    else:
        out.write(struct.pack(">bi", value.of[0], len(value.value)))
        for one in value.value:
            _write(out, value.of[0], one)
