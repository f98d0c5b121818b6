"""The management API as administrators, others and strangers meet it."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.openapi_management import management_document
from tests.api.wire import Answer, a_table, ok
from tests.support.catalogs.local import LocalCatalog

M = "/management/v1"
KEY = "0192d5a0-0000-7000-8000-000000000001"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    """root administers the server; alice may read `sales`, carol may do and grant everything there."""
    made = LocalCatalog(tmp_path, auth=True)
    made.namespace("sales")
    ok(made.call("POST", "/v1/namespaces/sales/tables", a_table("orders")))
    made.principal("alice", default__sales="READ")
    made.principal("carol", default__sales="ADMIN")
    yield made
    made.close()


def refused(answer: Answer, status: int, kind: str | None = None) -> str:
    assert answer.status == status, answer.body
    error = json.loads(answer.body)["error"]
    assert error["code"] == status
    if kind is not None:
        assert error["type"] == kind
    return str(error["message"])


def shown(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def done(answer: Answer) -> None:
    assert answer.status == 204, answer.body


def a_grant(grantee: str, securable: str, *privileges: str) -> dict[str, Any]:
    return {"grantee": grantee, "securable": securable, "privileges": list(privileges)}


# Principals, roles and members


def test_principals_and_roles_are_made_listed_and_dropped(catalog: LocalCatalog) -> None:
    made = shown(catalog.call("POST", f"{M}/principals", {"name": "bob@example.org", "note": "night shift"}))
    shown(catalog.call("POST", f"{M}/roles", {"name": "analyst"}))
    done(catalog.call("POST", f"{M}/roles/analyst/members", {"principal": "bob@example.org"}))

    loaded = shown(catalog.call("GET", f"{M}/principals/{quote('bob@example.org', safe='')}"))
    members = shown(catalog.call("GET", f"{M}/roles/analyst/members"))["members"]
    names = [each["name"] for each in shown(catalog.call("GET", f"{M}/principals"))["principals"]]

    assert (made["name"], made["disabled"], made["note"]) == ("bob@example.org", False, "night shift")
    assert loaded == {**made, "roles": ["analyst"]}
    assert members == ["bob@example.org"]
    assert names == ["alice", "bob@example.org", "carol", "root"]
    refused(catalog.call("POST", f"{M}/principals", {"name": "alice"}), 409, "AlreadyExistsException")
    refused(catalog.call("POST", f"{M}/roles/analyst/members", {"principal": "nobody"}), 404, "NotFoundException")

    done(catalog.call("DELETE", f"{M}/roles/analyst/members/bob@example.org"))
    done(catalog.call("DELETE", f"{M}/principals/bob@example.org"))
    done(catalog.call("DELETE", f"{M}/roles/analyst"))

    refused(catalog.call("GET", f"{M}/principals/bob@example.org"), 404)
    refused(catalog.call("GET", f"{M}/roles/analyst"), 404)


def test_a_name_with_a_slash_is_addressed_by_its_encoding(catalog: LocalCatalog) -> None:
    shown(catalog.call("POST", f"{M}/principals", {"name": "spiffe://lake/etl+1"}))

    loaded = shown(catalog.call("GET", f"{M}/principals/spiffe%3A%2F%2Flake%2Fetl%2B1"))

    assert loaded["name"] == "spiffe://lake/etl+1"


def test_lists_come_in_pages(catalog: LocalCatalog) -> None:
    for name in ("a", "b", "c"):
        shown(catalog.call("POST", f"{M}/roles", {"name": name}))

    first = shown(catalog.call("GET", f"{M}/roles?pageSize=2"))
    second = shown(catalog.call("GET", f"{M}/roles?pageSize=2&pageToken={first['next-page-token']}"))

    assert [each["name"] for each in first["roles"]] == ["a", "b"]
    assert [each["name"] for each in second["roles"]] == ["c"]
    assert "next-page-token" not in second
    refused(catalog.call("GET", f"{M}/principals?pageToken={first['next-page-token']}"), 400)


def test_a_disabled_principal_is_out_at_once_and_back_when_enabled(catalog: LocalCatalog) -> None:
    shown(catalog.call_as("alice", "GET", "/v1/config"))

    done(catalog.call("PATCH", f"{M}/principals/alice", {"disabled": True}))
    out = catalog.call_as("alice", "GET", "/v1/config")
    done(catalog.call("PATCH", f"{M}/principals/alice", {"disabled": False}))

    refused(out, 401)
    shown(catalog.call_as("alice", "GET", "/v1/config"))


def test_the_last_administrator_cannot_lock_everybody_out(catalog: LocalCatalog) -> None:
    refused(catalog.call("DELETE", f"{M}/principals/root"), 409, "ConflictException")
    refused(catalog.call("PATCH", f"{M}/principals/root", {"disabled": True}), 409)
    query = "grantee=principal:root&securable=server&privileges=SERVER_ADMIN"
    refused(catalog.call("DELETE", f"{M}/grants?{query}"), 409)


def test_a_change_that_is_sent_again_gets_its_first_answer(catalog: LocalCatalog) -> None:
    key = {"Idempotency-Key": KEY}

    first = catalog.call("POST", f"{M}/roles", {"name": "analyst"}, key)
    again = catalog.call("POST", f"{M}/roles", {"name": "analyst"}, key)

    assert shown(first) == shown(again)
    refused(catalog.call("POST", f"{M}/roles", {"name": "other"}, key), 422)


# Who may


@pytest.mark.parametrize("route", [each for each in MANAGEMENT_ROUTES if each.privilege.name == "SERVER_ADMIN"])
def test_only_an_administrator_changes_what_is_everybodys(catalog: LocalCatalog, route: Any) -> None:
    path = route.template.replace("{principal}", "alice").replace("{role}", "analyst").replace("{warehouse}", "default")
    body: dict[str, Any] | None = {} if route.mutates else None

    for caller in ("alice", "carol"):
        refused(catalog.call_as(caller, route.method, path, body), 403, "ForbiddenException")


def test_everybody_sees_themselves_and_nobody_else(catalog: LocalCatalog) -> None:
    me = shown(catalog.call_as("alice", "GET", f"{M}/me"))
    mine = shown(catalog.call_as("alice", "GET", f"{M}/grants?grantee=principal:alice"))["grants"]

    assert (me["principal"], me["roles"]) == ("alice", [])
    assert shown(catalog.call_as("alice", "GET", f"{M}/principals/alice"))["name"] == "alice"
    assert [each["securable"] for each in mine] == ["namespace:default/sales"]
    for path in ("principals/carol", "principals/nobody", "principals/carol/credentials", "roles/any", "grants",
                 "grants?grantee=principal:carol", "grants?securable=namespace:default/sales"):  # fmt: skip
        refused(catalog.call_as("alice", "GET", f"{M}/{path}"), 403)
    granted = shown(catalog.call_as("carol", "GET", f"{M}/grants?securable=namespace:default/sales"))["grants"]
    assert {each["grantee"] for each in granted} == {"principal:alice", "principal:carol", "principal:root"}


def test_who_is_not_known_gets_nothing_but_the_document(catalog: LocalCatalog) -> None:
    for route in MANAGEMENT_ROUTES:
        answer = catalog.call_anonymously(route.method, route.template.replace("{", "").replace("}", ""))
        assert answer.status == (200 if route.operation == "managementDocument" else 401), route


# Grants


def test_a_grant_counts_at_once_and_a_revoked_one_no_longer(catalog: LocalCatalog) -> None:
    table = "/v1/namespaces/sales/tables/orders"
    drop = a_grant("principal:alice", "table:default/sales/orders", "TABLE_DROP")
    refused(catalog.call_as("alice", "DELETE", table), 403)

    done(catalog.call_as("carol", "POST", f"{M}/grants", drop))
    query = "grantee=principal:alice&securable=table:default/sales/orders&privileges=TABLE_DROP"
    done(catalog.call_as("carol", "DELETE", f"{M}/grants?{query}"))
    refused(catalog.call_as("alice", "DELETE", table), 403)
    done(catalog.call_as("carol", "POST", f"{M}/grants", drop))

    assert catalog.call_as("alice", "DELETE", table).status == 204


def test_nobody_grants_beyond_their_own_rights_not_even_to_themselves(catalog: LocalCatalog) -> None:
    sales, home = "namespace:default/sales", "warehouse:default"
    for caller, grant, status in (
        ("alice", a_grant("principal:alice", sales, "TABLE_WRITE"), 403),
        ("alice", a_grant("principal:alice", sales, "TABLE_LIST"), 403),
        ("carol", a_grant("principal:carol", sales, "LOCATION_CHOOSE"), 403),
        ("carol", a_grant("principal:carol", "server", "SERVER_ADMIN"), 403),
        ("carol", a_grant("principal:carol", home, "READ"), 404),
        ("carol", a_grant("principal:alice", sales, "WRITE"), 204),
        ("root", a_grant("principal:carol", home, "WAREHOUSE_ADMIN"), 204),
        ("root", a_grant("principal:carol", sales, "WAREHOUSE_ADMIN"), 400),
    ):
        answer = catalog.call_as(caller, "POST", f"{M}/grants", grant)
        assert answer.status == status, (caller, grant, answer.body)


def test_what_one_may_not_see_is_said_to_be_absent_in_the_same_words(catalog: LocalCatalog) -> None:
    catalog.namespace("secret")

    hidden = catalog.call_as(
        "carol", "POST", f"{M}/grants", a_grant("principal:alice", "namespace:default/secret", "READ")
    )
    absent = catalog.call_as(
        "carol", "POST", f"{M}/grants", a_grant("principal:alice", "namespace:default/absent", "READ")
    )

    assert refused(hidden, 404).replace("secret", "absent") == refused(absent, 404)


def test_nothing_is_granted_on_what_does_not_exist(catalog: LocalCatalog) -> None:
    for place in ("warehouse:none", "namespace:default/none", "table:default/sales/none"):
        refused(catalog.call("POST", f"{M}/grants", a_grant("principal:alice", place, "READ")), 404)
    for wrong in (
        a_grant("alice", "server", "READ"),
        a_grant("principal:alice", "somewhere", "READ"),
        a_grant("principal:alice", "server", "EVERYTHING"),
        a_grant("principal:alice", "server"),
    ):
        refused(catalog.call("POST", f"{M}/grants", wrong), 400)


# Credentials


def test_a_secret_is_shown_once_and_works(catalog: LocalCatalog) -> None:
    made = shown(catalog.call("POST", f"{M}/principals/alice/credentials", {"kind": "client", "note": "etl"}))
    listed = catalog.call("GET", f"{M}/principals/alice/credentials")
    form = f"grant_type=client_credentials&client_id={made['credential-id']}&client_secret={quote(made['secret'])}"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    token = shown(catalog.call_anonymously("POST", "/v1/oauth/tokens", form.encode(), headers))["access_token"]

    me = shown(catalog.call_anonymously("GET", f"{M}/me", None, {"Authorization": f"Bearer {token}"}))

    assert me["principal"] == "alice"
    assert made["secret"].encode() not in listed.body
    assert {each["kind"] for each in shown(listed)["credentials"]} == {"client", "api-key"}


def test_a_secret_is_not_kept_for_a_request_that_is_sent_again(catalog: LocalCatalog) -> None:
    path = f"{M}/principals/alice/credentials"

    first = catalog.call("POST", path, {}, {"Idempotency-Key": KEY})
    again = catalog.call("POST", path, {}, {"Idempotency-Key": KEY})

    assert shown(first)["secret"] != shown(again)["secret"]
    assert first.headers["cache-control"] == "no-store"


def test_everybody_manages_their_own_keys_but_not_those_of_others(catalog: LocalCatalog) -> None:
    own, other = f"{M}/principals/alice/credentials", f"{M}/principals/carol/credentials"
    made = shown(catalog.call_as("alice", "POST", own, {"kind": "api-key", "expires-in-seconds": 60}))

    assert made["expires-ms"] == made["created-ms"] + 60_000
    refused(catalog.call_as("alice", "POST", own, {"kind": "client"}), 403)
    refused(catalog.call_as("alice", "POST", other, {}), 403)
    refused(catalog.call_as("alice", "DELETE", f"{other}/{made['credential-id']}"), 403)
    refused(catalog.call("DELETE", f"{other}/{made['credential-id']}"), 404)
    done(catalog.call_as("alice", "DELETE", f"{own}/{made['credential-id']}"))
    refused(catalog.call("POST", own, {"expires-in-seconds": 0}), 400)
    refused(catalog.call_anonymously("GET", f"{M}/me", None, {"Authorization": f"Bearer {made['secret']}"}), 401)


def test_a_key_for_one_role_makes_no_key_for_more(catalog: LocalCatalog) -> None:
    for role in ("reader", "owner"):
        shown(catalog.call("POST", f"{M}/roles", {"name": role}))
        done(catalog.call("POST", f"{M}/roles/{role}/members", {"principal": "alice"}))
    path = f"{M}/principals/alice/credentials"
    limited = shown(catalog.call_as("alice", "POST", path, {"roles": ["reader"]}))
    catalog.keys["alice as reader"] = limited["secret"]

    for roles in (None, ["owner"], ["reader", "owner"]):
        refused(catalog.call_as("alice as reader", "POST", path, {"roles": roles}), 403)

    shown(catalog.call_as("alice as reader", "POST", path, {"roles": ["reader"]}))


def with_roles(catalog: LocalCatalog, principal: str, *roles: str) -> str:
    """Returns the path of the principal's credentials."""
    for role in roles:
        shown(catalog.call("POST", f"{M}/roles", {"name": role}))
        done(catalog.call("POST", f"{M}/roles/{role}/members", {"principal": principal}))
    return f"{M}/principals/{principal}/credentials"


