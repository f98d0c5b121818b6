"""A real metastore behind TLS, and one that wants SASL: with the right settings it answers, with others it says so."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.metastore import AUTH_MODE, PASSWORD, PLAIN_USER, USE_TLS, Metastore
from tests.support.hive_metastore import hive_metastore
from tests.support.spark import Installation

TLS = {USE_TLS: "true"}
PLAIN = {AUTH_MODE: "PLAIN", PLAIN_USER: "ana"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


@pytest.fixture
def behind_tls(authority: trustme.CA, metastore: str) -> Iterator[str]:
    """The metastore's address with TLS in front of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with tls_proxy(context, int(metastore.rpartition(":")[2])) as port:
        yield f"thrift://127.0.0.1:{port}"


@contextlib.contextmanager
def tls_proxy(context: ssl.SSLContext, behind: int) -> Iterator[int]:
    """Take TLS off each connection and pass on what is inside."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=pass_on, args=(connection,), daemon=True).start()

        def pass_on(connection: socket.socket) -> None:
            with (
                contextlib.suppress(OSError),
                connection,
                context.wrap_socket(connection, server_side=True) as inside,
                socket.create_connection(("127.0.0.1", behind)) as server,
            ):
                threading.Thread(target=copy, args=(server, inside), daemon=True).start()
                copy(inside, server)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)


def test_a_metastore_is_spoken_to_by_tls(trusted: None, behind_tls: str) -> None:
    with Metastore(behind_tls, TLS) as metastore:
        assert "default" in metastore.databases()


def test_a_metastore_with_an_unknown_certificate_is_refused(behind_tls: str) -> None:
    with pytest.raises(CannotRun, match="No metastore answers"):
        Metastore(behind_tls, TLS)


def test_a_metastore_with_the_certificate_of_another_host_is_refused(trusted: None, behind_tls: str) -> None:
    with pytest.raises(CannotRun, match="No metastore answers"):
        Metastore(behind_tls.replace("127.0.0.1", "localhost"), TLS)


def test_a_metastore_that_wants_tls_is_not_taken_for_a_plain_one(behind_tls: str) -> None:
    with Metastore(behind_tls) as metastore, pytest.raises(CannotRun, match="did not answer"):
        metastore.databases()


def test_a_metastore_is_spoken_to_by_sasl(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("sasl")
    with hive_metastore(folder, installation.java_home, "ana", "geheim") as address:
        with Metastore(address, PLAIN, {PASSWORD: "geheim"}) as metastore:
            assert "default" in metastore.databases()
        with pytest.raises(CannotRun, match="No metastore answers"):
            Metastore(address, PLAIN, {PASSWORD: "wrong"})
        with Metastore(address) as metastore, pytest.raises(CannotRun, match="did not answer"):
            metastore.databases()
