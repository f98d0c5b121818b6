"""Requests that come too slowly or are too large, over real sockets: refused in Iceberg's words, without effect."""

import asyncio
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

from nunatak.api.http import Response
from nunatak.api.transport.connection import MAX_HEAD_BYTES, ArrivalLimits, ConnectionGate
from nunatak.api.transport.fast_path import FastPath
from nunatak.api.transport.http_server import make_server
from nunatak.api.transport.protocol import DRAINED_BYTES, protocol_with
from nunatak.api.transport.uvicorn_internals import ServerState
from tests.api.wire import Answer, a_commit, a_table, ok, path_of, set_properties
from tests.api.world import World, build_world
from tests.support.catalogs.local import LocalCatalog
from tests.support.catalogs.process import running_server

T, NOTHING = path_of("ns", "tables", "t"), path_of("ns", "tables", "nothing")
BODY_LIMIT = 2 * 1024 * 1024
RECEIVE_SECONDS = 1
PATIENCE_SECONDS = 60  # a starved machine gets time; nothing here depends on how long it takes
HEAD = b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    environment = {
        "NUNATAK_RECEIVE_SECONDS": str(RECEIVE_SECONDS),
        "NUNATAK_MAX_BODY_BYTES": str(BODY_LIMIT),
    }
    with running_server(tmp_path_factory.mktemp("slow") / "nunatak-data", environment=environment) as server:
        built = build_world(server)
        yield built
        built.connection.close()


@contextmanager
def connected(world: World) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", world.server.port), PATIENCE_SECONDS) as sock:
        yield sock