def token_of(catalog: LocalCatalog, principal: str, scope: str = "catalog") -> str:
    """An access token of a new client of the principal."""
    made = shown(catalog.call("POST", f"{M}/principals/{principal}/credentials", {"kind": "client"}))
    form = urlencode(
        {
            "grant_type": "client_credentials",
            "client_id": made["credential-id"],
            "client_secret": made["secret"],
            "scope": scope,
        }
    )
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = shown(catalog.call_anonymously("POST", "/v1/oauth/tokens", form.encode(), headers))
    token: str = answer["access_token"]
    return token


@pytest.mark.parametrize("kind", ["api-key", "access-key"])
def test_a_key_makes_no_credential_that_outlives_itself(catalog: LocalCatalog, kind: str) -> None:
    path = f"{M}/principals/alice/credentials"
    short = shown(catalog.call_as("alice", "POST", path, {"expires-in-seconds": 3600}))
    catalog.keys["alice for an hour"] = short["secret"]

    refused(catalog.call_as("alice for an hour", "POST", path, {"kind": kind, "expires-in-seconds": 3700}), 403)
    child = shown(catalog.call_as("alice for an hour", "POST", path, {"kind": kind}))
    younger = shown(catalog.call_as("alice for an hour", "POST", path, {"kind": kind, "expires-in-seconds": 60}))

    assert child["expires-ms"] == short["expires-ms"]
    assert younger["expires-ms"] < short["expires-ms"]
    assert shown(catalog.call_as("alice", "POST", path, {"kind": kind}))["expires-ms"] is None
    # An administrator makes credentials for others, however short its own lives.
    root = shown(catalog.call("POST", f"{M}/principals/root/credentials", {"expires-in-seconds": 60}))
    catalog.keys["root for a minute"] = root["secret"]
    assert shown(catalog.call_as("root for a minute", "POST", path, {"kind": kind}))["expires-ms"] is None


