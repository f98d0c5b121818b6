"""Strangers cost next to nothing: no body is read for them, nothing is kept of them, and nobody else is held up."""

import asyncio
import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from nunatak.access.privileges import Privilege
from nunatak.api.http import RequestHead, Response
from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.request_limits import InFlight
from nunatak.api.route import SMALL_BODY, Route
from nunatak.api.routes import ROUTES
from nunatak.api.transport.fast_path import FastPath
from tests.api.wire import Answer, path_of
from tests.support.catalogs.local import LocalCatalog, answer_of

TOKENS = "/v1/oauth/tokens"
T = path_of("ns", "tables", "t")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCatalog]:
    secured = LocalCatalog(tmp_path_factory.mktemp("strangers") / "data", auth=True)
    secured.namespace("ns")
    secured.table("ns", "t")
    yield secured
    secured.close()


class Exchange:
    """One request whose body comes as the test says; counts how often it was asked for."""

    def __init__(
        self,
        catalog: LocalCatalog,
        method: str,
        path: str,
        headers: dict[str, str],
        pieces: list[bytes] | None = None,
    ) -> None:
        self._catalog = catalog
        self._pieces = pieces  # None: nothing ever comes
        self.asked = 0
        self.response: Response | None = None
        self.address = ("10.0.0.1", 5000)
        named = {name.lower().encode(): value.encode() for name, value in headers.items()}
        self._head = RequestHead(method, path.encode(), b"", named)

    async def _receive(self) -> dict[str, Any]:
        self.asked += 1
        if self._pieces is None:
            await asyncio.Event().wait()
            raise AssertionError
        body = self._pieces.pop(0) if self._pieces else b""
        return {"type": "http.request", "body": body, "more_body": bool(self._pieces)}

    async def run(self) -> None:
        self.response = await self._catalog.app.respond(self._head, self._receive, self.address)

    @property
    def answer(self) -> Answer:
        assert self.response is not None
        return answer_of(self._head.method, self.response)


# Bodies

WITH_BODY = [route for route in (*ROUTES, *MANAGEMENT_ROUTES) if route.mutates and route.privilege != Privilege.PUBLIC]


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.operation)
def test_no_body_is_received_before_its_sender_is_known(catalog: LocalCatalog, route: Route) -> None:
    path = route.template.replace("{prefix}/", "").replace("{", "").replace("}", "")
    exchange = Exchange(catalog, route.method, path, {"Content-Length": "1000"}, [b"x" * 1000])

    catalog.run(exchange.run())

    assert exchange.answer.status == 401
    assert exchange.asked == 0


def test_every_public_route_that_takes_a_body_takes_a_small_one() -> None:
    public = [route for route in (*ROUTES, *MANAGEMENT_ROUTES) if route.mutates and route.privilege is Privilege.PUBLIC]

    assert {route.operation: route.body_bytes for route in public} == {"getToken": SMALL_BODY}


def test_a_token_request_of_more_than_64_kib_is_refused_unread(catalog: LocalCatalog) -> None:
    exchange = Exchange(catalog, "POST", TOKENS, {"Content-Length": str(SMALL_BODY + 1)}, [b"x" * (SMALL_BODY + 1)])

    catalog.run(exchange.run())

    assert exchange.answer.status == 413
    assert exchange.asked == 0


def test_without_a_length_it_is_refused_where_it_grows_too_large(catalog: LocalCatalog) -> None:
    exchange = Exchange(catalog, "POST", TOKENS, {}, [b"x" * 10_000] * 1000)

    catalog.run(exchange.run())

    assert exchange.answer.status == 413
    assert exchange.asked == 7


def test_a_token_request_that_unfolds_to_more_is_refused(catalog: LocalCatalog) -> None:
    bomb = gzip.compress(b"a=" + b"[" * SMALL_BODY)
    exchange = Exchange(catalog, "POST", TOKENS, {"Content-Encoding": "gzip"}, [bomb])

    catalog.run(exchange.run())

    assert exchange.answer.status == 413


