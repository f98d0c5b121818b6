"""The client against a socket that misbehaves: answers that are lost, compressed, or no catalog's."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest

from nunatak.client import Client, ClientCredential, ServerResponse, ServerUnreachable, error_of, new_idempotency_key
from nunatak.errors import (
    BadRequest,
    CatalogError,
    CommitFailed,
    Conflict,
    NoSuchTable,
    NotAuthenticated,
    NotFound,
)

Reply = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def a_socket_that_answers(*replies: Reply) -> Iterator[tuple[str, list[Any]]]:
    """An HTTP server that answers its requests with `replies` in turn, and notes them."""
    waiting, seen = list(replies), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            seen.append((self.command, self.path, dict(self.headers)))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            waiting.pop(0)(self)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the standard library's names

        def log_message(self, *arguments: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_address[1]}", seen
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def reply(status: int, body: object = None, *, headers: dict[str, str] | None = None) -> Reply:
    content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return send


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.close()


def test_a_change_whose_answer_got_lost_is_sent_again_with_the_same_key() -> None:
    config = reply(200, {"defaults": {}, "overrides": {}})
    with a_socket_that_answers(config, hang_up, reply(204)) as (uri, seen), Client(uri) as client:
        client.drop_table(("shop", "orders"))

    (_, path, first), (_, again, second) = seen[1:]
    assert path == again == "/v1/namespaces/shop/tables/orders?purgeRequested=false"
    assert first["Idempotency-Key"] == second["Idempotency-Key"]


def test_a_server_that_hangs_up_twice_is_not_reachable() -> None:
    with (
        a_socket_that_answers(hang_up, hang_up) as (uri, _),
        Client(uri) as client,
        pytest.raises(ServerUnreachable, match="no catalog answers"),
    ):
        client.load_config()


def test_a_key_is_a_uuid_of_version_7_and_new_each_time() -> None:
    keys = [UUID(new_idempotency_key()) for _ in range(100)]

    assert {key.version for key in keys} == {7}
    assert len(set(keys)) == 100


def test_a_compressed_answer_is_read() -> None:
    packed = gzip.compress(json.dumps({"defaults": {"a": "b"}}).encode())
    with (
        a_socket_that_answers(reply(200, packed, headers={"Content-Encoding": "gzip"})) as (uri, _),
        Client(uri) as client,
    ):
        assert client.load_config() == {"defaults": {"a": "b"}}


def test_the_warehouse_is_asked_for_and_its_prefix_used() -> None:
    config = reply(200, {"overrides": {"prefix": "lake two"}})
    page = reply(200, {"namespaces": [["a"]], "next-page-token": "x"})
    end = reply(200, {"namespaces": [["b", "c"]]})
    with a_socket_that_answers(config, page, end) as (uri, seen), Client(f"{uri}/v1", warehouse="lake two") as client:
        assert list(client.list_namespaces(("p", "q"))) == [("a",), ("b", "c")]

    assert [path for _, path, _ in seen] == [
        "/v1/config?warehouse=lake+two",
        "/v1/lake%20two/namespaces?parent=p%1Fq&pageToken=&pageSize=1000",
        "/v1/lake%20two/namespaces?parent=p%1Fq&pageToken=x&pageSize=1000",
    ]


@pytest.mark.parametrize(
    ("status", "kind", "raised"),
    [
        (404, "NoSuchTableException", NoSuchTable),
        (409, "CommitFailedException", CommitFailed),
        (404, "SomethingNewException", NotFound),
        (409, "SomethingNewException", Conflict),
        (400, "SomethingNewException", BadRequest),
        (418, "TeapotException", CatalogError),
    ],
)
def test_a_refusal_is_the_error_it_names(status: int, kind: str, raised: type[CatalogError]) -> None:
    body = json.dumps({"error": {"message": "no", "type": kind, "code": status, "hint": "do this"}}).encode()

    error = error_of(ServerResponse(status, {}, body), "http://host")

    assert type(error) is raised
    assert (error.message, error.hint) == ("no", "do this")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[]", b'{"error": "x"}', b'{"message": "x"}'])
def test_an_answer_that_is_no_iceberg_error_says_what_was_asked(body: bytes) -> None:
    error = error_of(ServerResponse(502, {}, body), "http://host")

    assert error.message == "http://host answered 502 without an Iceberg error"
    assert error.hint is not None
    assert "proxy" in error.hint


# Logging in

NOT_KNOWN = reply(
    401, {"error": {"message": "No credentials were sent", "type": "NotAuthorizedException", "code": 401}}
)
CONFIG = reply(200, {"defaults": {}, "overrides": {}})
TOKEN = reply(200, {"access_token": "fresh", "token_type": "bearer", "expires_in": 60})


def test_a_token_is_asked_for_only_by_who_is_asked() -> None:
    with a_socket_that_answers(CONFIG) as (uri, seen), Client(uri, credential=ClientCredential("id", "hush")) as client:
        client.load_config()

    assert [path for _, path, _ in seen] == ["/v1/config"]
    assert "Authorization" not in seen[0][2]


@pytest.mark.parametrize("status", [401, 419])
def test_a_request_that_needs_a_login_is_sent_again_with_its_key_and_a_token(status: int) -> None:
    expired = reply(status, {"error": {"message": "expired", "type": "x", "code": status}})
    with (
        a_socket_that_answers(CONFIG, expired, TOKEN, reply(204)) as (uri, seen),
        Client(uri, token="old", credential=ClientCredential("id", "hush")) as client,
    ):
        client.drop_table(("shop", "orders"))

    assert [path for _, path, _ in seen][2] == "/v1/oauth/tokens"
    assert [headers.get("Authorization") for _, _, headers in seen] == [
        "Bearer old",
        "Bearer old",
        None,
        "Bearer fresh",
    ]
    assert seen[1][2]["Idempotency-Key"] == seen[3][2]["Idempotency-Key"]


def test_a_login_that_is_refused_says_why_and_not_with_what() -> None:
    refused = reply(401, {"error": "invalid_client", "error_description": "Not a client"})
    with (
        a_socket_that_answers(NOT_KNOWN, refused) as (uri, _),
        Client(uri, credential=ClientCredential("id", "hush")) as client,
        pytest.raises(NotAuthenticated, match="Not a client") as raised,
    ):
        client.load_config()
    assert "hush" not in str(raised.value)


def test_who_has_nothing_to_log_in_with_is_told_so() -> None:
    with (
        a_socket_that_answers(NOT_KNOWN) as (uri, _),
        Client(uri) as client,
        pytest.raises(NotAuthenticated, match="No credentials"),
    ):
        client.load_config()


def test_a_list_of_the_management_api_is_read_to_its_end() -> None:
    first = reply(200, {"roles": [{"name": "a"}], "next-page-token": "more"})
    second = reply(200, {"roles": [{"name": "b"}]})
    with a_socket_that_answers(first, second) as (uri, seen), Client(uri) as client:
        found = [each["name"] for each in client.manage_pages(("roles", "a/b"), "roles")]

    assert found == ["a", "b"]
    assert [path for _, path, _ in seen] == [
        "/management/v1/roles/a%2Fb?pageToken=&pageSize=1000",
        "/management/v1/roles/a%2Fb?pageToken=more&pageSize=1000",
    ]
