"""S9: what is taken away is gone with the next request, on the server that was told and on every other one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.wire import a_commit, a_table, path_of, set_properties
from tests.support.catalogs.cluster import Cluster, running_cluster
from tests.support.catalogs.principals import MANAGEMENT
from tests.support.catalogs.process import RunningServer
from tests.support.postgres import PostgresServer

T = path_of("ns", "tables", "t")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Cluster]:
    """Two servers on one PostgreSQL; the administrator talks to the first."""
    data: Path = tmp_path_factory.mktemp("revocation")
    with running_cluster(data, postgres.new_database(), auth=True) as found:
        admin = found.servers[0]
        admin.expect(200, "POST", "/v1/namespaces", {"namespace": ["ns"]})
        admin.expect(200, "POST", path_of("ns", "tables"), a_table("t"))
        yield found


def status(server: RunningServer, method: str, token: str, body: Any = None) -> int:
    """Of a request for the table."""
    return server.call(method, T, body, authorization=f"Bearer {token}").status


def test_a_grant_that_was_revoked_at_one_server_counts_nowhere_with_the_next_request(pair: Cluster) -> None:
    admin, other = pair.servers
    token = admin.principal("ann", ns="WRITE").api_key
    for number, server in enumerate((admin, other)):
        assert status(server, "GET", token) == 200
        assert status(server, "POST", token, a_commit(set_properties(a=str(number)))) == 200

    admin.revoke("ann", "ns", "WRITE")

    for server in (other, admin):
        assert status(server, "GET", token) == 404
        assert status(server, "POST", token, a_commit(set_properties(a="late"))) == 404
    admin.grant("ann", "ns", "READ")
    for server in (other, admin):
        assert status(server, "GET", token) == 200
        assert status(server, "POST", token, a_commit(set_properties(a="late"))) == 403


def test_a_key_that_was_dropped_and_a_principal_that_was_disabled_open_no_door(pair: Cluster) -> None:
    admin, other = pair.servers
    for name in ("ben", "cleo"):
        token = admin.principal(name, ns="READ").api_key
        assert [status(server, "GET", token) for server in (admin, other)] == [200, 200]
        if name == "ben":
            admin.expect(204, "DELETE", f"{MANAGEMENT}/principals/ben/credentials/{token.split('_')[1]}")
        else:
            admin.expect(204, "PATCH", f"{MANAGEMENT}/principals/cleo", {"disabled": True})
        assert [status(server, "GET", token) for server in (other, admin)] == [401, 401]


def test_an_issued_token_ends_with_its_client_and_with_its_role(pair: Cluster) -> None:
    admin, other = pair.servers
    dora = admin.principal("dora")
    admin.expect(200, "POST", f"{MANAGEMENT}/roles", {"name": "readers"})
    admin.expect(204, "POST", f"{MANAGEMENT}/roles/readers/members", {"principal": "dora"})
    readers = {"grantee": "role:readers", "securable": "namespace:default/ns", "privileges": ["READ"]}
    admin.expect(204, "POST", f"{MANAGEMENT}/grants", readers)
    token = admin.token(dora)
    assert [status(server, "GET", token) for server in (admin, other)] == [200, 200]

    admin.expect(204, "DELETE", f"{MANAGEMENT}/roles/readers/members/dora")
    assert [status(server, "GET", token) for server in (other, admin)] == [404, 404]
    admin.expect(204, "DELETE", f"{MANAGEMENT}/principals/dora/credentials/{dora.client[0]}")
    assert [status(server, "GET", token) for server in (other, admin)] == [401, 401]