def test_a_form_of_percent_signs_is_refused(catalog: LocalCatalog) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    assert catalog.run(catalog.request("POST", TOKENS, b"a=" + b"%41" * 1001, form)).status == 400


# Requests that are begun and not finished


def test_idle_bodies_keep_nobody_from_being_answered(tmp_path: Path) -> None:
    catalog = LocalCatalog(tmp_path / "data", {"NUNATAK_MAX_IN_FLIGHT": "20"}, auth=True)
    try:
        catalog.namespace("ns")
        idle = [Exchange(catalog, "POST", TOKENS, {"Content-Length": "10"}) for _ in range(100)]
        idle += [Exchange(catalog, "POST", T, {**catalog.headers("root"), "Content-Length": "10"}) for _ in range(100)]

        async def meanwhile() -> list[int]:
            tasks = [asyncio.ensure_future(each.run()) for each in idle]
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert all(each.asked == 1 for each in idle), "each waits for its body"
            headers = catalog.headers("root")
            answers = [
                await catalog.request("GET", path, headers=headers) for path in ("/health", "/ready", "/v1/namespaces")
            ]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return [answer.status for answer in answers]

        assert catalog.run(meanwhile()) == [200, 200, 200]
        assert (catalog.app.busy.count, catalog.app.room.awaited) == (0, 0)
    finally:
        catalog.close()


