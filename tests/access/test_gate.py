"""What one address may have of a server that asks for a login: connections, header fields, waiting requests."""

import contextlib
import socket
from collections.abc import Iterator

import psutil
import pytest

from nunatak.api.transport.connection import MAX_HEAD_FIELDS, ConnectionGate
from nunatak.api.transport.protocol import MAX_PIPELINED
from tests.api.test_slow_and_large import await_true, parsed, read_answer, until_closed
from tests.support.catalogs.process import RunningServer, running_server

PATIENCE_SECONDS = 60
CONNECTIONS = 30
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    environment = {"NUNATAK_ADDRESS_CONNECTIONS": str(CONNECTIONS), "NUNATAK_RECEIVE_SECONDS": "600"}
    with running_server(tmp_path_factory.mktemp("gate") / "data", environment=environment, auth=True) as started:
        yield started


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)


def memory_bytes(server: RunningServer) -> int:
    size: int = psutil.Process(server.process.pid).memory_info().rss
    return size


def test_an_address_has_so_many_connections_and_no_more(server: RunningServer) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(server)) for _ in range(CONNECTIONS)]
        for sock in held:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            with sock.makefile("rb") as stream:
                assert read_answer(stream)[0] == 200
        with connect(server) as another:
            refused = parsed(until_closed(another))

    assert refused.error[:2] == (503, "ServiceUnavailableException")
    assert await_true(lambda: answers(server)), "closed ones do not count"


def answers(server: RunningServer) -> bool:
    with connect(server) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return until_closed(sock).startswith(b"HTTP/1.1 200")


def test_unfinished_bodies_of_strangers_are_not_kept(server: RunningServer) -> None:
    """Each sends as much as the server takes of eight megabytes that it never ends."""
    before = memory_bytes(server)
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS - 2):
            sock = stack.enter_context(connect(server))
            sock.settimeout(0.5)
            head = b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (8 * MIB - 1)
            with contextlib.suppress(OSError):
                sock.sendall(head + b" " * (8 * MIB - 2))
        assert memory_bytes(server) - before < 40 * MIB
        assert await_true(lambda: answers(server))


def test_unfinished_bodies_of_somebody_known_share_a_bounded_memory(server: RunningServer) -> None:
    server.expect(200, "GET", "/v1/namespaces")
    before = memory_bytes(server)
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS - 2):
            sock = stack.enter_context(connect(server))
            sock.settimeout(0.5)
            head = "POST /v1/namespaces HTTP/1.1\r\nHost: x\r\n" + f"Authorization: Bearer {server.key}\r\n"
            with contextlib.suppress(OSError):
                sock.sendall(f"{head}Content-Length: {8 * MIB - 1}\r\n\r\n".encode() + b" " * (8 * MIB - 2))
        assert memory_bytes(server) - before < 120 * MIB  # eight bodies, and what sockets and allocators keep
        assert await_true(lambda: answers(server))


def test_many_header_fields_are_refused(server: RunningServer) -> None:
    for count, status in ((MAX_HEAD_FIELDS - 2, 401), (MAX_HEAD_FIELDS + 1, 431), (6000, 431)):
        fields = b"".join(b"x:\r\n" for _ in range(count))
        with connect(server) as sock:
            sock.sendall(b"GET /v1/config HTTP/1.1\r\nConnection: close\r\n" + fields + b"\r\n")
            assert parsed(until_closed(sock)).status == status


def test_many_requests_that_wait_for_an_answer_are_refused(server: RunningServer) -> None:
    """They come in one piece, before the first can be answered."""
    with connect(server) as sock:
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\n\r\n" * (3 * MAX_PIPELINED))
        received = until_closed(sock)

    assert 1 <= received.count(b"HTTP/1.1 401") <= MAX_PIPELINED


def test_what_is_no_request_counts_for_the_rate_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    limit = {"NUNATAK_ADDRESS_RATE_LIMIT": "5"}
    with running_server(tmp_path_factory.mktemp("rate") / "data", environment=limit, auth=True) as server:
        for _ in range(30):
            with connect(server) as sock:
                sock.sendall(b"no request at all\r\n\r\n")
                assert parsed(until_closed(sock)).status == 400
        statuses = [server.call("GET", "/v1/config", authorization="").status for _ in range(3)]
        log = server.log.read_text()

    assert 429 in statuses
    assert "Invalid HTTP request" not in log


def test_a_trusted_proxy_has_as_many_connections_as_it_likes() -> None:
    gate = ConnectionGate(2, is_proxy=lambda host: host == "10.0.0.9")

    assert [gate.enter("10.0.0.9") for _ in range(5)] == [True] * 5
    assert [gate.enter("10.0.0.1") for _ in range(3)] == [True, True, False]
    gate.leave("10.0.0.1")
    assert gate.enter("10.0.0.1")


def test_addresses_of_one_ipv6_network_share_their_connections() -> None:
    gate = ConnectionGate(2)

    assert [gate.enter(f"2001:db8::{number}") for number in range(3)] == [True, True, False]
    for number in range(2):
        gate.leave(f"2001:db8::{number}")
    assert gate._open == {}
