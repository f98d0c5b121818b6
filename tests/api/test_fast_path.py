"""The fast path over real sockets: whatever it answers is, byte for byte, what the handler would have answered."""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import apsw
import pytest

from nunatak.api.transport.fast_path import FastPath
from tests.api.wire import a_commit, a_table, a_view, ok, path_of, set_properties
from tests.api.world import World, build_world
from tests.support.catalogs.local import LocalCatalog, metadata_file
from tests.support.catalogs.process import running_server

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")
# A header the fast path does not know sends a request the long way.
LONG_WAY = {"X-Anything": "else"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_server(tmp_path_factory.mktemp("fast-lane") / "nunatak-data") as server:
        built = build_world(server)
        large = set_properties(**{f"key{number}": "x" * 100 for number in range(300)})
        ok(built.call("POST", "/v1/namespaces/ns/tables", a_table("large table")))
        ok(built.call("POST", path_of("ns", "tables", "large table"), a_commit(large)))
        yield built
        built.connection.close()


def both_ways(world: World, path: str, headers: Mapping[str, str]) -> list[tuple[object, ...]]:
    """The same request by the handler, then as often as it takes to be known; each with everything that came back."""
    answers = [world.call("GET", path, headers={**headers, **LONG_WAY})]
    answers += [world.call("GET", path, headers=headers) for _ in range(3)]
    return [(answer.status, dict(sorted(answer.headers.items())), answer.body) for answer in answers]


PATHS = {
    "plain": T,
    "all snapshots": f"{T}?snapshots=all",
    "refs only": f"{T}?snapshots=refs",
    "bad mode": f"{T}?snapshots=some",
    "unknown parameter": f"{T}?a=b",
    "prefix": T.replace("/v1/", "/v1/default/"),
    "unknown prefix": T.replace("/v1/", "/v1/nobody/"),
    "another root": f"/api/catalog{T}",
    "doubled version": f"/iceberg/v1{T}",
    "trailing slash": f"{T}/",
    "encoded": T.replace("/t", "/%74"),
    "large": path_of("ns", "tables", "large table"),
    "large in form encoding": path_of("ns", "tables") + "/large+table",
    "missing": path_of("ns", "tables", "no"),
    "view as a table": path_of("ns", "tables", "v"),
    "view": V,
    "bad name": path_of("ns", "tables") + "/..",
    "not UTF-8": path_of("ns", "tables") + "/%FF",
    "list": path_of("ns", "tables"),
    "fragment": f"{T}?snapshots=all&snapshots=refs",
}
HEADERS: dict[str, dict[str, str]] = {
    "no headers": {},
    "gzip": {"Accept-Encoding": "gzip, deflate"},
    "zstd": {"Accept-Encoding": "zstd"},
    "identity": {"Accept-Encoding": "identity"},
    "another tag": {"If-None-Match": '"other"'},
    "no tag": {"If-None-Match": "x"},
    "any tag": {"If-None-Match": "*"},
    "request id": {"X-Request-Id": "42"},
    "a token": {"Authorization": "Bearer x"},
    "a body": {"Content-Length": "0"},
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS.keys())
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_both_ways_answer_the_same(world: World, path: str, headers: dict[str, str]) -> None:
    first, *others = both_ways(world, path, headers)

    assert others == [first] * 3


@pytest.mark.parametrize("spelled", ["{}", "W/{}", '"a", {}'])
@pytest.mark.parametrize("path", [T, f"{T}?snapshots=refs", PATHS["large"], V])
def test_both_ways_know_the_tag_they_gave(world: World, path: str, spelled: str) -> None:
    etag = world.call("GET", path).headers["etag"]

    first, *others = both_ways(world, path, {"If-None-Match": spelled.format(etag)})

    assert first[0] == 304
    assert others == [first] * 3


def test_requests_really_go_both_ways(catalog: LocalCatalog) -> None:
    """The canary: were every request answered by the handler, the comparisons above would prove nothing."""
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    lane = FastPath(catalog.app, catalog.store)
    body = catalog.call("GET", T).body
    before = dict(catalog.store.counts)

    answer = lane.answer(T.encode(), [(b"host", b"x"), (b"accept", b"*/*")])

    assert answer is not None
    assert answer[1] == body
    assert {name: catalog.store.counts[name] - count for name, count in before.items()} == {
        "read": 1,
        "transaction": 0,
        "group": 0,
    }
    assert lane.answer(T.encode(), [(b"x-anything", b"else")]) is None
    for aside in (V, f"{T}?snapshots=refs", f"{T}/unregister", "/v1/config", path_of("ns", "tables", "no")):
        assert lane.answer(aside.encode(), []) is None


def test_a_change_is_seen_at_once(world: World) -> None:
    ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("changing")))
    path = path_of("ns", "tables", "changing")
    for number in range(20):
        committed = world.call("POST", path, a_commit(set_properties(number=str(number))))
        assert world.call("GET", path).body == committed.body
        assert world.call("GET", path, headers={"If-None-Match": committed.headers["etag"]}).status == 304