def test_a_token_makes_no_credential_that_outlives_it(catalog: LocalCatalog) -> None:
    catalog.keys["alice by token"] = token_of(catalog, "alice")
    path = f"{M}/principals/alice/credentials"

    made = shown(catalog.call_as("alice by token", "POST", path, {}))

    assert made["expires-ms"] <= made["created-ms"] + 901_000  # tokens end with a whole second
    refused(catalog.call_as("alice by token", "POST", path, {"expires-in-seconds": 86_400}), 403)


def test_a_session_for_some_roles_lists_and_drops_only_credentials_for_these(catalog: LocalCatalog) -> None:
    path = with_roles(catalog, "alice", "reader", "owner")
    made = {
        name: shown(catalog.call_as("alice", "POST", path, {"roles": roles}))
        for name, roles in (("reader", ["reader"]), ("owner", ["owner"]), ("both", ["reader", "owner"]), ("all", None))
    }
    catalog.keys["by key"] = made["reader"]["secret"]
    catalog.keys["by token"] = token_of(catalog, "alice", "PRINCIPAL_ROLE:reader")

    for caller in ("by key", "by token"):
        listed = shown(catalog.call_as(caller, "GET", path))["credentials"]
        assert [each["credential-id"] for each in listed] == [made["reader"]["credential-id"]]
        for name in ("owner", "both", "all"):
            hidden = catalog.call_as(caller, "DELETE", f"{path}/{made[name]['credential-id']}")
            absent = catalog.call_as(caller, "DELETE", f"{path}/{'x' * 8}")
            assert hidden.body.replace(made[name]["credential-id"].encode(), b"x" * 8) == absent.body
            refused(hidden, 404)
    assert len(shown(catalog.call_as("alice", "GET", path))["credentials"]) == 6
    done(catalog.call_as("by token", "DELETE", f"{path}/{made['reader']['credential-id']}"))
    done(catalog.call_as("alice", "DELETE", f"{path}/{made['both']['credential-id']}"))


