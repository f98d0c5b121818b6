"""Responses from JSON that was encoded before: what a load adds for its caller, and their types in the document."""

import json
from typing import Any, cast

import pytest

from nunatak.api.encoded import Encoded, LoadResult, load_result
from nunatak.api.http import Request
from nunatak.api.routes import ROUTES
from nunatak.api.wire import ListIdentifiersResponse, LoadTableResponse, LoadViewResponse, StorageCredential
from nunatak.catalog.cache import Loaded

LOADED = Loaded("file:///t/metadata/1.json", [b'{"location":"file:///t"}'], None)
STORED = {"metadata-location": "file:///t/metadata/1.json", "metadata": {"location": "file:///t"}}


def a_request(method: str = "GET", **headers: str) -> Request:
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return Request(cast(Any, None), cast(Any, None), method, (), b"", sent, cast(Any, None))


def with_members(**members: Any) -> LoadResult[LoadTableResponse]:
    return LoadResult(LOADED.answer, LOADED.etag, LOADED.packed, **members)


def test_a_load_without_members_of_its_own_is_the_stored_bytes() -> None:
    response = load_result(LOADED).respond(a_request())

    assert response.body is LOADED.answer
    assert response.packed is LOADED.packed
    assert json.loads(response.body) == {**STORED, "config": {}}


@pytest.mark.parametrize(
    ("members", "shown"),
    [
        ({"config": {"a": "b"}}, {"config": {"a": "b"}}),
        (
            {"storage_credentials": [StorageCredential("s3://b", {"s3.session-token": "x"})]},
            {"config": {}, "storage-credentials": [{"prefix": "s3://b", "config": {"s3.session-token": "x"}}]},
        ),
        (
            {"config": {"a": "b"}, "remote_signing_config": {"signer.uri": "u"}},
            {"config": {"a": "b"}, "remote-signing-config": {"signer.uri": "u"}},
        ),
    ],
)
def test_members_of_the_caller_are_joined_to_the_stored_json(members: Any, shown: Any) -> None:
    response = with_members(**members).respond(a_request())

    assert json.loads(response.body) == {**STORED, **shown}
    assert response.packed is None, "what is compressed for one caller must not be served to another"
    assert json.loads(LOADED.answer) == {**STORED, "config": {}}


def test_credentials_are_sent_anew_although_the_client_knows_the_metadata() -> None:
    known = {"if_none_match": LOADED.etag}

    assert load_result(LOADED).respond(a_request(**known)).status == 304
    response = with_members(config={"s3.session-token": "x"}).respond(a_request(**known))
    assert response.status == 200
    assert b"etag" not in dict(response.headers)


def test_only_a_load_is_answered_not_modified() -> None:
    assert load_result(LOADED).respond(a_request("POST", if_none_match=LOADED.etag)).status == 200


def test_a_staged_table_has_no_etag() -> None:
    response = LoadResult[LoadTableResponse](b'{"metadata":{},"config":{}}').respond(a_request("POST"))

    assert (response.status, dict(response.headers)) == (200, {b"content-type": b"application/json"})


def test_the_routes_are_described_by_the_type_that_was_encoded() -> None:
    types = {route.operation: route.response_type for route in ROUTES}

    assert types["listTables"] is types["listViews"] is ListIdentifiersResponse
    assert types["loadTable"] is types["createTable"] is LoadTableResponse
    assert types["loadView"] is LoadViewResponse
    assert types["dropTable"] is None


def test_encoded_json_is_sent_as_it_is() -> None:
    body = b'{"identifiers":[]}'

    assert Encoded[ListIdentifiersResponse](body).respond(a_request()).body is body