def test_a_name_that_changes_hands_is_never_answered_from_memory(world: World) -> None:
    path = path_of("ns", "tables", "name")
    ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("name")))
    first = world.call("GET", path)
    assert world.call("DELETE", path).status == 204
    assert world.call("GET", path).error[:2] == (404, "NoSuchTableException")
    ok(world.call("POST", "/v1/namespaces/ns/views", a_view("name")))
    assert world.call("GET", path).error[:2] == (404, "NoSuchTableException")
    assert world.call("DELETE", path_of("ns", "views", "name")).status == 204
    ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("name")))
    again = world.call("GET", path)
    assert ok(again)["metadata"]["table-uuid"] != ok(first)["metadata"]["table-uuid"]


def test_a_pointer_that_another_client_moved_is_followed_at_once(world: World) -> None:
    created = ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("shared")))
    path = path_of("ns", "tables", "shared")
    assert world.call("GET", path).json == created
    theirs = metadata_file(created).with_name("00001-theirs.metadata.json")
    theirs.write_text(json.dumps(created["metadata"] | {"properties": {"made-by": "another"}}))

    with closing(apsw.Connection(str(world.server.data / "nunatak.db"))) as database:
        database.set_busy_timeout(10_000)
        database.execute(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'shared'", (f"file://{theirs}",)
        )

    assert ok(world.call("GET", path))["metadata"]["properties"] == {"made-by": "another"}


def test_a_table_whose_file_is_gone_says_so(world: World) -> None:
    created = ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("torn")))
    path = path_of("ns", "tables", "torn")
    world.call("GET", path)
    file = metadata_file(created)
    moved = file.rename(file.with_suffix(".away"))

    assert world.call("GET", path).error[:2] == (404, "NotFoundException")
    moved.rename(file)
    assert world.call("GET", path).status == 200


def replaced(file: Path, how: str) -> None:
    """Put something else in the place of a metadata file."""
    away = file.rename(file.with_suffix(".away"))
    match how:
        case "a link":
            file.symlink_to(away)
        case "a link to nothing":
            file.symlink_to(file.with_suffix(".nowhere"))
        case "a link to itself":
            file.symlink_to(file)
        case "a folder":
            file.mkdir()
        case "a pipe":
            os.mkfifo(file)
        case "an unreadable file":
            file.write_bytes(away.read_bytes())
            file.chmod(0)
        case "an empty file":
            file.touch()
        case "a file in place of its folder":
            file.parent.rename(file.parent.with_suffix(".away"))
            file.parent.touch()


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("nothing", 404),
        ("a link", 200),
        ("a link to nothing", 404),
        ("a link to itself", 404),
        ("a folder", 404),
        ("a pipe", 404),
        ("an unreadable file", 200),
        ("an empty file", 200),
        ("a file in place of its folder", 404),
    ],
)
def test_both_ways_look_at_the_file_in_the_same_way(catalog: LocalCatalog, how: str, status: int) -> None:
    created = catalog.table("ns", "t")
    lane = FastPath(catalog.app, catalog.store)
    path = path_of("ns", "tables", "t")
    assert lane.answer(path.encode(), []) is not None

    replaced(metadata_file(created), how)

    by_handler, by_lane = catalog.call("GET", path), lane.answer(path.encode(), [])
    assert by_handler.status == status
    assert (by_lane is not None) == (status == 200)
    assert by_lane is None or by_lane[1] == by_handler.body


