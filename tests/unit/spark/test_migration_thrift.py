"""The metastore's protocol: what is read is written back byte for byte, and whoever speaks another one is told so."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration import thrift
from nunatak_spark.migration.metastore import Metastore
from nunatak_spark.migration.thrift import BOOL, I32, I64, LIST, MAP, STRING, STRUCT, Value

SIMPLE = {
    BOOL: st.booleans(),
    I32: st.integers(-(2**31), 2**31 - 1),
    I64: st.integers(-(2**63), 2**63 - 1),
    STRING: st.binary(max_size=20),
}


def values(depth: int = 2) -> st.SearchStrategy[Value]:
    """Fields as a metastore sends them, with lists and maps inside each other."""
    simple = st.sampled_from(list(SIMPLE)).flatmap(lambda kind: SIMPLE[kind].map(lambda value: Value(kind, value)))
    if depth == 0:
        return simple
    inner = values(depth - 1)
    texts = st.lists(st.binary(max_size=5), max_size=3)
    nested = texts.map(lambda items: Value(LIST, items, (STRING,)))
    return st.one_of(
        simple,
        st.dictionaries(st.integers(1, 50), inner, max_size=4).map(lambda fields: Value(STRUCT, fields)),
        nested,
        st.lists(nested, max_size=3).map(lambda items: Value(LIST, items, (LIST,))),
        st.lists(st.tuples(nested, st.binary(max_size=5)), max_size=3).map(
            lambda pairs: Value(MAP, pairs, (LIST, STRING))
        ),
    )


@given(st.dictionaries(st.integers(1, 50), values(), max_size=6))
def test_what_was_read_is_written_back_byte_for_byte(fields: dict[int, Value]) -> None:
    first = BytesIO()
    thrift._write(first, STRUCT, fields)

    found = thrift._read(BytesIO(first.getvalue()), STRUCT)
    second = BytesIO()
    thrift._write(second, STRUCT, found)

    assert found == fields
    assert second.getvalue() == first.getvalue()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Somebody who says this to whoever connects, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"thrift://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x80\x01\x00\x02\x7f\xff\xff\xff"])
def test_whoever_is_not_a_metastore_is_found_out(answer: bytes) -> None:
    with (
        answering(answer) as address,
        Metastore(address) as metastore,
        pytest.raises(CannotRun, match="did not answer get_all_databases"),
    ):
        metastore.databases()


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "thrift:", "127.0.0.1:9083"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(CannotRun, match="is not a metastore"):
        Metastore(address)


def test_nobody_at_the_address_is_said_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(CannotRun, match="No metastore answers"):
        Metastore(f"thrift://127.0.0.1:{port}")