def test_a_busy_server_says_so_without_a_traceback_and_stays_healthy(
    catalog: LocalCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.app.busy, before = InFlight(0), catalog.app.busy
    try:
        with caplog.at_level(logging.DEBUG):
            busy = catalog.call("GET", "/v1/namespaces")
            alive = [catalog.call("GET", path).status for path in ("/health", "/ready")]
    finally:
        catalog.app.busy = before

    assert busy.error[:2] == (503, "ServiceUnavailableException")
    assert int(busy.headers["retry-after"]) >= 1
    assert alive == [200, 200]
    assert [record.exc_info for record in caplog.records if record.name.startswith("nunatak")] == [None]


def test_one_caller_has_at_most_half_of_the_requests_that_are_worked_on(tmp_path: Path) -> None:
    """Those of one idempotency key wait for one another, all of them."""
    catalog = LocalCatalog(tmp_path / "data", {"NUNATAK_MAX_IN_FLIGHT": "20"}, auth=True)
    try:
        catalog.namespace("ns")
        catalog.principal("ann", default="ADMIN")
        headers = {**catalog.headers("ann"), "Idempotency-Key": str(uuid4())}

        async def meanwhile() -> tuple[list[int], int]:
            catalog.app.in_flight["ann", headers["Idempotency-Key"]] = asyncio.get_running_loop().create_future()
            sent = [catalog.request("POST", "/v1/namespaces", {"namespace": ["a"]}, headers) for _ in range(30)]
            tasks = [asyncio.ensure_future(each) for each in sent]
            await asyncio.sleep(0.2)
            other = await catalog.request("GET", "/v1/namespaces", headers=catalog.headers("root"))
            refused = [task.result().status for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return refused, other.status

        assert catalog.run(meanwhile()) == ([503] * 20, 200)
        assert catalog.app.busy._shares == {}
    finally:
        catalog.app.in_flight.clear()
        catalog.close()


def test_whoever_looks_after_the_server_is_not_kept_away_by_others_at_its_address(tmp_path: Path) -> None:
    catalog = LocalCatalog(tmp_path / "data", {"NUNATAK_RATE_LIMIT": "0", "NUNATAK_ADDRESS_RATE_LIMIT": "5"}, auth=True)
    try:
        flood = [catalog.run(catalog.request("GET", "/v1/namespaces")).status for _ in range(30)]
        alive = [catalog.run(catalog.request("GET", path)).status for path in ("/health", "/ready") * 10]
    finally:
        catalog.close()

    assert 429 in flood
    assert set(alive) == {200}


# What is kept


def audit_rows(catalog: LocalCatalog, where: str) -> list[tuple[Any, ...]]:
    assert catalog.app.audit is not None
    catalog.run(catalog.app.audit.flush(catalog.store, everything=True))
    return catalog.rows(f"SELECT principal, action, outcome, repeats, origin FROM nunatak_audit WHERE {where}")


def stranger(catalog: LocalCatalog, address: str, headers: dict[str, str], path: str = "/v1/namespaces") -> int:
    exchange = Exchange(catalog, "GET", path, headers)
    exchange.address = (address, 5000)
    catalog.run(exchange.run())
    return exchange.answer.status


def test_what_a_stranger_is_denied_is_one_row_for_its_address_and_minute(catalog: LocalCatalog) -> None:
    before = len(audit_rows(catalog, "1"))
    for number in range(300):
        headers = {"User-Agent": f"agent {number}", "X-Request-ID": f"r{number}", "Authorization": f"Bearer {number}"}
        assert stranger(catalog, f"10.7.7.{number % 3}", headers, f"/v1/namespaces/n{number}") == 401

    rows = audit_rows(catalog, "action = 'authenticate' AND origin LIKE '%10.7.7.%'")

    assert sorted(rows) == [
        ("", "authenticate", "denied", 100, f'{{"address":"10.7.7.{number}"}}') for number in range(3)
    ]
    assert len(audit_rows(catalog, "1")) == before + 3


def test_a_minute_that_is_not_over_is_not_written_yet(catalog: LocalCatalog) -> None:
    audit = catalog.app.audit
    assert audit is not None
    assert stranger(catalog, "10.7.8.1", {}) == 401
    catalog.run(audit.flush(catalog.store))
    found = catalog.rows("SELECT 1 FROM nunatak_audit WHERE origin LIKE '%10.7.8.1%'")
    assert not found

    audit._now_ms, real = lambda: real() + 60_000, audit._now_ms
    try:
        catalog.run(audit.flush(catalog.store))
    finally:
        audit._now_ms = real
    assert catalog.rows("SELECT repeats FROM nunatak_audit WHERE origin LIKE '%10.7.8.1%'") == [(1,)]


def test_many_addresses_are_at_most_some_rows_a_minute_and_all_are_counted(catalog: LocalCatalog) -> None:
    audit_rows(catalog, "1")
    before = len(catalog.rows("SELECT 1 FROM nunatak_audit"))
    for number in range(1000):
        assert stranger(catalog, f"10.8.{number // 250}.{number % 250}", {}) == 401
    for number in range(100):
        assert stranger(catalog, f"2001:db8::{number:x}", {}) == 401

    rows = audit_rows(catalog, "1")[before:]

    assert len(rows) == 201
    assert sum(row[3] for row in rows) == 1100
    assert rows[-1][4] == '{"address":"others"}'


def test_addresses_of_one_ipv6_network_are_one_row(catalog: LocalCatalog) -> None:
    for number in range(50):
        assert stranger(catalog, f"2001:db8:1:2::{number:x}", {}) == 401

    assert [row[3:] for row in audit_rows(catalog, "origin LIKE '%2001:db8:1:2%'")] == [
        (50, '{"address":"2001:db8:1:2::/64"}')
    ]


def test_invented_methods_make_no_new_lines_of_metrics(catalog: LocalCatalog) -> None:
    for number in range(50):
        catalog.call(f"METHOD{number}", "/v1/namespaces")

    page = catalog.run(catalog.app.metrics_text()).decode()

    assert 'method="OTHER"' in page
    assert "METHOD" not in page


def test_the_metrics_page_is_made_at_most_some_times_a_second(catalog: LocalCatalog) -> None:
    made = []
    real = catalog.app.metrics.page
    catalog.app.metrics.page = lambda: made.append(1) or real()  # type: ignore[method-assign,func-returns-value]
    try:
        for _ in range(100):
            assert catalog.run(catalog.request("GET", "/metrics")).status == 200
    finally:
        catalog.app.metrics.page = real  # type: ignore[method-assign]

    assert 0 < len(made) <= 40  # ten a second, and a slow machine takes its time


def test_urls_that_strangers_invent_are_not_kept_if_they_are_long(catalog: LocalCatalog) -> None:
    lane = FastPath(catalog.app, catalog.store)
    for number in range(10):
        lane.answer(f"/v1/namespaces/{'a' * 20_000}{number}/tables/t".encode(), [])

    assert sum(map(len, lane._targets)) == 0


# Logins


def ask_token(
    catalog: LocalCatalog, client: tuple[str, str], address: str, headers: dict[str, str] | None = None
) -> Answer:
    form = urlencode({"grant_type": "client_credentials", "client_id": client[0], "client_secret": client[1]}).encode()
    sent = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    exchange = Exchange(catalog, "POST", TOKENS, sent, [form])
    exchange.address = (address, 5000)
    catalog.run(exchange.run())
    return exchange.answer


def a_client(catalog: LocalCatalog, principal: str) -> tuple[str, str]:
    path, key = f"/management/v1/principals/{principal}/credentials", {"Idempotency-Key": str(uuid4())}
    made = catalog.call("POST", path, {"kind": "client"}, key).json
    return made["credential-id"], made["secret"]


def test_failed_logins_and_issued_tokens_are_audited(catalog: LocalCatalog) -> None:
    catalog.principal("ann")
    client = a_client(catalog, "ann")
    agent = {"User-Agent": "spark"}

    assert ask_token(catalog, (client[0], "wrong"), "10.1.1.1", agent).status == 401
    assert ask_token(catalog, ("nobody", "wrong"), "10.1.1.1", agent).status == 401
    assert ask_token(catalog, client, "10.1.1.1", agent).status == 200

    rows = audit_rows(catalog, "action = 'getToken' AND origin LIKE '%10.1.1.1%'")
    assert sorted(rows) == [
        ("", "getToken", "denied", 1, '{"address":"10.1.1.1"}'),
        ("ann", "getToken", "allowed", 1, '{"address":"10.1.1.1","client":"spark"}'),
        ("ann", "getToken", "denied", 1, '{"address":"10.1.1.1"}'),
    ]


def test_a_wrong_api_key_is_audited_under_the_principal_whose_key_it_would_be(catalog: LocalCatalog) -> None:
    catalog.principal("kim")
    wrong = catalog.keys["kim"][:-4] + "0000"

    assert stranger(catalog, "10.1.1.2", {"Authorization": f"Bearer {wrong}"}) == 401

    assert audit_rows(catalog, "origin LIKE '%10.1.1.2%'") == [
        ("kim", "authenticate", "denied", 1, '{"address":"10.1.1.2"}')
    ]


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCatalog]:
    settings = {"NUNATAK_TRUSTED_PROXIES": "10.9.9.9"}
    secured = LocalCatalog(tmp_path_factory.mktemp("proxied") / "data", settings, auth=True)
    secured.principal("ann")
    yield secured
    secured.close()


def test_wrong_secrets_behind_a_proxy_lock_out_their_sender_alone(behind_a_proxy: LocalCatalog) -> None:
    catalog, client = behind_a_proxy, a_client(behind_a_proxy, "ann")
    attacker = {"X-Forwarded-For": "203.0.113.6"}
    for number in range(100):
        ask_token(catalog, (f"client{number}", "wrong"), "10.9.9.9", attacker)

    assert ask_token(catalog, client, "10.9.9.9", attacker).status == 429
    assert ask_token(catalog, client, "10.9.9.9", {"X-Forwarded-For": "203.0.113.7"}).status == 200
    assert [row[3:] for row in audit_rows(catalog, "outcome = 'denied'")] == [(101, '{"address":"203.0.113.6"}')]


def test_who_is_no_trusted_proxy_cannot_speak_for_another_address(behind_a_proxy: LocalCatalog) -> None:
    catalog, client = behind_a_proxy, a_client(behind_a_proxy, "ann")
    for number in range(100):
        ask_token(catalog, (f"client{number}", "wrong"), "198.51.100.1", {"X-Forwarded-For": f"203.0.113.{number}"})

    assert ask_token(catalog, client, "198.51.100.1", {"X-Forwarded-For": "203.0.113.200"}).status == 429


def test_who_logged_in_from_an_address_is_not_locked_out_there_by_others(catalog: LocalCatalog) -> None:
    """Behind a proxy that nobody told us of, all have one address."""
    catalog.principal("bob")
    client, newcomer = a_client(catalog, "bob"), a_client(catalog, "bob")
    assert ask_token(catalog, client, "10.2.2.2").status == 200
    for number in range(100):
        ask_token(catalog, (f"client{number}", "wrong"), "10.2.2.2")

    assert ask_token(catalog, newcomer, "10.2.2.2").status == 429
    assert ask_token(catalog, client, "10.2.2.2").status == 200
    for _ in range(10):
        ask_token(catalog, (client[0], "wrong"), "10.2.2.2")
    assert ask_token(catalog, client, "10.2.2.2").status == 429, "its own failures count"


def test_an_ipv6_network_shares_its_failures(catalog: LocalCatalog) -> None:
    for number in range(100):
        ask_token(catalog, (f"client{number}", "wrong"), f"2001:db8:5:5::{number:x}")

    assert ask_token(catalog, ("another", "wrong"), "2001:db8:5:5::ffff").status == 429


# Rates


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/nothing/at/all/here"), ("PUT", "/v1/namespaces"), ("GET", "/%FF%FF"), ("BREW", "/")],
    ids=["no route", "no method", "no path", "invented"],
)
def test_requests_that_lead_nowhere_count_for_the_rate_limit(tmp_path: Path, method: str, path: str) -> None:
    limits = {"NUNATAK_RATE_LIMIT": "0", "NUNATAK_ADDRESS_RATE_LIMIT": "5"}
    catalog = LocalCatalog(tmp_path / "data", limits, auth=True)
    try:
        statuses = [catalog.run(catalog.request(method, path)).status for _ in range(50)]
    finally:
        catalog.close()

    assert statuses[0] in (400, 405)
    assert 429 in statuses