def until_closed(sock: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := sock.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def parsed(received: bytes) -> Answer:
    """The one answer that came before the connection was closed."""
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert int(headers["content-length"]) == len(body), received
    return Answer(int(status.split()[1]), headers, body)


def drip(sock: socket.socket, pieces: Iterator[bytes]) -> None:
    """Keep sending a little, until the other side has had enough."""
    for piece in pieces:
        try:
            sock.sendall(piece)
        except OSError:
            return
        time.sleep(0.1)


def while_dripping(world: World, begin: bytes, piece: bytes) -> bytes:
    """What comes back until the server closes a connection on which a byte arrives every now and then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with connected(world) as sock:
        sock.sendall(begin)

        def pieces() -> Iterator[bytes]:
            while time.monotonic() < deadline:
                yield piece

        dripping = threading.Thread(target=drip, args=(sock, pieces()))
        dripping.start()
        received = until_closed(sock)
        sock.close()
        dripping.join()
    assert time.monotonic() < deadline, "it was not closed"
    return received


# Too slow

SLOW = {
    "half a request line": (b"GET /v1/conf", b"i"),
    "headers without end": (b"GET /v1/config HTTP/1.1\r\nHost: x\r\n", b"X-A: b\r\n"),
    "one header without end": (b"GET /v1/config HTTP/1.1\r\nX-A: ", b"b"),
    "a body that comes byte by byte": (HEAD + b"Content-Length: 100000\r\n\r\n{", b" "),
    "a body that comes chunk by chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize(("begin", "piece"), SLOW.values(), ids=SLOW.keys())
def test_a_request_that_does_not_arrive_in_time_is_told_so_and_closed(world: World, begin: bytes, piece: bytes) -> None:
    before = world.state()

    answer = parsed(while_dripping(world, begin, piece))

    assert answer.error[:2] == (408, "RequestTimeoutException")
    assert answer.headers["connection"] == "close"
    assert world.state() == before


@pytest.mark.parametrize("begin", [b"GET /v1/conf", HEAD + b"Content-Length: 10\r\n\r\n{"], ids=["head", "body"])
def test_so_is_one_of_which_nothing_more_comes(world: World, begin: bytes) -> None:
    with connected(world) as sock:
        sock.sendall(begin)
        answer = parsed(until_closed(sock))

    assert answer.error[:2] == (408, "RequestTimeoutException")


def test_a_connection_on_which_nothing_comes_is_closed_without_a_word(world: World) -> None:
    """An answer to nothing could be taken for the answer to a request that is just being sent."""
    with connected(world) as sock:
        assert until_closed(sock) == b""


def test_empty_lines_keep_no_connection_open(world: World) -> None:
    received = while_dripping(world, b"\r\n", b"\r\n")

    assert received == b"" or parsed(received).status == 408


@pytest.mark.parametrize("path", [T, "/v1/config"], ids=["fast path", "handler"])
def test_a_client_that_was_answered_may_rest_for_longer(world: World, path: str) -> None:
    world.call("GET", T)
    get = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode()
    with connected(world) as sock, sock.makefile("rb") as stream:
        sock.sendall(get)
        first = read_answer(stream)
        time.sleep(2.2 * RECEIVE_SECONDS)
        sock.sendall(get)
        again = read_answer(stream)

    assert first == again
    assert first[0] == 200


def test_and_the_next_request_has_to_come_in_time_again(world: World) -> None:
    with connected(world) as sock, sock.makefile("rb") as stream:
        for _ in range(2):
            sock.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % T.encode())
            read_answer(stream)
        sock.sendall(b"GET /v1/conf")
        answer = parsed(until_closed(sock))

    assert answer.status == 408


def test_many_slow_connections_hold_up_nobody_and_are_all_closed(world: World) -> None:
    count = int(os.environ.get("NUNATAK_TEST_SLOW_CONNECTIONS", "200"))
    sockets = [socket.create_connection(("127.0.0.1", world.server.port), PATIENCE_SECONDS) for _ in range(count)]
    for number, sock in enumerate(sockets):
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nX-A: "[: number % 30])

    assert world.call("GET", T).status == 200
    closed = [until_closed(sock) for sock in sockets]
    for sock in sockets:
        sock.close()

    assert {received.partition(b"\r\n")[0] for received in closed} <= {b"", b"HTTP/1.1 408 Request Timeout"}


def test_a_client_that_does_not_read_its_answers_is_cut_off(world: World) -> None:
    ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("large")))
    properties = {f"key{number}": "x" * 2000 for number in range(500)}
    ok(world.call("POST", path_of("ns", "tables", "large"), a_commit(set_properties(**properties))))
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(PATIENCE_SECONDS)
        sock.connect(("127.0.0.1", world.server.port))
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path_of("ns", "tables", "large").encode() * 40)
        port = sock.getsockname()[1]
        assert await_true(lambda: holds(world, port))
        assert await_true(lambda: not holds(world, port)), "the server still waits for it"


def holds(world: World, client_port: int) -> bool:
    """Whether the server process still has its end of a connection."""
    connections = psutil.Process(world.server.process.pid).net_connections("tcp")
    return any(each.raddr and each.raddr.port == client_port for each in connections)


def await_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_slow_reader_that_reads_is_served(world: World) -> None:
    with connected(world) as sock:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % T.encode())
        received = b""
        while chunk := sock.recv(500):
            received += chunk
            time.sleep(0.02)

    assert parsed(received).status == 200


# Too large

AT_MOST = MAX_HEAD_BYTES - 100
LARGE_HEADS = {
    "a header": b"GET /v1/config HTTP/1.1\r\nHost: x\r\nX-A: %b\r\n\r\n" % (b"a" * (MAX_HEAD_BYTES + 1)),
    "many headers": b"GET /v1/config HTTP/1.1\r\n%b\r\n" % b"".join(b"X-%d: abc\r\n" % n for n in range(5000)),
    "a path": b"GET /v1/%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * (MAX_HEAD_BYTES + 1)),
    "a query": b"GET /v1/config?%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * (MAX_HEAD_BYTES + 1)),
}


def send_without_end(sock: socket.socket, piece: bytes) -> None:
    """Send until the server closes; it has to do that long before all of this has come."""
    for _ in range(1_000_000_000 // len(piece)):
        try:
            sock.sendall(piece)
        except OSError:
            return
    pytest.fail("the server read it all")


@pytest.mark.parametrize("request_bytes", LARGE_HEADS.values(), ids=LARGE_HEADS.keys())
def test_a_head_that_is_too_large_is_refused_and_closed(world: World, request_bytes: bytes) -> None:
    with connected(world) as sock:
        sock.sendall(request_bytes)
        answer = parsed(until_closed(sock))

    assert answer.error[:2] == (431, "RequestHeaderFieldsTooLargeException")
    assert answer.headers["connection"] == "close"


def test_a_head_without_end_is_refused_before_its_end(world: World) -> None:
    with connected(world) as sock:
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\nX-A: ")
        send_without_end(sock, b"a" * 1000)

        assert parsed(until_closed(sock)).status == 431


def test_a_head_that_is_just_small_enough_is_served(world: World) -> None:
    with connected(world) as sock:
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nConnection: close\r\nX-A: %b\r\n\r\n" % (b"a" * AT_MOST))

        assert parsed(until_closed(sock)).status == 200


def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_comes(world: World) -> None:
    before = world.state()
    with connected(world) as sock:
        sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (BODY_LIMIT + 1))
        answer = parsed(until_closed(sock))

    assert answer.error[:2] == (413, "PayloadTooLargeException")
    assert answer.headers["connection"] == "close"
    assert world.state() == before


def test_a_client_that_asks_first_is_not_told_to_send_it(world: World) -> None:
    with connected(world) as sock:
        sock.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT + 1))

        assert parsed(until_closed(sock)).status == 413


def test_a_client_that_asks_first_and_sends_little_is_told_to_go_on(world: World) -> None:
    body = json.dumps({"namespace": ["asked"]}).encode()
    with connected(world) as sock, sock.makefile("rb") as stream:
        sock.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert stream.readline() == b"\r\n"
        sock.sendall(body)

        assert read_answer(stream)[0] == 200


def test_chunks_that_add_up_to_too_much_are_refused_before_the_last(world: World) -> None:
    chunk = b"%x\r\n%b\r\n" % (65536, b" " * 65536)
    with connected(world) as sock:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        send_without_end(sock, chunk)
        answer = parsed(until_closed(sock))

    assert answer.error[:2] == (413, "PayloadTooLargeException")
    assert answer.headers["connection"] == "close"


def test_a_client_that_sends_all_of_it_first_still_finds_the_answer(world: World) -> None:
    """As many clients do: they look for an answer after they have sent everything, or could not."""
    with connected(world) as sock:
        sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (2 * BODY_LIMIT))
        with suppress(OSError):
            sock.sendall(b" " * 2 * BODY_LIMIT)

        assert parsed(until_closed(sock)).status == 413


def test_a_little_that_nobody_wants_is_thrown_away_and_the_connection_kept(world: World) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=PATIENCE_SECONDS)
    statuses = []
    for path in (NOTHING, T):
        connection.request("GET", path, b"x" * (DRAINED_BYTES - 1))
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
        assert connection.sock is not None, "it was closed"
    connection.close()

    assert statuses == [404, 200]


@pytest.mark.parametrize("path", [T, NOTHING], ids=["fast path", "handler"])
def test_much_that_nobody_wants_is_not_read(world: World, path: str) -> None:
    world.call("GET", T)
    with connected(world) as sock:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), BODY_LIMIT))
        send_without_end(sock, b"x" * 65536)
        received = until_closed(sock)

    assert parsed(received).status == (200 if path == T else 404)  # once, and nothing after it


@pytest.mark.parametrize(
    "second",
    [
        HEAD + b"Content-Length: %d\r\n\r\n" % (BODY_LIMIT + 1),
        LARGE_HEADS["a header"],
        b"this is not HTTP\r\n\r\n",
    ],
    ids=["too large", "head too large", "no HTTP"],
)
def test_what_is_refused_does_not_break_into_an_answer_before_it(world: World, second: bytes) -> None:
    """Written together, so that the first is being worked on when the second is refused."""
    expected = world.call("GET", "/v1/config").body
    with connected(world) as sock:
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\n\r\n" + second)
        received = until_closed(sock)

    first, rest = received[: received.index(expected) + len(expected)], received.partition(expected)[2]
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert rest == b"" or parsed(rest).status in (400, 413, 431)


def test_a_large_body_behind_another_request_is_read_when_its_turn_comes(world: World) -> None:
    """Its head comes while the request before it is being answered, its body afterwards."""
    body = json.dumps({"namespace": ["waited"]}).encode() + b" " * 1_000_000
    with connected(world) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        first = read_answer(stream)
        sock.sendall(body)
        second = read_answer(stream)
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\n\r\n")
        third = read_answer(stream)

    assert [status for status, _ in (first, second, third)] == [200, 200, 200]
    assert first == third


def test_a_body_of_many_tiny_chunks_arrives_as_it_was_sent(world: World) -> None:
    body = json.dumps({"namespace": ["tiny"], "properties": {str(number): "x" * 100 for number in range(500)}}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with connected(world) as sock, sock.makefile("rb") as stream:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        status, answered = read_answer(stream)

    assert status == 200, answered
    assert json.loads(answered)["properties"].items() >= json.loads(body)["properties"].items()


@pytest.mark.parametrize("path", [T, NOTHING, "/v1/config"], ids=["fast path", "404", "handler"])
def test_a_read_is_answered_before_its_body_comes(world: World, path: str) -> None:
    world.call("GET", T)
    with connected(world) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n" % path.encode())
        first = read_answer(stream)
        sock.sendall(b"bodyx" + b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        second = read_answer(stream)

    assert first == second


def test_a_refused_request_ends_the_connection_for_those_behind_it(world: World) -> None:
    create = json.dumps({"namespace": ["smuggled"]}).encode()
    behind = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(create), create)
    with connected(world) as sock:
        sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (BODY_LIMIT + 1) + behind)
        answer = parsed(until_closed(sock))

    assert answer.status == 413
    assert world.call("GET", "/v1/namespaces/smuggled").status == 404


def read_answer(stream: Any) -> tuple[int, bytes]:
    response = stream.readline().split()
    length = 0
    while line := stream.readline().strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return int(response[1]), stream.read(length)


# What it costs


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the timers and tasks that are made."""

    timers = tasks = 0

    def call_at(self, *arguments: Any, **more: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.timers += 1
        return super().call_at(*arguments, **more)

    def create_task(self, *arguments: Any, **more: Any) -> Any:
        self.tasks += 1
        return super().create_task(*arguments, **more)


class Written(asyncio.Transport):
    """A connection of which only what is written is of interest."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[bytes] = []

    def write(self, data: Any) -> None:
        self.answers.append(bytes(data))

    def writelines(self, parts: Iterable[Any]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def can_write_eof(self) -> bool:
        return False


def test_a_thousand_loads_by_the_fast_lane_set_one_timer_and_make_no_task(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    catalog.load("ns", "t")
    loop = CountingLoop()
    served = protocol_with(FastPath(catalog.app, catalog.store), ArrivalLimits(30), catalog.app)
    config = make_server(served, None, lambda: None, drain_seconds=1).config
    protocol = served(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    transport = Written()

    protocol.connection_made(transport)
    for _ in range(1000):
        protocol.data_received(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % T.encode())

    assert len(transport.answers) == 1000
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in transport.answers)
    assert (loop.timers, loop.tasks) == (1, 0)
    protocol.connection_lost(None)
    loop.close()


class Answering:
    """An application that has one answer to everything."""

    async def respond(self, *_: object) -> Response:
        return Response(204)


def parsed_once(lane: FastPath | None, requests: Iterable[bytes]) -> bool:
    """Whether only the first of these was parsed; all of them are answered."""
    loop, parsed, count = asyncio.new_event_loop(), [], 0

    class Served(protocol_with(lane, ArrivalLimits(30), Answering())):  # type: ignore[misc]
        def on_message_begin(self) -> None:
            parsed.append(self)
            super().on_message_begin()

    config = make_server(Served, None, lambda: None, drain_seconds=1).config
    protocol, transport = Served(config=config, server_state=ServerState(), app_state={}, _loop=loop), Written()
    protocol.connection_made(transport)
    for request in requests:
        protocol.data_received(request)
        loop.run_until_complete(asyncio.sleep(0))
        count += 1
    protocol.connection_lost(None)
    loop.close()

    assert transport.answers == [b"HTTP/1.1 204 No Content\r\n\r\n"] * count
    return len(parsed) == 1


def test_a_thousand_changes_with_the_same_head_are_parsed_once() -> None:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n" % T.encode()

    assert parsed_once(None, (head + b"%03d" % number for number in range(1000)))


def test_a_thousand_lists_with_the_same_bytes_are_parsed_once(catalog: LocalCatalog) -> None:
    request = b"GET /v1/namespaces/ns/tables HTTP/1.1\r\nHost: x\r\n\r\n"

    assert parsed_once(FastPath(catalog.app, catalog.store), [request] * 1000)


def test_what_the_application_refused_is_not_counted_again() -> None:
    """The application has counted it; the connection is closed because of the body that is still to come."""
    loop = asyncio.new_event_loop()
    counted: list[Any] = []
    gate = ConnectionGate(count=counted.append)
    served = protocol_with(None, ArrivalLimits(30), Answering(), gate)
    config = make_server(served, None, lambda: None, drain_seconds=1).config
    protocol, transport = served(config=config, server_state=ServerState(), app_state={}, _loop=loop), Written()
    protocol.connection_made(transport)
    protocol.data_received(HEAD + b"Content-Length: %d\r\n\r\n" % BODY_LIMIT)
    loop.run_until_complete(asyncio.sleep(0))

    assert transport.answers == [b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"]
    assert (protocol.refused, counted) == (True, [])
    protocol.connection_lost(None)
    loop.close()