def test_the_last_credential_of_the_last_administrator_stays(catalog: LocalCatalog) -> None:
    path = f"{M}/principals/root/credentials"
    (first,) = shown(catalog.call("GET", path))["credentials"]
    refused(catalog.call("DELETE", f"{path}/{first['credential-id']}"), 409, "ConflictException")

    # Another administrator who could not log in does not count.
    shown(catalog.call("POST", f"{M}/principals", {"name": "second"}))
    done(catalog.call("POST", f"{M}/grants", a_grant("principal:second", "server", "SERVER_ADMIN")))
    refused(catalog.call("DELETE", f"{M}/principals/root"), 409, "ConflictException")
    refused(catalog.call("PATCH", f"{M}/principals/root", {"disabled": True}), 409)

    shown(catalog.call("POST", f"{M}/principals/second/credentials", {"kind": "client"}))
    done(catalog.call("DELETE", f"{path}/{first['credential-id']}"))


# Why and who


def test_explain_names_the_grant_that_decides(catalog: LocalCatalog) -> None:
    shown(catalog.call("POST", f"{M}/roles", {"name": "analyst"}))
    done(catalog.call("POST", f"{M}/roles/analyst/members", {"principal": "alice"}))
    done(catalog.call("POST", f"{M}/grants", a_grant("role:analyst", "warehouse:default", "TABLE_WRITE")))
    question = f"{M}/access/explain?principal=alice&securable=table:default/sales/orders&privilege="

    write = shown(catalog.call("GET", question + "TABLE_WRITE"))
    drop = shown(catalog.call("GET", question + "TABLE_DROP"))

    assert (write["allowed"], write["decided-by"]) == (True, "grants")
    assert write["deciding-grant"] == a_grant("role:analyst", "warehouse:default", "TABLE_WRITE")
    assert write["chain"] == ["server", "warehouse:default", "namespace:default/sales", "table:default/sales/orders"]
    assert (drop["allowed"], drop["deciding-grant"]) == (False, None)
    assert len(drop["grants"]) == 2
    refused(catalog.call("GET", question + "READ"), 400)
    refused(catalog.call("GET", f"{M}/access/explain?securable=server"), 400)


