"""S9: what is taken away is gone with the next request, on the server that was told and on every other one."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.access.two_servers import Pair, running_pair
from tests.api.wire import a_commit, a_table, path_of, set_properties
from tests.support.postgres import PostgresServer

T = path_of("ns", "tables", "t")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Pair]:
    data: Path = tmp_path_factory.mktemp("revocation")
    with running_pair(data, postgres.new_database()) as found:
        found.admin("POST", "/v1/namespaces", {"namespace": ["ns"]})
        found.admin("POST", path_of("ns", "tables"), a_table("t"))
        yield found


def grants(principal: str, privileges: str) -> dict[str, object]:
    return {"grantee": f"principal:{principal}", "securable": "namespace:default/ns", "privileges": [privileges]}


def test_a_grant_that_was_revoked_at_one_server_counts_nowhere_with_the_next_request(pair: Pair) -> None:
    token = pair.principal("ann")
    pair.admin("POST", "/management/v1/grants", grants("ann", "WRITE"))
    for number in (0, 1):
        assert pair.status(number, "GET", T, token) == 200
        assert pair.status(number, "POST", T, token, a_commit(set_properties(a=str(number)))) == 200

    pair.admin("DELETE", f"/management/v1/grants?{urlencode(grants('ann', 'WRITE'), doseq=True)}")

    for number in (1, 0):
        assert pair.status(number, "GET", T, token) == 404
        assert pair.status(number, "POST", T, token, a_commit(set_properties(a="late"))) == 404
    pair.admin("POST", "/management/v1/grants", grants("ann", "READ"))
    for number in (1, 0):
        assert pair.status(number, "GET", T, token) == 200
        assert pair.status(number, "POST", T, token, a_commit(set_properties(a="late"))) == 403


def test_a_key_that_was_dropped_and_a_principal_that_was_disabled_open_no_door(pair: Pair) -> None:
    for name in ("ben", "cleo"):
        token = pair.principal(name)
        pair.admin("POST", "/management/v1/grants", grants(name, "READ"))
        assert [pair.status(number, "GET", T, token) for number in (0, 1)] == [200, 200]
        if name == "ben":
            pair.admin("DELETE", f"/management/v1/principals/ben/credentials/{token.split('_')[1]}")
        else:
            pair.admin("PATCH", "/management/v1/principals/cleo", {"disabled": True})
        assert [pair.status(number, "GET", T, token) for number in (1, 0)] == [401, 401]


def test_an_issued_token_ends_with_its_client_and_with_its_role(pair: Pair) -> None:
    pair.principal("dora")
    client = pair.credential("dora", "client")
    pair.admin("POST", "/management/v1/roles", {"name": "readers"})
    pair.admin("POST", "/management/v1/roles/readers/members", {"principal": "dora"})
    pair.admin("POST", "/management/v1/grants", {**grants("dora", "READ"), "grantee": "role:readers"})
    token = pair.log_in(0, client)
    assert [pair.status(number, "GET", T, token) for number in (0, 1)] == [200, 200]

    pair.admin("DELETE", "/management/v1/roles/readers/members/dora")
    assert [pair.status(number, "GET", T, token) for number in (1, 0)] == [404, 404]
    pair.admin("DELETE", f"/management/v1/principals/dora/credentials/{client[0]}")
    assert [pair.status(number, "GET", T, token) for number in (1, 0)] == [401, 401]
