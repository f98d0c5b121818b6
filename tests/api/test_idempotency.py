"""A request sent twice under one Idempotency-Key happens once and is answered twice."""

import asyncio
import copy
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nunatak.api import app as app_module
from nunatak.catalog.cache import MetadataCache
from nunatak.catalog.contention import Contention
from nunatak.catalog.table_locks import TableLocks
from nunatak.database.records import SavedAnswer
from nunatak.database.refusals import key_taken
from nunatak.errors import OutcomeUnknown, ServiceUnavailable
from tests.api.wire import (
    Answer,
    a_commit,
    a_table,
    a_version,
    a_view,
    identifier,
    ok,
    path_of,
    rename,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog, metadata_file

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")


def a_key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


@dataclass(frozen=True)
class Operation:
    """One way to change the catalog; `body` is given the answers that made the table `t` and the view `v`."""

    method: str
    path: str
    body: Callable[[Any, Any], Any]


def op(method: str, path: str, body: Any = None) -> Operation:
    return Operation(method, path, body if callable(body) else lambda table, view: body)


OPERATIONS = {
    "createNamespace": op("POST", "/v1/namespaces", {"namespace": ["new"], "properties": {"a": "b"}}),
    "dropNamespace": op("DELETE", path_of("empty")),
    "updateProperties": op("POST", path_of("ns") + "/properties", {"updates": {"a": "b"}, "removals": ["owner",
         "none"]}),
    "createTable": op("POST", path_of("ns", "tables"), a_table("new")),
    "stageTable": op("POST", path_of("ns", "tables"), a_table("new", stage_create=True)),
    "registerTable": op("POST", path_of("ns") + "/register",
                        lambda table, _: {"name": "again", "metadata-location": table["metadata-location"]}),
    "updateTable": op("POST", T, a_commit(set_properties(a="b"))),
    "updateTableWithNothing": op("POST", T, a_commit()),
    "dropTable": op("DELETE", T),
    "purgeTable": op("DELETE", f"{T}?purgeRequested=true"),
    "unregisterTable": op("POST", f"{T}/unregister"),
    "reportMetrics": op("POST", f"{T}/metrics", {"report-type": "scan-report"}),
    "renameTable": op("POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("empty", "moved"))),
    "commitTransaction": op("POST", "/v1/transactions/commit",
                            {"table-changes": [a_commit(set_properties(a="b")) | {"identifier": identifier("ns",
                            "t")}]}),
    "createView": op("POST", path_of("ns", "views"), a_view("new")),
    "registerView": op("POST", path_of("ns") + "/register-view",
                       lambda _, view: {"name": "again", "metadata-location": view["metadata-location"]}),
    "replaceView": op("POST", V, a_commit({"action": "add-view-version", "view-version": a_version("SELECT 2", 2)},
                                          {"action": "set-current-view-version", "view-version-id": -1})),
    "replaceViewWithNothing": op("POST", V, a_commit()),
    "dropView": op("DELETE", V),
    "renameView": op("POST", "/v1/views/rename", rename(identifier("ns", "v"), identifier("empty", "moved"))),
}  # fmt: skip
each_operation = pytest.mark.parametrize("name", OPERATIONS)


@pytest.fixture
def full(catalog: LocalCatalog) -> LocalCatalog:
    return furnished(catalog)


def furnished(catalog: LocalCatalog) -> LocalCatalog:
    """With what the operations need."""
    catalog.namespace("empty")
    ok(catalog.call("POST", path_of("ns") + "/properties", {"updates": {"owner": "ann"}}))
    return catalog


def prepared(catalog: LocalCatalog, name: str) -> tuple[str, str, Any]:
    """The request, ready to be sent; what is registered must not be in the catalog already."""
    table, view = catalog.table("ns", "t"), catalog.view("ns", "v")
    if name == "registerTable":
        assert catalog.call("DELETE", T).status == 204
    if name == "registerView":
        assert catalog.call("DELETE", V).status == 204
    operation = OPERATIONS[name]
    return operation.method, operation.path, operation.body(table, view)


def everything(catalog: LocalCatalog) -> tuple[object, ...]:
    logs = [
        catalog.rows(f"SELECT count(*) FROM {table}")
        for table in ("nunatak_commits", "nunatak_reports", "nunatak_jobs")
    ]
    return (*catalog.state(), *logs)


def same(first: Answer, again: Answer) -> bool:
    return (first.status, first.body, first.headers.get("etag")) == (
        again.status,
        again.body,
        again.headers.get("etag"),
    )


@each_operation
def test_a_change_that_was_made_is_answered_again_and_not_made_again(full: LocalCatalog, name: str) -> None:
    request, key = prepared(full, name), a_key()
    first = full.call(*request, key)
    assert first.status in (200, 204), first.body
    after = everything(full)

    assert same(first, full.call(*request, key))
    assert everything(full) == after
    full.restart()
    assert same(first, full.call(*request, key))
    assert everything(full) == after


@each_operation
def test_a_change_that_was_refused_is_refused_again_even_if_it_were_possible_now(full: LocalCatalog, name: str) -> None:
    request, key = prepared(full, name), a_key()
    state = everything(full)
    moved = request[1].replace("/namespaces/ns", "/namespaces/later").replace("/namespaces/empty", "/namespaces/later")
    body = request[2]
    if request[1] == moved:  # the namespace is in the body: break that
        body = {"broken": True}
    first = full.call(request[0], moved, body, key)
    assert 400 <= first.status < 500
    assert everything(full) == state
    full.namespace("later")

    again = full.call(request[0], moved, body, key)

    assert (again.status, again.body) == (first.status, first.body)


@each_operation
def test_the_same_request_sent_many_times_at_once_runs_once(full: LocalCatalog, name: str) -> None:
    request, key = prepared(full, name), a_key()

    answers = full.together(*(full.request(*request, key) for _ in range(8)))
    after = everything(full)

    assert answers[0].status in (200, 204)
    assert all(same(answers[0], answer) for answer in answers)
    assert same(answers[0], full.call(*request, key))
    assert everything(full) == after
    if name not in ("reportMetrics", "stageTable", "updateTableWithNothing", "replaceViewWithNothing"):
        assert len(full.rows("SELECT * FROM nunatak_idempotency")) == 1


def beside(catalog: LocalCatalog) -> LocalCatalog:
    """A second server on the same database: the two share nothing in memory but the connection to it."""
    other = copy.copy(catalog)
    own: dict[str, Any] = {
        "cache": MetadataCache(1_000_000),
        "table_locks": TableLocks(),
        "contention": Contention(),
        "server_id": "other",
    }
    other.app = replace(catalog.app, catalog=replace(catalog.app.catalog, **own), in_flight={})
    return other


def sizes(catalog: LocalCatalog) -> list[int]:
    """How much there is of everything that a request adds to."""
    logs = ("nunatak_commits", "nunatak_reports", "nunatak_jobs", "nunatak_idempotency")
    return [len(catalog.files()), *(catalog.rows(f"SELECT count(*) FROM {table}")[0][0] for table in logs)]


@each_operation
def test_the_same_request_sent_to_two_servers_at_once_runs_once(full: LocalCatalog, name: str) -> None:
    """Each finds no answer and begins; the key's row tells them apart in the database."""
    request, key, other = prepared(full, name), a_key(), beside(full)
    before = sizes(full)

    first, again = full.together(full.request(*request, key), other.request(*request, key))

    assert first.status in (200, 204)
    assert same(first, again)
    assert all(now - then in (0, 1) for then, now in zip(before, sizes(full), strict=True)), "one change, one file"
    after = everything(full)
    assert same(first, other.call(*request, key))
    assert everything(full) == after


@each_operation
def test_of_two_requests_under_one_key_on_two_servers_one_is_refused(full: LocalCatalog, name: str) -> None:
    request, key, other = prepared(full, name), a_key(), beside(full)
    stranger = ("POST", "/v1/namespaces", {"namespace": ["stranger"]})

    answers = full.together(full.request(*request, key), other.request(*stranger, key))

    assert sorted(answer.status == 422 for answer in answers) == [False, True]
    assert len(full.rows("SELECT * FROM nunatak_idempotency")) == 1
    applied = full.call("HEAD", path_of("stranger")).status == 204
    assert applied == (answers[0].status == 422)


def test_a_key_past_its_time_may_be_used_again_also_by_two_servers_at_once(full: LocalCatalog) -> None:
    request, key, other = prepared(full, "updateTable"), a_key(), beside(full)
    ok(full.call("POST", "/v1/namespaces", {"namespace": ["earlier"]}, key))
    full.clock.added_ms = 2_200_000

    first, again = full.together(full.request(*request, key), other.request(*request, key))

    assert ok(first)["metadata"]["properties"]["a"] == "b"
    assert same(first, again)
    assert full.rows("SELECT count(*) FROM nunatak_commits WHERE operation = 'commit-table'") == [(1,)]


def test_a_refusal_by_one_server_does_not_hide_the_success_of_another(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds the table gone, by the first's doing: it must answer 204, although all it saw was a 404."""
    request, key, other = prepared(full, "dropTable"), a_key(), beside(full)
    find_answer = full.store.find_answer
    seen: list[bool] = []

    async def late(principal: str, name: str, now_ms: int) -> SavedAnswer | None:
        found = await find_answer(principal, name, now_ms)
        seen.append(found is not None)
        if len(seen) == 1:  # the second server asks first, and hears nothing; then the first carries it out
            assert (await full.request(*request, key)).status == 204
        return found

    monkeypatch.setattr(full.store, "find_answer", late)

    assert other.call(*request, key).status == 204
    assert seen == [False, False, True]
    assert full.rows("SELECT status FROM nunatak_idempotency") == [(204,)]


def test_a_key_that_another_server_holds_without_an_answer_leaves_the_outcome_unknown(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, key = prepared(full, "updateTable"), a_key()
    monkeypatch.setattr(full.store, "apply", Stumbling(full, key_taken(), 1).apply)

    assert full.call(*request, key).error[:2] == (500, "CommitStateUnknownException")
    assert full.app.in_flight == {}


def test_the_same_change_without_a_key_runs_twice(full: LocalCatalog) -> None:
    """The canary: were this not so, the tests above would prove nothing."""
    request = prepared(full, "updateTable")
    first, again = full.call(*request), full.call("POST", T, a_commit(set_properties(a="c")))

    assert ok(first)["metadata-location"] != ok(again)["metadata-location"]
    assert full.call("DELETE", T).status == 204
    assert full.call("DELETE", T).status == 404


def test_a_key_in_capital_letters_is_the_same_key(full: LocalCatalog) -> None:
    key = "01890a5d-ac96-774b-bcce-b302099a8057"
    first = full.call("POST", "/v1/namespaces", {"namespace": ["n"]}, {"Idempotency-Key": key})

    for spelled in (key.upper(), f" {key}\t"):
        assert same(first, full.call("POST", "/v1/namespaces", {"namespace": ["n"]}, {"Idempotency-Key": spelled}))


def test_a_commit_answered_again_shows_the_metadata_it_made_not_newer(full: LocalCatalog) -> None:
    full.table("ns", "t")
    key = a_key()
    first = full.call("POST", T, a_commit(set_properties(a="b")), key)
    ok(full.call("POST", T, a_commit(set_properties(a="c"))))

    again = full.call("POST", T, a_commit(set_properties(a="b")), key)

    assert same(first, again)
    assert full.load("ns", "t")["metadata"]["properties"]["a"] == "c"


def test_reading_with_a_key_is_just_reading(full: LocalCatalog) -> None:
    full.table("ns", "t")
    key = a_key()

    assert full.call("GET", T, headers=key).status == 200
    assert full.call("GET", path_of("ns"), headers=key).status == 200
    assert full.rows("SELECT * FROM nunatak_idempotency") == []


def test_a_key_is_forgotten_after_its_time_and_a_grace(full: LocalCatalog) -> None:
    key = a_key()
    body = {"namespace": ["n"]}
    first = full.call("POST", "/v1/namespaces", body, key)

    full.clock.added_ms = 2_000_000  # longer than advertised, within the grace
    assert same(first, full.call("POST", "/v1/namespaces", body, key))
    full.clock.added_ms = 2_200_000
    assert full.call("POST", "/v1/namespaces", body, key).error[:2] == (409, "AlreadyExistsException")
    assert full.call("POST", "/v1/namespaces", {"namespace": ["m"]}, key).status == 422  # and now bound to that


class Stumbling:
    """Lets the database fail as many times as it is told; before the change or with the outcome unknown."""

    def __init__(self, catalog: LocalCatalog, error: Exception, times: int) -> None:
        self._apply, self._error, self._times = catalog.store.apply, error, times
        self.calls = 0

    async def apply(self, changes: Any) -> list[object]:
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.calls <= self._times:
            raise self._error
        return await self._apply(changes)


@pytest.mark.parametrize("error", [ServiceUnavailable("later"), OutcomeUnknown("who knows")], ids=["503", "500"])
def test_an_answer_that_is_not_final_is_not_remembered(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    request, key = prepared(full, "updateTable"), a_key()
    stumbling = Stumbling(full, error, 1)
    monkeypatch.setattr(full.store, "apply", stumbling.apply)

    assert full.call(*request, key).status in (500, 503)
    assert full.rows("SELECT * FROM nunatak_idempotency") == []

    assert ok(full.call(*request, key))["metadata"]["properties"]["a"] == "b"
    assert stumbling.calls == 2


def test_of_many_who_wait_for_one_that_fails_one_goes_next(full: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    request, key = prepared(full, "updateTable"), a_key()
    stumbling = Stumbling(full, ServiceUnavailable("later"), 2)
    monkeypatch.setattr(full.store, "apply", stumbling.apply)

    answers = full.together(*(full.request(*request, key) for _ in range(8)))

    assert sorted(answer.status for answer in answers) == [200] * 6 + [503] * 2
    assert stumbling.calls == 3
    assert len({answer.body for answer in answers if answer.status == 200}) == 1
    assert full.rows("SELECT count(*) FROM nunatak_commits WHERE operation = 'commit-table'") == [(1,)]
    assert full.app.in_flight == {}


def test_a_retry_whose_first_copy_does_not_finish_is_told_that_the_outcome_is_unknown(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 409 here would make the client delete files that may be live."""
    request, key = prepared(full, "updateTable"), a_key()
    monkeypatch.setattr(app_module, "IN_FLIGHT_SECONDS", 0.0)

    first, again = full.together(full.request(*request, key), full.request(*request, key))

    assert first.status == 200
    assert again.error[:2] == (500, "CommitStateUnknownException")


def test_a_key_of_one_resource_is_refused_for_another(full: LocalCatalog) -> None:
    """Else a drop with the key of a create would be answered 204, and nothing would be dropped."""
    full.table("ns", "t")
    full.table("ns", "u")
    key = a_key()
    ok(full.call("POST", T, a_commit(set_properties(a="b")), key))

    for method, path, body in [
        ("POST", path_of("ns", "tables", "u"), a_commit(set_properties(a="b"))),
        ("DELETE", T, None),
        ("DELETE", f"{T}?purgeRequested=true", None),
        ("POST", f"{T}/unregister", None),
    ]:
        assert full.call(method, path, body, key).error[:2] == (422, "UnprocessableEntityException")
    assert full.call("HEAD", T).status == 204


def test_a_drop_without_purge_is_not_answered_for_one_with_purge(full: LocalCatalog) -> None:
    full.table("ns", "t")
    key = a_key()
    assert full.call("DELETE", T, None, key).status == 204

    assert full.call("DELETE", f"{T}?purgeRequested=true", None, key).error[:2] == (422, "UnprocessableEntityException")


def test_a_commit_whose_metadata_file_is_gone_by_now_is_still_answered_as_done(full: LocalCatalog) -> None:
    """The file left the log and was deleted. A 404 would make the client delete what its commit added."""
    upkeep = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    full.table("ns", "t", properties=upkeep)
    key, body = a_key(), a_commit(set_properties(a="b"))
    first = ok(full.call("POST", T, body, key))
    for number in range(3):
        ok(full.call("POST", T, a_commit(set_properties(number=str(number)))))
    assert full.work_off_jobs() > 0
    assert not metadata_file(first).exists()

    again = full.call("POST", T, body, key)

    assert ok(again) == full.load("ns", "t")
    assert again.json["metadata"]["properties"]["a"] == "b"


def test_a_commit_whose_table_is_gone_by_now_is_never_answered_as_refused(full: LocalCatalog) -> None:
    full.table("ns", "t")
    key, body = a_key(), a_commit(set_properties(a="b"))
    ok(full.call("POST", T, body, key))
    assert full.call("DELETE", f"{T}?purgeRequested=true").status == 204
    assert full.work_off_jobs() == 1

    assert full.call("POST", T, body, key).error[:2] == (500, "CommitStateUnknownException")
