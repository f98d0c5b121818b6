"""What a caller may not know looks like what is not there: page tokens, grants, configuration, and the steps taken."""

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

import pytest

from nunatak.api.transport.fast_path import FastPath
from nunatak.database.sqlite import SqliteStore
from tests.api.wire import ok, path_of
from tests.support.catalogs.local import LocalCatalog

M = "/management/v1"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    secured = LocalCatalog(tmp_path / "data", auth=True)
    secured.namespace("ns")
    for number in range(6):
        secured.table("ns", f"hidden{number}")
    yield secured
    secured.close()


# Page tokens


def raw(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def test_a_page_token_is_of_one_caller_one_list_and_one_question(catalog: LocalCatalog) -> None:
    for name in ("ann", "ben"):
        catalog.principal(name, default="READ")
    catalog.namespace("other")
    lists = {
        f"{path_of('ns', 'tables')}?pageSize=2": "&",
        f"{path_of('ns', 'views')}?pageSize=2": "&",
        f"{path_of('other', 'tables')}?pageSize=2": "&",
        "/v1/namespaces?pageSize=1": "&",
        f"{M}/health?securable=namespace:default/ns&pageSize=2": "&",
        f"{M}/health?securable=namespace:default/ns&deep=true&pageSize=2": "&",
        f"{M}/maintenance/plan?securable=namespace:default/ns&pageSize=2": "&",
    }
    tokens = {}
    for path in lists:
        token = ok(catalog.call_as("ann", "GET", path)).get("next-page-token")
        if token is not None:
            tokens[path] = token
            assert b"hidden" not in raw(token)
            assert b"ns" not in raw(token)[:12]
    assert len(tokens) >= 5

    for path in lists:
        for other, token in tokens.items():
            wanted = 200 if path == other else 400
            assert catalog.call_as("ann", "GET", f"{path}&pageToken={token}").status == wanted, (path, other)
            assert catalog.call_as("ben", "GET", f"{path}&pageToken={token}").status == 400


def test_a_page_token_is_good_after_a_restart_and_names_nothing_hidden(catalog: LocalCatalog) -> None:
    catalog.principal(
        "ann", default__ns____hidden0="READ", default__ns____hidden1="READ", default__ns____hidden5="READ"
    )
    path = f"{path_of('ns', 'tables')}?pageSize=2"
    token = ok(catalog.call_as("ann", "GET", path))["next-page-token"]

    catalog.restart()

    page = ok(catalog.call_as("ann", "GET", f"{path}&pageToken={token}"))
    assert [each["name"] for each in page["identifiers"]] == ["hidden5"]


# Grants


@pytest.mark.parametrize("held", ["NS_LIST", "TABLE_CREATE", "NS_CREATE,NS_UPDATE", "GRANT", "LOCATION_CHOOSE"])
def test_grants_tell_a_hidden_table_from_an_absent_one_in_no_way(catalog: LocalCatalog, held: str) -> None:
    """Rights on the namespace do not show the tables in it."""
    catalog.principal("ann", default__ns=held)
    for method, path, body in (
        ("POST", f"{M}/grants", {"grantee": "principal:ann", "securable": "WHERE", "privileges": ["TABLE_LIST"]}),
        ("POST", f"{M}/grants", {"grantee": "principal:ann", "securable": "WHERE", "privileges": ["GRANT"]}),
        ("POST", f"{M}/grants", {"grantee": "principal:nobody", "securable": "WHERE", "privileges": ["GRANT"]}),
        ("DELETE", f"{M}/grants?grantee=principal:root&privileges=GRANT&securable=WHERE", None),
        ("GET", f"{M}/grants?securable=WHERE", None),
        ("GET", f"{M}/access/matrix?securable=WHERE", None),
        ("GET", f"{M}/access/explain?securable=WHERE&privilege=TABLE_LIST&principal=root", None),
        ("GET", f"{M}/access/explain?securable=WHERE&privilege=TABLE_LIST", None),
        ("GET", f"{M}/policies?securable=WHERE", None),
        ("GET", f"{M}/policies/effective?securable=WHERE", None),
        ("POST", f"{M}/policies", {"securable": "WHERE", "policy": {"type": "snapshot-expiry"}}),
        ("DELETE", f"{M}/policies?securable=WHERE&type=snapshot-expiry", None),
        ("GET", f"{M}/health?securable=WHERE", None),
        ("GET", f"{M}/maintenance/plan?securable=WHERE", None),
        ("GET", f"{M}/maintenance/neighbours?securable=WHERE", None),
        ("GET", f"{M}/maintenance/jobs?securable=WHERE", None),
        ("POST", f"{M}/maintenance/jobs", {"securable": "WHERE", "type": "statistics"}),
        ("POST", f"{M}/maintenance/lease", {"securable": "WHERE", "worker": "w"}),
        ("GET", f"{M}/audit?securable=WHERE", None),
    ):
        told = []
        for name in ("hidden3", "absent3"):
            where = f"table:default/ns/{name}"
            content = None if body is None else {**body, "securable": where}
            before = catalog.state()
            answer = catalog.call_as("ann", method, path.replace("WHERE", where), content)
            assert answer.status in (200, 403, 404), answer.body
            assert catalog.state() == before
            told.append((answer.status, answer.body.replace(name.encode(), b"N")))
        assert told[0] == told[1], path


def test_a_warehouse_that_may_not_be_seen_is_not_there(tmp_path: Path) -> None:
    elsewhere = {"NUNATAK_WAREHOUSES": f"elsewhere=file://{tmp_path}/elsewhere"}
    catalog = LocalCatalog(tmp_path / "data", elsewhere, auth=True)
    catalog.principal("ann", default="READ")
    try:
        for path in (
            f"{M}/warehouses/WH",
            f"{M}/grants?securable=warehouse:WH",
            f"{M}/health?securable=namespace:WH/x",
            f"{M}/policies?securable=warehouse:WH",
            "/v1/config?warehouse=WH",
            "/v1/WH/namespaces",
            "/v1/WH/namespaces/x/tables/t",
            "/v1/WH/search?query=x",
        ):
            told = [
                (answer.status, answer.body.replace(name.encode(), b"N"))
                for name in ("elsewhere", "nowhere--")
                for answer in [catalog.call_as("ann", "GET", path.replace("WH", name))]
            ]
            assert told[0] == told[1], path
            assert told[0][0] == 404, path
        # Clients may send the place of a warehouse instead of its name, or nothing for the default.
        catalog.principal("nobody")
        for name in ("elsewhere", "nowhere--"):
            place = f"file://{tmp_path}/{name}"
            answer = catalog.call_as("ann", "GET", f"/v1/{quote(place, safe='')}/namespaces")
            assert answer.error == (404, "NoSuchWarehouseException", f"Warehouse does not exist: {place}")
            assert catalog.call_as("ann", "GET", f"/v1/config?warehouse={quote(place)}").error == answer.error
        assert b'default"' not in catalog.call_as("nobody", "GET", "/v1/namespaces").body
    finally:
        catalog.close()


# Configuration


def test_the_configuration_tells_no_place_to_somebody_without_rights(tmp_path: Path) -> None:
    elsewhere = {"NUNATAK_WAREHOUSES": f"elsewhere=file://{tmp_path}/elsewhere"}
    catalog = LocalCatalog(tmp_path / "data", elsewhere, auth=True)
    catalog.namespace("ns")
    catalog.table("ns", "t")
    catalog.principal("nobody")
    catalog.principal("guest", elsewhere="READ")
    catalog.principal("reader", default__ns____t="TABLE_READ_META")
    try:
        for caller in ("nobody", "guest"):
            answer = catalog.call_as(caller, "GET", "/v1/config")
            told = ok(answer)
            assert told["defaults"] == {}
            assert "prefix" not in told["overrides"]
            assert told["endpoints"]
            assert str(tmp_path).encode() not in answer.body
            assert catalog.call_as(caller, "GET", "/v1/config?warehouse=default").status == 404
        assert ok(catalog.call_as("reader", "GET", "/v1/config"))["defaults"]["warehouse"].endswith("/warehouse")
        assert (
            ok(catalog.call_as("guest", "GET", "/v1/config?warehouse=elsewhere"))["overrides"]["prefix"] == "elsewhere"
        )
    finally:
        catalog.close()


# The steps taken


def steps(catalog: LocalCatalog, lane: FastPath, caller: str, name: str) -> tuple[list[str], bytes]:
    """Every function of ours, and of C called by ours, that answers a load by this caller, in order; and the answer."""
    taken: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        # A write of before, such as the last use of a key, may be settled meanwhile.
        if "/nunatak/" not in frame.f_code.co_filename or frame.f_code.co_name == "_settle":
            return
        if event == "call":
            taken.append(frame.f_code.co_qualname)
        elif event == "c_call":
            taken.append(argument.__qualname__)

    path = path_of("ns", "tables", name)
    headers = [(b"host", b"x"), (b"authorization", catalog.headers(caller)["Authorization"].encode())]
    sys.setprofile(note)
    try:
        fast = lane.answer(path.encode(), headers, ("127.0.0.1", 1))
        answer = catalog.call_as(caller, "GET", path) if fast is None else None
    finally:
        sys.setprofile(None)
    return taken, b"" if answer is None else answer.body.replace(name.encode(), b"N")


@pytest.mark.parametrize("held", ["", "NS_LIST", "TABLE_CREATE"])
def test_a_hidden_table_takes_the_same_steps_as_one_that_is_not_there(catalog: LocalCatalog, held: str) -> None:
    """Others load it all the time: it lies in the cache, and its URL is known to the fast path."""
    catalog.namespace("mine")
    catalog.principal("ann", default__mine="READ")
    if held:
        catalog.grant("ann", "default__ns", held)
    store = catalog.app.catalog.store
    assert isinstance(store, SqliteStore)
    lane = FastPath(catalog.app, store)
    for name in ("hidden3", "absent3") * 2:  # whatever is learnt once is learnt
        for caller in ("root", "ann"):
            steps(catalog, lane, caller, name)
    assert steps(catalog, lane, "root", "hidden3")[0][-1] != steps(catalog, lane, "ann", "hidden3")[0][-1]

    assert catalog.app.identity is not None
    catalog.run(catalog.app.identity.close())  # the last use of the keys is written down
    reads = store.counts["read"]
    hidden = steps(catalog, lane, "ann", "hidden3")
    between = store.counts["read"]
    absent = steps(catalog, lane, "ann", "absent3")

    assert hidden == absent
    assert store.counts["read"] - between == between - reads
    assert "MetadataCache.find" not in hidden[0]
    assert "MetadataCache.find" in steps(catalog, lane, "root", "hidden3")[0]


def test_how_much_is_hidden_in_a_namespace_is_not_told_when_it_is_dropped(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="NS_DROP")
    catalog.principal("ben", default__ns="NS_DROP,NS_LIST,TABLE_LIST")

    hidden = catalog.call_as("ann", "DELETE", path_of("ns"))
    seen = catalog.call_as("ben", "DELETE", path_of("ns"))

    assert hidden.error == (409, "NamespaceNotEmptyException", "Namespace ns is not empty.")
    assert seen.error == (409, "NamespaceNotEmptyException", "Namespace ns is not empty. Contains 6 table(s).")
