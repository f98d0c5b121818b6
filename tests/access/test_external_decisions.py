"""A whole server for which OPA or Cedar decides: lists, what is hidden, what is forbidden, and no decision at all."""

import contextlib
import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.api.wire import Answer, a_commit, a_table, identifier, path_of, rename, set_properties
from tests.support.catalogs.principals import MANAGEMENT
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.opa import BUILD_SECONDS, NOT_INSTALLED, find_opa, replace_policy, running_opa
from tests.support.pages import blocks_with

pytestmark = pytest.mark.timeout(BUILD_SECONDS)

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
NAMESPACES = 30

# The policies of the docs, and root, who has to fill the catalog before there are roles.
ROOT_IN_REGO = '\t{"principal": "root", "privilege": "SERVER_ADMIN", "on": "server"},\n'
ROOT_IN_CEDAR = (
    'permit (principal == Nunatak::Principal::"root", action == Nunatak::Action::"SERVER_ADMIN", resource);\n'
)


def example(page: str, language: str) -> str:
    (found,) = blocks_with(PAGES / page, language)
    return str(found)


@dataclass(frozen=True)
class World:
    server: RunningServer
    ana: str
    take_everything_away: Callable[[], None]
    questions: Callable[[], int] | None

    def as_ana(self, method: str, path: str, body: Any = None) -> Answer:
        return self.server.call(method, path, body, authorization=f"Bearer {self.ana}")


@contextlib.contextmanager
def cedar_world(folder: Path) -> Iterator[World]:
    policies = folder / "policies.cedar"
    policies.write_text(ROOT_IN_CEDAR + example("decide-with-cedar.md", "cedar"))

    def take_everything_away() -> None:
        (folder / "new.cedar").write_text("")
        os.replace(folder / "new.cedar", policies)

    chosen = {"NUNATAK_AUTHORIZER": "cedar", "NUNATAK_CEDAR_POLICIES": str(policies)}
    with running_server(folder / "data", environment=chosen, auth=True) as server:
        yield World(server, filled(server), take_everything_away, None)


@contextlib.contextmanager
def opa_world(folder: Path) -> Iterator[World]:
    if find_opa() is None:
        pytest.skip(NOT_INSTALLED)
    policy = example("decide-with-opa.md", "rego").replace("grants := [\n", f"grants := [\n{ROOT_IN_REGO}")
    with running_opa([], folder / "opa.log") as address:
        replace_policy(address, "nunatak", policy)

        def questions() -> int:
            with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
                text = answer.read().decode()
            return sum(map(int, re.findall(r'^http_request_duration_seconds_count\{.*"v1/data".*\} (\d+)', text, re.M)))

        def take_everything_away() -> None:
            replace_policy(address, "nunatak", "package nunatak\nrights := [[] | some _ in input.securables]")

        chosen = {"NUNATAK_AUTHORIZER": "opa", "NUNATAK_OPA_URL": f"{address}/v1/data/nunatak/rights"}
        with running_server(folder / "data", environment=chosen, auth=True) as server:
            yield World(server, filled(server), take_everything_away, questions)


WORLDS = {"opa": opa_world, "cedar": cedar_world}


def filled(server: RunningServer) -> str:
    """With tables in and outside of sales; returns the key of ana, an analyst."""
    server.expect(200, "POST", f"{MANAGEMENT}/roles", {"name": "analysts"})
    server.expect(200, "POST", f"{MANAGEMENT}/principals", {"name": "ana"})
    server.call("POST", f"{MANAGEMENT}/roles/analysts/members", {"principal": "ana"})
    for name in ("sales", "hr", *(f"other{number}" for number in range(NAMESPACES))):
        server.expect(200, "POST", "/v1/namespaces", {"namespace": [name]})
    for namespace, name in (("sales", "orders"), ("sales", "_raw_orders"), ("hr", "salaries")):
        server.expect(200, "POST", path_of(namespace, "tables"), a_table(name))
    return server.new_credential("ana", "api-key")[1]