def test_requests_in_a_row_on_one_connection_are_answered_in_order(world: World) -> None:
    """Pipelining: loads, a body that is ignored, a commit and an error, written before any answer was read."""
    world.call("GET", T)
    commit = json.dumps(a_commit(set_properties(pipelined="yes"))).encode()
    get = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % T.encode()
    with_body = b"GET %b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" % T.encode()
    post = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (T.encode(), len(commit), commit)
    missing = b"GET %bx HTTP/1.1\r\nHost: x\r\n\r\n" % T.encode()

    with socket.create_connection(("127.0.0.1", world.server.port), 30) as sock:
        sock.sendall(get + with_body + get + post + get + missing + get)
        stream = sock.makefile("rb")
        answers = [_read_answer(stream) for _ in range(7)]
        stream.close()

    assert [status for status, _ in answers] == [200, 200, 200, 200, 200, 404, 200]
    bodies = [body for _, body in answers]
    assert bodies[0] == bodies[1] == bodies[2]
    assert b'"pipelined":"yes"' not in bodies[0]
    assert b'"pipelined":"yes"' in bodies[3]
    assert bodies[3] == bodies[4] == bodies[6]


def _read_answer(stream: BinaryIO) -> tuple[int, bytes]:
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, stream.read(length)


def test_an_old_client_that_keeps_nothing_alive_is_answered_and_let_go(world: World) -> None:
    world.call("GET", T)
    for request in (b"GET %b HTTP/1.0\r\n\r\n", b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", world.server.port), 30) as sock:
            sock.sendall(request % T.encode())
            received = b""
            while chunk := sock.recv(65536):  # ends when the server closes
                received += chunk
        assert received.startswith(b"HTTP/1.1 200 OK\r\n")
        assert received.partition(b"\r\n\r\n")[2] == world.call("GET", T).body


def test_a_request_known_by_its_bytes_is_answered_like_any_other(world: World) -> None:
    """Whole, in pieces, two at once, with something else in between: the same bytes get what is true at the moment."""
    get = b"GET %b HTTP/1.1\r\nHost: known\r\nAccept: */*\r\n\r\n" % T.encode()
    missing = b"GET %bx HTTP/1.1\r\nHost: known\r\n\r\n" % T.encode()

    with socket.create_connection(("127.0.0.1", world.server.port), 30) as sock, closing(sock.makefile("rb")) as stream:

        def answers(*pieces: bytes, count: int = 1) -> list[tuple[int, bytes]]:
            for piece in pieces:
                sock.sendall(piece)
                time.sleep(0.02)  # so that each arrives by itself
            return [_read_answer(stream) for _ in range(count)]

        (first,) = answers(get)
        assert [answers(get) for _ in range(3)] == [[first]] * 3
        assert answers(get[:20], get[20:]) == [first]
        assert answers(get + get[:7], get[7:], count=2) == [first, first]
        assert [status for status, _ in answers(missing)] == [404]
        ok(world.call("POST", T, a_commit(set_properties(known="by its bytes"))))
        (later,) = answers(get)
        assert b'"known":"by its bytes"' in later[1]
        assert answers(get) == [later]


def test_the_memory_for_whole_requests_is_bounded(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nunatak.api.transport.fast_path.MAX_REQUESTS", 3)
    lane = FastPath(catalog.app, catalog.store)
    for number in range(10):
        lane.remember(b"request %d" % number, T.encode(), [])
        assert 0 < len(lane.requests) <= 3
    lane.remember(b"x" * 5000, T.encode(), [])
    assert lane.find(b"x" * 5000) is None