def test_everybody_may_ask_about_themselves_and_granters_about_others(catalog: LocalCatalog) -> None:
    question = f"{M}/access/explain?securable=namespace:default/sales&privilege=TABLE_LIST"

    assert shown(catalog.call_as("alice", "GET", question))["allowed"] is True
    assert shown(catalog.call_as("carol", "GET", f"{question}&principal=alice"))["allowed"] is True
    refused(catalog.call_as("alice", "GET", f"{question}&principal=carol"), 403)
    refused(catalog.call_as("alice", "GET", f"{M}/access/matrix"), 403)


def hinted_command(answer: Answer) -> list[str]:
    """The command that the hint of a 403 names, as a shell reads it."""
    found = re.search(r"`(nunatak [^`]+)`", json.loads(answer.body)["error"]["message"] + hint_of(answer))
    assert found is not None, answer.body
    return shlex.split(found.group(1))


def hint_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["error"].get("hint", ""))


@pytest.mark.parametrize(
    ("method", "path", "body", "missing"),
    [
        ("DELETE", "/v1/namespaces/sales/tables/orders", None, ("TABLE_DROP", "table:default/sales/orders")),
        ("POST", "/v1/namespaces/sales/tables", a_table("more"), ("TABLE_CREATE", "namespace:default/sales")),
        ("POST", f"{M}/roles", {"name": "analyst"}, ("SERVER_ADMIN", "server")),
        ("GET", f"{M}/principals/carol", None, ("SERVER_ADMIN", "server")),
        ("GET", f"{M}/access/matrix", None, ("GRANT", "server")),
        ("POST", f"{M}/grants", a_grant("principal:alice", "namespace:default/sales", "READ"),
         ("GRANT", "namespace:default/sales")),
    ],
)  # fmt: skip
def test_whoever_is_refused_may_run_the_command_of_the_hint_and_learns_who_can_grant_it(
    catalog: LocalCatalog, method: str, path: str, body: Any, missing: tuple[str, str]
) -> None:
    answer = catalog.call_as("alice", method, path, body)
    refused(answer, 403)
    command = hinted_command(answer)

    assert command == ["nunatak", "access", "explain", "alice", *missing]
    query = urlencode({"principal": "alice", "privilege": missing[0], "securable": missing[1]})
    told = shown(catalog.call_as("alice", "GET", f"{M}/access/explain?{query}"))
    assert told["allowed"] is False
    granters = {"principal:root"} if missing[1] == "server" else {"principal:root", "principal:carol"}
    assert set(told["granted-by"]) == granters


