"""Connecting to a Hive metastore: whoever speaks another protocol is found out, and what is missing is named."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.metastore import AUTH_MODE, USE_SASL, USE_TLS, Metastore
from tests.unit.cli.conftest import run_command


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


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        b"\x80\x01\x00\x02\x7f\xff\xff\xff",  # a name of 2 GiB
        b"\x80\x01\x00\x02\x00\x00\x00\x01x\x00\x00\x00\x00\x0f\x00\x00\x0b\x7f\xff\xff\xff",  # a list of as many names
    ],
)
def test_whoever_is_not_a_metastore_is_found_out(answer: bytes) -> None:
    with (
        answering(answer) as address,
        Metastore(address) as metastore,
        pytest.raises(CannotRun, match="did not answer get_all_databases"),
    ):
        metastore.databases()


@pytest.mark.parametrize("properties", [{USE_TLS: "true"}, {AUTH_MODE: "PLAIN"}])
def test_somebody_who_speaks_neither_tls_nor_sasl_is_found_out(properties: dict[str, str]) -> None:
    with answering(b"neither\r\n\r\n") as address, pytest.raises(CannotRun, match="No metastore answers") as raised:
        Metastore(address, properties)

    assert "TLS or SASL" in raised.value.fix


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "thrift:", "127.0.0.1:9083"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(CannotRun, match="is not a metastore"):
        Metastore(address)


def test_nobody_at_the_address_is_said_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(CannotRun, match="No metastore answers"):
        Metastore(f"thrift://127.0.0.1:{port}")


@pytest.mark.parametrize("module", ["thrift", "hive_metastore"])
def test_without_the_bindings_the_extra_is_named(
    module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)

    outcome = run_command("migrate", "inventory", "--hive", "thrift://127.0.0.1:1", "--state", f"{tmp_path}/state")

    assert outcome.code == 1
    assert outcome.err == (
        f"Error: {module} is not installed, and is needed for asking a Hive metastore\n"
        "Hint: pip install 'nunatak[hive]'\n"
    )


def test_kerberos_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kerberos", None)

    with pytest.raises(CannotRun, match="kerberos is not installed") as raised:
        Metastore("thrift://127.0.0.1:1", {USE_SASL: "true"})

    assert raised.value.fix == "pip install 'pyiceberg[hive-kerberos]'"