@pytest.fixture(params=WORLDS, scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with WORLDS[request.param](tmp_path_factory.mktemp(request.param)) as started:
        yield started


def error_of(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["error"]["type"]


def test_lists_hold_what_the_policy_lets_see(world: World) -> None:
    assert world.as_ana("GET", "/v1/namespaces").json["namespaces"] == [["sales"]]
    tables = world.as_ana("GET", path_of("sales", "tables")).json["identifiers"]
    assert tables == [{"namespace": ["sales"], "name": "orders"}]
    assert len(world.server.expect(200, "GET", "/v1/namespaces")["namespaces"]) == NAMESPACES + 2


def test_what_is_hidden_looks_absent_and_what_is_seen_is_forbidden(world: World) -> None:
    assert world.as_ana("GET", path_of("sales", "tables", "orders")).status == 200
    assert error_of(world.as_ana("DELETE", path_of("sales", "tables", "orders"))) == (403, "ForbiddenException")
    change = a_commit(set_properties(a="b"))
    assert world.as_ana("POST", path_of("sales", "tables", "orders"), change).status == 403

    hidden = world.as_ana("GET", path_of("hr", "tables", "salaries"))
    assert hidden.status == 404
    assert hidden.body.replace(b"salaries", b"nothing") == world.as_ana("GET", path_of("hr", "tables", "nothing")).body
    assert world.as_ana("GET", path_of("sales", "tables", "_raw_orders")).status == 404
    assert world.as_ana("DELETE", path_of("hr")).status == 404


def test_what_was_set_on_a_hidden_table_is_not_listed(world: World) -> None:
    """Whoever may look at a namespace does not see all that lies inside: the policy hides one table."""
    server, path = world.server, f"{MANAGEMENT}/policies?securable=namespace:default/sales"
    server.expect(200, "POST", path_of("sales", "tables"), a_table("shown"))
    wanted = {"securable": "table:default/sales/shown", "policy": {"type": "statistics"}}
    assert server.call("POST", f"{MANAGEMENT}/policies", wanted).status == 204
    assert [each["securable"] for each in world.as_ana("GET", path).json["policies"]] == ["table:default/sales/shown"]

    move = rename(identifier("sales", "shown"), identifier("sales", "_raw_hidden"))
    assert server.call("POST", "/v1/tables/rename", move).status == 204

    assert world.as_ana("GET", path).json["policies"] == []


def test_grants_in_the_database_change_nothing(world: World) -> None:
    """MISSION: 003-05"""
    grant = {"grantee": "principal:ana", "securable": "namespace:default/hr", "privileges": ["ADMIN"]}
    world.server.call("POST", f"{MANAGEMENT}/grants", grant)

    assert world.as_ana("GET", path_of("hr", "tables", "salaries")).status == 404


def test_a_list_is_decided_by_few_questions(world: World) -> None:
    if world.questions is None:
        return  # Cedar is asked in the process
    before = world.questions()
    world.as_ana("GET", "/v1/namespaces")

    assert 1 <= world.questions() - before <= 4


@pytest.mark.parametrize("kind", WORLDS)
def test_a_changed_policy_decides_the_next_request(kind: str, tmp_path: Path) -> None:
    """S9."""
    with WORLDS[kind](tmp_path) as world:
        orders = path_of("sales", "tables", "orders")
        assert [world.as_ana("GET", orders).status for _ in range(3)] == [200] * 3

        world.take_everything_away()

        assert world.as_ana("GET", orders).status == 404
        assert world.server.call("GET", orders).status == 404


def test_without_opa_nobody_gets_in_and_nothing_is_taken_for_absent(tmp_path: Path) -> None:
    if find_opa() is None:
        pytest.skip(NOT_INSTALLED)
    with opa_world(tmp_path) as world:
        pass
    with restarted(world.server) as server:
        orders = path_of("sales", "tables", "orders")
        for key in (world.ana, world.server.key):
            for method, path in (("GET", orders), ("DELETE", orders), ("GET", "/v1/namespaces"), ("HEAD", orders)):
                answer = server.call(method, path, authorization=f"Bearer {key}")
                assert answer.status == 503, (method, path)
                assert "retry-after" in answer.headers
        assert server.call("GET", "/health", authorization="").status == 200
        assert server.call("GET", orders, authorization="").status == 401


@contextlib.contextmanager
def restarted(server: RunningServer) -> Iterator[RunningServer]:
    """The same catalog with the same settings, which name an OPA that is no longer there."""
    with running_server(server.data, environment=server.environment, auth=True, key=server.key) as again:
        yield again