def test_a_hint_quotes_names_that_a_shell_would_carry_out(catalog: LocalCatalog) -> None:
    ok(catalog.call("POST", "/v1/namespaces/sales/tables", a_table("$(rm -rf x)`y`")))

    answer = catalog.call_as("alice", "DELETE", f"/v1/namespaces/sales/tables/{quote('$(rm -rf x)`y`')}")

    refused(answer, 403)
    assert "'table:default/sales/$(rm -rf x)`y`'" in hint_of(answer)


def test_who_can_grant_something_hidden_is_not_told(catalog: LocalCatalog) -> None:
    catalog.namespace("secret")
    catalog.principal("owner", default__secret="ADMIN")

    told = shown(
        catalog.call_as("alice", "GET", f"{M}/access/explain?securable=namespace:default/secret&privilege=NS_DROP")
    )

    assert told["granted-by"] == ["principal:root"]


def test_a_disabled_granter_is_not_named(catalog: LocalCatalog) -> None:
    done(catalog.call("PATCH", f"{M}/principals/carol", {"disabled": True}))

    told = shown(
        catalog.call_as("alice", "GET", f"{M}/access/explain?securable=namespace:default/sales&privilege=NS_DROP")
    )

    assert told["granted-by"] == ["principal:root"]


def test_a_caller_is_told_what_its_login_may_do_not_what_its_principal_may(catalog: LocalCatalog) -> None:
    shown(catalog.call("POST", f"{M}/roles", {"name": "analyst"}))
    done(catalog.call("POST", f"{M}/roles/analyst/members", {"principal": "carol"}))
    key = shown(catalog.call("POST", f"{M}/principals/carol/credentials", {"kind": "api-key", "roles": ["analyst"]}))
    question = f"{M}/access/explain?securable=namespace:default/sales&privilege=NS_DROP"

    limited = shown(catalog.call_anonymously("GET", question, None, {"Authorization": f"Bearer {key['secret']}"}))

    assert shown(catalog.call_as("carol", "GET", question))["allowed"] is True
    assert limited["allowed"] is False
    assert limited["reason"].startswith("this login is limited to role:analyst: no grant gives NS_DROP")


def test_the_matrix_tells_who_may_do_what(catalog: LocalCatalog) -> None:
    found = shown(catalog.call_as("carol", "GET", f"{M}/access/matrix?securable=namespace:default/sales"))["holdings"]

    first = {each["holder"]: each["privileges"] for each in found if each["securable"] == "namespace:default/sales"}
    assert set(first) == {"principal:alice", "principal:carol", "principal:root"}
    assert "TABLE_READ_DATA" in first["principal:alice"]
    assert "TABLE_DROP" not in first["principal:alice"]
    assert "SERVER_ADMIN" in first["principal:root"]


# Warehouses


def test_a_warehouse_is_made_used_and_dropped_while_the_server_runs(catalog: LocalCatalog) -> None:
    made = shown(catalog.call("POST", f"{M}/warehouses", {"name": "lab"}))
    ok(catalog.call("POST", "/v1/lab/namespaces", {"namespace": ["x"]}))
    table = shown(catalog.call("POST", "/v1/lab/namespaces/x/tables", a_table("t")))

    assert made["location"] == f"file://{catalog.data.resolve()}/warehouses/lab"
    assert table["metadata"]["location"].startswith(made["location"] + "/")
    assert shown(catalog.call("GET", "/v1/config?warehouse=lab"))["overrides"]["prefix"] == "lab"
    refused(catalog.call("DELETE", f"{M}/warehouses/lab"), 409)
    done(catalog.call("DELETE", "/v1/lab/namespaces/x/tables/t"))
    done(catalog.call("DELETE", "/v1/lab/namespaces/x"))
    done(catalog.call("DELETE", f"{M}/warehouses/lab"))
    refused(catalog.call("GET", "/v1/lab/namespaces"), 404, "NoSuchWarehouseException")
    refused(catalog.call("DELETE", f"{M}/warehouses/lab"), 404)
    refused(catalog.call("DELETE", f"{M}/warehouses/default"), 409)