def test_an_error_repeats_little_of_a_long_name(catalog: LocalCatalog) -> None:
    """A name of 46 kB, in whatever place: the answer is a few lines."""
    name = "n" * 46_000
    bodies: list[tuple[str, Any]] = [
        ("/v1/namespaces", {"namespace": ["\0" * 46_000]}),
        ("/v1/namespaces", {"namespace": [f"{name} {name}\n"] * 500}),
        (path_of("ns", "tables"), {"name": name, "schema": {"type": name, "fields": []}}),
        (T, {"requirements": [{"type": name}], "updates": []}),
        (
            T,
            {
                "requirements": [],
                "updates": [{"action": "set-snapshot-ref", "ref-name": "a", "type": name, "snapshot-id": 1}],
            },
        ),
        (T, {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": name}]}),
        ("/management/v1/grants", {"grantee": name, "securable": name, "privileges": [name] * 500}),
        ("/management/v1/principals", {"name": name}),
        ("/v1/tables/rename", {"source": {"namespace": [name], "name": "a b " * 9000}, "destination": {}}),
    ]
    for path, body in bodies:
        sent = json.dumps(body).encode()
        answer = catalog.call("POST", path, sent)
        assert 400 <= answer.status < 500, (path, answer.body[:300])
        assert len(answer.body) < 3000, (path, len(sent), len(answer.body))
        assert "n" * 200 not in answer.body.decode()
