"""Changes that arrive as a whole are answered, byte for byte, as those that arrive in parts."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from nunatak.api.http import RequestHead
from nunatak.api.transport.exchange import MAX_CACHED_HEADS, MAX_HEAD_LENGTH, KnownHeads, format_head, parse_head
from nunatak.api.transport.protocol import WHOLE_BYTES
from tests.api.wire import Answer, a_commit, a_table, path_of, set_properties
from tests.api.world import ANSWER_SECONDS, World, build_world
from tests.support.catalogs.process import running_server
from tests.support.found import await_true

T = path_of("ns", "tables", "t")
BOTH_HEADERS = {
    "no headers": b"",
    "gzip": b"Accept-Encoding: gzip\r\n",
    "request id": b"X-Request-Id: 42\r\n",
    "two request ids": b"X-Request-Id: 42\r\nX-Request-Id: 43\r\n",
    "bad key": b"Idempotency-Key: 1\r\n",
    "odd encoding": b"Content-Encoding: br\r\n",
}
REQUESTS: dict[str, tuple[str, Any]] = {
    "a conflict": ("/v1/namespaces", {"namespace": ["ns"]}),
    "nothing to change": (T, a_commit()),
    "a failed requirement": (T, a_commit(requires=[{"type": "assert-create"}])),
    "a missing table": (path_of("ns", "tables", "no"), a_commit()),
    "no JSON": (T, b"{"),
    "no body": (T, b""),
    "no route": ("/v1/nothing", {}),
    "not for POST": ("/v1/config", {}),
    "metrics": (f"{T}/metrics", {"report-type": "scan-report"}),
    "a query": (f"{T}?a=%FF", a_commit()),
    "not UTF-8": (path_of("ns", "tables") + "/%FF", a_commit()),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_server(tmp_path_factory.mktemp("exchange") / "nunatak-data") as server:
        built = build_world(server)
        large = set_properties(**{f"key{number}": "x" * 100 for number in range(300)})
        assert built.call("POST", T, a_commit(large)).status == 200
        yield built
        built.connection.close()


def head(path: str, headers: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\n%b" % (path.encode(), headers)


def whole(path: str, content: bytes, headers: bytes = b"") -> bytes:
    return head(path, headers) + b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


def in_parts(path: str, content: bytes, headers: bytes = b"") -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(content), content) if content else b""
    return head(path, headers) + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"


def content_of(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def shown(answer: Answer) -> tuple[object, ...]:
    return answer.status, dict(sorted(answer.headers.items())), answer.body


@pytest.mark.parametrize("headers", BOTH_HEADERS.values(), ids=BOTH_HEADERS.keys())
@pytest.mark.parametrize(("path", "body"), REQUESTS.values(), ids=REQUESTS.keys())
def test_both_are_answered_the_same(world: World, path: str, body: Any, headers: bytes) -> None:
    """The second time the head is known, and is not parsed again."""
    content = content_of(body)
    first, again, parts = (shown(world.raw(of(path, content, headers))) for of in (whole, whole, in_parts))
    assert first == again == parts


@pytest.mark.parametrize(
    "target",
    ["?a=b", "*", "//", "//x:y/v1/namespaces", "http://[::1/v1", "x:1", "http://x/v1/namespaces", "/v1/namespaces#a"],
)
def test_an_odd_target_is_answered_the_same(world: World, target: str) -> None:
    content = content_of({"namespace": ["ns"]})
    answers = [shown(world.raw(of(target, content))) for of in (whole, in_parts)]
    assert answers[0] == answers[1]
    assert answers[0][0] in (400, 404, 405, 409)


def names(world: World) -> set[str]:
    return {".".join(each) for each in world.call("GET", "/v1/namespaces").json["namespaces"]}


def namespace(name: str, size: int = 0) -> bytes:
    return content_of({"namespace": [name], "properties": {"a": "x" * size}})


class Line:
    """A connection and its answers, one after the other."""

    def __init__(self, world: World) -> None:
        self.socket = socket.create_connection(("127.0.0.1", world.server.port), ANSWER_SECONDS)
        self.stream = self.socket.makefile("rb")

    def close(self) -> None:
        self.stream.close()
        self.socket.close()

    def answer(self) -> tuple[int, bytes]:
        status = int(self.stream.readline().split()[1])
        length = 0
        while line := self.stream.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, self.stream.read(length)


def test_a_body_may_come_byte_by_byte(world: World) -> None:
    with closing(Line(world)) as line:
        for byte in whole("/v1/namespaces", namespace("bytes")):
            line.socket.sendall(bytes([byte]))
        assert line.answer()[0] == 200
    assert "bytes" in names(world)


@pytest.mark.parametrize("size", [WHOLE_BYTES // 2, WHOLE_BYTES * 2], ids=["whole", "in parts"])
def test_a_large_body_is_taken(world: World, size: int) -> None:
    body = content_of({"updates": [], "requirements": [], "filler": "x" * size})
    with closing(Line(world)) as line:
        for _ in range(3):
            line.socket.sendall(whole(T, body))
            assert line.answer()[0] == 200


def test_requests_that_come_together_are_answered_in_their_order(world: World) -> None:
    create = content_of(a_table("in-order"))
    table = path_of("ns", "tables", "in-order")
    with closing(Line(world)) as line:
        line.socket.sendall(
            whole(path_of("ns", "tables"), create)
            + whole(table, content_of(a_commit(set_properties(n="1"))))
            + in_parts(table, content_of(a_commit(set_properties(n="2"))))
            + whole(table, content_of(a_commit(set_properties(n="3"))))
            + b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % table.encode()
            + whole("/v1/namespaces", namespace("behind"))
        )
        answers = [line.answer() for _ in range(6)]
    assert [status for status, _ in answers] == [200] * 6
    numbers = [json.loads(body).get("metadata", {}).get("properties", {}).get("n") for _, body in answers]
    assert numbers == [None, "1", "2", "3", "3", None]


def test_a_connection_that_is_to_be_closed_is_closed_after_the_answer(world: World) -> None:
    with closing(Line(world)) as line:
        line.socket.sendall(whole("/v1/namespaces", namespace("closing"), b"Connection: close\r\n"))
        assert line.answer()[0] == 200
        assert line.stream.read() == b""


def test_a_body_that_breaks_off_changes_nothing(world: World) -> None:
    with closing(Line(world)) as line:
        line.socket.sendall(whole("/v1/namespaces", namespace("half"))[:-1])
    assert "half" not in names(world)


def test_a_client_that_goes_away_has_done_what_it_asked_for(world: World) -> None:
    with closing(Line(world)) as line:
        line.socket.sendall(whole(T, content_of(a_commit(set_properties(gone="yes")))))
    await_true("it is done", lambda: world.call("GET", T).json["metadata"]["properties"].get("gone") == "yes")
    assert world.call("GET", "/health").status == 200


def test_a_name_beyond_the_protocol_is_refused_on_both_ways(world: World) -> None:
    content = namespace("odd")
    for request in (whole("/v1/namespaces", content), in_parts("/v1/namespaces", content)):
        answer = world.raw(request.replace(b"HTTP/1.1", b"HTTP/7.1", 1))
        assert answer.status in (400, 505)
    assert "odd" not in names(world)


def exchanged(world: World, *pieces: bytes) -> list[int]:
    """The statuses of as many answers, of pieces that arrive one by one and are a request each, or parts of one."""
    with closing(Line(world)) as line:
        statuses = []
        for piece in pieces:
            line.socket.sendall(piece)
            if piece.endswith(b"}"):
                statuses.append(line.answer()[0])
            else:
                time.sleep(0.05)  # or it would arrive with what follows
        return statuses


def test_a_known_head_may_be_followed_by_anything(world: World) -> None:
    one = whole(T, content_of(a_commit(set_properties(known="1"))))
    two = whole(T, content_of(a_commit(set_properties(known="2"))))
    cut = len(one) - 5

    assert exchanged(world, one, two, one) == [200, 200, 200]
    assert exchanged(world, one[:cut], one[cut:], two) == [200, 200]
    with closing(Line(world)) as line:
        line.socket.sendall(one + two + one[:cut])
        assert [line.answer()[0] for _ in range(2)] == [200, 200]
        line.socket.sendall(one[cut:] + two)
        assert [line.answer()[0] for _ in range(2)] == [200, 200]
    assert world.call("GET", T).json["metadata"]["properties"]["known"] == "2"


def test_requests_that_follow_a_known_head_before_its_answer_keep_their_order(world: World) -> None:
    changes = [whole(T, content_of(a_commit(set_properties(turn=str(number))))) for number in range(6)]
    assert exchanged(world, *changes) == [200] * 6
    with closing(Line(world)) as line:
        for change in changes:
            line.socket.sendall(change)
        answers = [json.loads(line.answer()[1])["metadata"]["properties"]["turn"] for _ in changes]
    assert answers == ["0", "1", "2", "3", "4", "5"]


def a_head(*names: bytes) -> RequestHead:
    return parse_head(b"POST", b"/v1/namespaces?a=b", [(name, b"1") for name in names])


def test_only_what_is_one_whole_request_is_remembered() -> None:
    request = b"POST /v1/namespaces?a=b HTTP/1.1\r\nhost: 1\r\n\r\n{}"
    heads, known = KnownHeads(), a_head(b"host")
    heads.remember(request, known, 2)

    assert heads.find(request) == (known, b"{}")
    assert heads.find(request.replace(b"{}", b"[]")) == (known, b"[]")
    for other in (request + b" ", request[:-1], request.replace(b"a=b", b"a=c"), b"POST", b""):
        assert heads.find(other) is None


def test_a_request_without_a_body_is_remembered_too() -> None:
    request = b"GET /v1/namespaces?a=b HTTP/1.1\r\nhost: 1\r\n\r\n"
    heads, known = KnownHeads(), a_head(b"host")
    heads.remember(request, known, 0)

    assert heads.find(request) == (known, b"")
    for other in (request + b" ", request + request, request[:-1], request.replace(b"GET", b"HEAD")):
        assert heads.find(other) is None


@pytest.mark.parametrize(
    ("request_bytes", "name", "body_bytes"),
    [
        (b"POST / HTTP/1.1\r\nidempotency-key: 1\r\n\r\n{}", b"idempotency-key", 2),
        (b"\r\nPOST / HTTP/1.1\r\nhost: 1\r\n\r\n{}", b"host", 2),
        (b"POST / HTTP/1.1\r\nhost: 1\r\n\r\n{}", b"host", 1),
        (b"POST / HTTP/1.1\r\nhost: 1\n\n{}", b"host", 2),
        (b"POST / HTTP/1.1\r\nhost: %b\r\n\r\n{}" % (b"1" * MAX_HEAD_LENGTH), b"host", 2),
    ],
    ids=["of one request only", "with something before", "of another length", "ended otherwise", "long"],
)
def test_a_head_that_is_not_plain_is_not_remembered(request_bytes: bytes, name: bytes, body_bytes: int) -> None:
    heads = KnownHeads()
    heads.remember(request_bytes, a_head(name), body_bytes)
    assert heads.find(request_bytes) is None


def test_no_more_than_so_many_heads_are_remembered() -> None:
    heads = KnownHeads()
    for number in range(MAX_CACHED_HEADS + 2):
        heads.remember(b"POST /%d HTTP/1.1\r\nhost: 1\r\n\r\n{}" % number, a_head(b"host"), 2)
    assert len(heads._known) == 2


def test_a_header_with_a_line_break_is_not_written() -> None:
    assert format_head(204, [(b"a", b"b")]) == b"HTTP/1.1 204 No Content\r\na: b\r\n\r\n"
    for value in (b"b\r\nset-cookie: c", b"b\nc", b"b\n"):
        with pytest.raises(ValueError, match="line break"):
            format_head(204, [(b"a", value)])