def test_a_warehouse_survives_a_restart(catalog: LocalCatalog) -> None:
    shown(catalog.call("POST", f"{M}/warehouses", {"name": "lab"}))

    catalog.restart()

    assert shown(catalog.call("GET", f"{M}/warehouses/lab"))["configured"] is False
    ok(catalog.call("POST", "/v1/lab/namespaces", {"namespace": ["x"]}))


@pytest.mark.parametrize(
    ("name", "location", "status"),
    [
        ("a b", None, 400),
        ("config", None, 400),
        ("", None, 400),
        ("default", None, 409),
        ("x", "file:///etc/passwd", 400),
        ("x", "file:///{data}/warehouses", 400),
        ("x", "file:///{data}/warehouses/../x", 400),
        ("x", "file:///{data}/warehouses-of-others/x", 400),
        ("x", "file:///{data}/warehouse/inner", 400),
        ("x", "s3://bucket/x", 400),
        ("x", "http://169.254.169.254/x", 400),
        ("x", "file:///{data}/warehouses/taken", 409),
        ("x", "file:///{data}/warehouses/taken/inside", 409),
    ],
)
def test_a_warehouse_lies_where_the_operator_allows_and_apart_from_others(
    catalog: LocalCatalog, name: str, location: str | None, status: int
) -> None:
    shown(catalog.call("POST", f"{M}/warehouses", {"name": "taken"}))
    place = location and location.replace("/{data}", str(catalog.data.resolve()))

    refused(catalog.call("POST", f"{M}/warehouses", {"name": name, "location": place}), status)

    assert [each["name"] for each in shown(catalog.call("GET", f"{M}/warehouses"))["warehouses"]] == [
        "default",
        "taken",
    ]


def test_everybody_sees_the_warehouses_they_have_something_in(catalog: LocalCatalog) -> None:
    shown(catalog.call("POST", f"{M}/warehouses", {"name": "lab"}))
    catalog.principal("dave")

    assert [each["name"] for each in shown(catalog.call_as("alice", "GET", f"{M}/warehouses"))["warehouses"]] == [
        "default"
    ]
    assert shown(catalog.call_as("dave", "GET", f"{M}/warehouses"))["warehouses"] == []
    refused(catalog.call_as("alice", "GET", f"{M}/warehouses/lab"), 404)


# Keys and the document


def test_tokens_outlive_a_new_key_unless_older_keys_are_forgotten(catalog: LocalCatalog) -> None:
    made = shown(catalog.call("POST", f"{M}/principals/alice/credentials", {"kind": "client"}))
    form = f"grant_type=client_credentials&client_id={made['credential-id']}&client_secret={quote(made['secret'])}"
    token = shown(catalog.call_anonymously("POST", "/v1/oauth/tokens", form.encode()))["access_token"]
    headers = {"Authorization": f"Bearer {token}"}

    shown(catalog.call("POST", f"{M}/keys/rotate"))
    after_first = catalog.call_anonymously("GET", f"{M}/me", None, headers)
    shown(catalog.call("POST", f"{M}/keys/rotate", {"forget-older": True}))
    after_second = catalog.call_anonymously("GET", f"{M}/me", None, headers)

    assert after_first.status == 200
    refused(after_second, 401)


def test_the_server_serves_its_own_document(catalog: LocalCatalog) -> None:
    served = shown(catalog.call_anonymously("GET", f"{M}/openapi.json"))

    assert served == json.loads(json.dumps(management_document(MANAGEMENT_ROUTES)))


def test_where_nobody_logs_in_everybody_may_manage(tmp_path: Path) -> None:
    catalog = LocalCatalog(tmp_path)
    try:
        shown(catalog.call("POST", f"{M}/principals", {"name": "alice"}))
        made = shown(catalog.call("POST", f"{M}/principals/alice/credentials", {"kind": "client"}))
        done(catalog.call("POST", f"{M}/grants", a_grant("principal:alice", "server", "SERVER_ADMIN")))
        question = f"{M}/access/explain?principal=alice&privilege=NS_DROP&securable=server"

        assert made["secret"]
        assert shown(catalog.call("GET", question))["decided-by"] == "nobody"
    finally:
        catalog.close()
