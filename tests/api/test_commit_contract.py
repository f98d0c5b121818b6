"""The commit contract as a table, and every way to change something measured by it, whatever happens underneath."""

import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nunatak import errors
from nunatak.api.http import Request, RequestHead, Response
from nunatak.api.route import Route
from nunatak.catalog.commit_contract import ALLOWED, REFUSALS, SUCCESSES, UNKNOWN, Moment
from nunatak.errors import CatalogError, OutcomeUnknown, ServiceUnavailable
from tests.api.test_idempotency import OPERATIONS, a_key, everything, furnished, prepared
from tests.api.wire import a_commit, ok, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog

CONTRACT = Path(__file__).parents[2] / "docs" / "explanation" / "commit-contract.md"

Apply = Callable[[Any], Awaitable[list[object]]]


def error_classes(root: type[CatalogError] = CatalogError) -> Iterator[type[CatalogError]]:
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from error_classes(child)


def an_error(kind: type[CatalogError]) -> CatalogError:
    named: dict[str, Any] = {"allowed": "GET"} if kind is errors.MethodNotAllowed else {}
    return kind("too late", **named)


ERRORS = {kind.__name__: kind for kind in error_classes()}


@pytest.fixture
def full(catalog: LocalCatalog) -> LocalCatalog:
    return furnished(catalog)


# The table itself


def test_every_status_means_one_thing() -> None:
    assert not (SUCCESSES & REFUSALS) | (SUCCESSES & UNKNOWN) | (REFUSALS & UNKNOWN)
    assert {kind.status for kind in ERRORS.values()} <= REFUSALS | UNKNOWN
    assert set(ALLOWED) == set(Moment)


def test_once_it_is_sent_a_change_is_refused_only_by_the_database() -> None:
    assert ALLOWED[Moment.SENT] == UNKNOWN
    assert not ALLOWED[Moment.APPLIED] & REFUSALS
    assert ALLOWED[Moment.REFUSED] >= REFUSALS


def test_a_page_for_people_says_the_same() -> None:
    page = CONTRACT.read_text("utf-8")

    for moment, statuses in ALLOWED.items():
        groups = {"success": SUCCESSES, "refusal": REFUSALS, "unknown": UNKNOWN}
        marks = " | ".join("yes" if group <= statuses else "no" for group in groups.values())
        assert f"| {moment.value} | {marks} |" in page


# Every change, measured by it


def refuse(_: Apply) -> Apply:
    async def apply(_: Any) -> list[object]:
        raise ServiceUnavailable("the database is busy")

    return apply


def never_arrive(_: Apply) -> Apply:
    async def apply(_: Any) -> list[object]:
        raise OutcomeUnknown("the connection broke")

    return apply


def lose_the_reply(real: Apply) -> Apply:
    async def apply(changes: Any) -> list[object]:
        await real(changes)
        raise OutcomeUnknown("the connection broke")

    return apply


def break_before(_: Apply) -> Apply:
    async def apply(_: Any) -> list[object]:
        raise RuntimeError("a bug of ours")

    return apply


def break_after(real: Apply) -> Apply:
    async def apply(changes: Any) -> list[object]:
        await real(changes)
        raise RuntimeError("a bug of ours")

    return apply


# How the database fails, how far the change came then, and whether it happened.
FAILURES: dict[str, tuple[Callable[[Apply], Apply], Moment, bool]] = {
    "refused": (refuse, Moment.REFUSED, False),
    "lost on the way": (never_arrive, Moment.SENT, False),
    "done, the reply lost": (lose_the_reply, Moment.SENT, True),
    "broken before": (break_before, Moment.SENT, False),
    "done, then broken": (break_after, Moment.SENT, True),
}
each_operation = pytest.mark.parametrize("name", OPERATIONS)
keyed = pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without"])


@keyed
@pytest.mark.parametrize("failure", FAILURES)
@each_operation
def test_whatever_the_database_does_a_refusal_means_that_nothing_happened(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch, name: str, failure: str, keyed: bool
) -> None:
    request, key = prepared(full, name), a_key() if keyed else None
    before = everything(full)
    fail, moment, happens = FAILURES[failure]
    with monkeypatch.context() as patch:
        patch.setattr(full.store, "apply", fail(full.store.apply))
        answer = full.call(*request, key)

    if not keyed and name in NOTHING_TO_WRITE:
        moment, happens = Moment.NOT_SENT, False
    assert answer.status in ALLOWED[moment]
    assert answer.status in REFUSALS | UNKNOWN or moment is Moment.NOT_SENT
    if not happens:
        assert everything(full)[:2] == before[:2]  # a file of an unknown outcome stays
    if answer.status in REFUSALS:
        assert everything(full) == before
    if keyed:
        # The client sends it again, and it has happened exactly once.
        assert full.call(*request, key).status in SUCCESSES
        after = everything(full)
        assert full.call(*request, key).status in SUCCESSES
        assert everything(full) == after


NOTHING_TO_WRITE = {"stageTable", "updateTableWithNothing", "replaceViewWithNothing"}


@keyed
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["updateTable", "dropTable"])
def test_what_fails_after_a_change_was_applied_does_not_deny_it(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch, name: str, error: str, keyed: bool
) -> None:
    """Whatever it raises; nor is such a refusal remembered for the key."""
    request, key = prepared(full, name), a_key() if keyed else None
    match = full.app.router.match

    def stumbling(method: str, path: str) -> tuple[Route, str | None, Sequence[str]]:
        route, prefix, names = match(method, path)

        async def handler(given: Request) -> Response:
            await route.handler(given)
            raise an_error(ERRORS[error])

        return dataclasses.replace(route, handler=handler), prefix, names

    with monkeypatch.context() as patch:
        patch.setattr(full.app.router, "match", stumbling)
        answer = full.call(*request, key)

    assert answer.status in ALLOWED[Moment.APPLIED]
    if keyed:
        assert full.call(*request, key).status in SUCCESSES


# The client goes away


def test_a_request_whose_client_is_gone_is_not_taken_for_an_empty_one(full: LocalCatalog) -> None:
    """Else the key would be bound to an empty body, and the same request, sent again, be refused."""
    full.table("ns", "t")
    path, body, key = path_of("ns", "tables", "t"), a_commit(set_properties(a="b")), a_key()

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    headers = {name.lower().encode(): value.encode() for name, value in key.items()}
    unheard = full.run(full.app.respond(RequestHead("POST", path.encode(), b"", headers), gone))

    assert unheard.status == 400
    assert full.rows("SELECT * FROM nunatak_idempotency") == []
    assert ok(full.call("POST", path, body, key))["metadata"]["properties"]["a"] == "b"
