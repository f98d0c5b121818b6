"""Every way to publish metadata keeps one contract: file, then pointer, and files go only after a certain refusal."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from nunatak.database.records import InsertPointer, MovePointer
from nunatak.database.store import PointerMoved
from nunatak.errors import CommitFailed, OutcomeUnknown, ServiceUnavailable
from tests.api.wire import (
    Answer,
    a_commit,
    a_table,
    a_version,
    a_view,
    add_snapshot,
    branch_is_at,
    identifier,
    ok,
    path_of,
    set_branch,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog, metadata_file

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")
REGISTER, REGISTER_VIEW = path_of("ns") + "/register", path_of("ns") + "/register-view"
TRANSACTION = "/v1/transactions/commit"
Call = tuple[str, Any]
Apply = Callable[[Any], Awaitable[list[object]]]


def copied(loaded: Any, *, new_uuid: bool = True) -> str:
    """Somebody else's copy of a metadata file, in a folder of its own; returns its location."""
    original = metadata_file(loaded)
    content = json.loads(original.read_text())
    folder = original.parent.parent.with_name("copied") / "metadata"
    folder.mkdir(parents=True)
    content["location"] = f"file://{folder.parent}"
    if new_uuid:
        content["table-uuid" if "table-uuid" in content else "view-uuid"] = "0198c2c4-0000-4000-8000-00000000000c"
    copy = folder / original.name
    copy.write_text(json.dumps(content))
    return f"file://{copy}"


def is_there(location: str) -> bool:
    return os.path.isfile(location.removeprefix("file://"))


def creating(location: str) -> list[dict[str, Any]]:
    """The updates of a commit that creates a table."""
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "type": "int", "required": False}]}
    return [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": location},
    ]


def a_change(name: str, *updates: Any, **more: Any) -> dict[str, Any]:
    return {"identifier": identifier("ns", name), **a_commit(*updates, **more)}


def create_by_commit(catalog: LocalCatalog) -> Call:
    location = f"file://{catalog.warehouse}/made-by-commit"
    return path_of("ns", "tables", "new"), a_commit(*creating(location), requires=[{"type": "assert-create"}])


def transaction(catalog: LocalCatalog) -> Call:
    catalog.table("ns", "u")
    changes = [a_change(name, set_properties(x="y")) for name in ("t", "u")]
    created = f"file://{catalog.warehouse}/in-a-transaction"
    changes.append(a_change("new", *creating(created), requires=[{"type": "assert-create"}]))
    return TRANSACTION, {"table-changes": changes}


def register(catalog: LocalCatalog, kind: str = "tables", **more: Any) -> Call:
    path, name = (REGISTER, "t") if kind == "tables" else (REGISTER_VIEW, "v")
    location = copied(catalog.load("ns", name, kind))
    return path, {"name": "registered", "metadata-location": location, **more}


# Each way to publish, ready to be sent to a catalog with the table ns.t and the view ns.v.
WAYS: dict[str, Callable[[LocalCatalog], Call]] = {
    "create a table": lambda _: (path_of("ns", "tables"), a_table("new")),
    "commit": lambda _: (T, a_commit(add_snapshot(1), set_branch(1))),
    "create a table by a commit": create_by_commit,
    "transaction": transaction,
    "register a table": register,
    "register over a table": lambda catalog: register(catalog, name="t", overwrite=True),
    "create a view": lambda _: (path_of("ns", "views"), a_view("new")),
    "replace a view": lambda _: (
        V,
        a_commit({"action": "add-view-version", "view-version": a_version("SELECT 2", 2)}),
    ),
    "register a view": lambda catalog: register(catalog, "views"),
}
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def full(catalog: LocalCatalog) -> LocalCatalog:
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    return catalog


def failing(
    catalog: LocalCatalog, patch: pytest.MonkeyPatch, error: Exception, *, after: bool = False
) -> list[set[str]]:
    """From now on the database fails; returns the files that were there when it was asked."""
    real: Apply = catalog.store.apply
    there: list[set[str]] = []

    async def apply(changes: Any) -> list[object]:
        there.append(catalog.files())
        if after:
            await real(changes)
        raise error

    patch.setattr(catalog.store, "apply", apply)
    return there


@every_way
def test_the_file_is_there_before_the_pointer_and_all_pointers_move_together(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path, body = WAYS[way](full)
    transactions: list[list[str]] = []
    real: Apply = full.store.apply

    async def apply(changes: Any) -> list[object]:
        pointers = [each.new.metadata_location for each in changes if isinstance(each, InsertPointer | MovePointer)]
        assert all(map(is_there, pointers))
        transactions.append(pointers)
        return await real(changes)

    monkeypatch.setattr(full.store, "apply", apply)
    assert full.call("POST", path, body).status in (200, 204)

    (pointers,) = transactions
    assert len(pointers) == (3 if way == "transaction" else 1)


@pytest.mark.parametrize("error", [ServiceUnavailable("busy"), CommitFailed("somebody was first")], ids=["503", "409"])
@every_way
def test_a_certain_refusal_leaves_no_file_and_takes_none_of_somebody_else(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch, way: str, error: Exception
) -> None:
    path, body = WAYS[way](full)
    before = full.state()
    with monkeypatch.context() as patch:
        there = failing(full, patch, error)
        assert full.call("POST", path, body).status in (503, 409)

    assert "register" in way or there[0] > cast("set[str]", before[2]), "there was a file to delete"
    assert full.state() == before


@pytest.mark.parametrize("after", [False, True], ids=["not applied", "applied"])
@every_way
def test_an_unknown_outcome_keeps_every_file(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch, way: str, after: bool
) -> None:
    path, body = WAYS[way](full)
    with monkeypatch.context() as patch:
        there = failing(full, patch, OutcomeUnknown("the connection broke"), after=after)
        assert full.call("POST", path, body).error[:2] == (500, "CommitStateUnknownException")

    assert full.files() == there[0]


@every_way
def test_what_was_published_is_loaded_without_a_file(full: LocalCatalog, way: str) -> None:
    """Warm, and by a server that starts anew on the same folder."""
    path, body = WAYS[way](full)
    answer = full.call("POST", path, body)
    named = {"commit": "t", "replace a view": "v", "transaction": "t", "register over a table": "t"}
    kind = "views" if "view" in way else "tables"
    name = named.get(way, "registered" if "register" in way else "new")

    for _ in range(2):
        reads = full.app.catalog.objects.local.counts["read"]
        loaded = full.load("ns", name, kind)
        assert full.app.catalog.objects.local.counts["read"] == reads
        assert answer.body == b"" or loaded["metadata-location"] == answer.json["metadata-location"]
        full.restart()


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith(("create a", "transaction"))])
def test_a_file_that_cannot_be_written_leaves_none_of_the_others(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path, body = WAYS[way](full)
    before = full.state()
    objects = full.app.catalog.objects
    real = objects.write_new
    written: list[str] = []

    async def once(location: str, data: Any) -> None:
        if written or way != "transaction":
            raise ServiceUnavailable("the disk is full")
        written.append(location)
        await real(location, data)

    monkeypatch.setattr(objects, "write_new", once)

    assert full.call("POST", path, body).status == 503
    assert full.state() == before


def test_a_folder_that_cannot_be_made_leaves_no_file(full: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    before = full.state()

    async def refuse(_: str) -> None:
        raise ServiceUnavailable("the disk is full")

    monkeypatch.setattr(full.app.catalog.objects, "make_folder", refuse)

    assert full.call("POST", path_of("ns", "tables"), a_table("new")).status == 503
    assert full.state() == before


def test_the_commit_log_names_the_file_by_its_commit_id(full: LocalCatalog) -> None:
    location = ok(full.call("POST", T, a_commit(set_properties(x="y"))))["metadata-location"]

    ((commit_id, logged),) = full.rows(
        "SELECT commit_id, metadata_location FROM nunatak_commits WHERE operation = 'commit-table'"
    )
    assert logged == location
    assert Path(location).name == f"00001-{commit_id}.metadata.json"


# A transaction that is refused


def both(catalog: LocalCatalog, *updates: Any, **more: Any) -> Answer:
    changes = [a_change("t", set_properties(x="y")), a_change("u", *updates, **more)]
    return catalog.call("POST", TRANSACTION, {"table-changes": changes})


@pytest.mark.parametrize(
    ("status", "updates", "requires"),
    [
        (409, [add_snapshot(1), set_branch(1)], [branch_is_at(3)]),
        (400, [{"action": "set-current-schema", "schema-id": 77}], []),
        (400, [set_properties(**{"write.data.path": "s3://elsewhere/x"})], []),
    ],
)
def test_the_refusal_of_a_transaction_names_the_table_and_says_that_nothing_was_applied(
    full: LocalCatalog, status: int, updates: list[Any], requires: list[Any]
) -> None:
    full.table("ns", "u")
    before = full.state()

    refused = both(full, *updates, requires=requires)

    assert refused.status == status
    assert refused.error[2].startswith("ns.u: ") == (status == 409)
    assert refused.hint.startswith("Nothing of the transaction was applied. ns.u was refused.")
    assert full.state() == before


def test_so_does_that_of_a_transaction_with_one_table(full: LocalCatalog) -> None:
    changes = [a_change("t", add_snapshot(1), set_branch(1), requires=[branch_is_at(3)])]

    refused = full.call("POST", TRANSACTION, {"table-changes": changes})

    assert refused.error[:2] == (409, "CommitFailedException")
    assert refused.error[2].startswith("ns.t: Requirement failed")
    assert refused.hint == "Nothing of the transaction was applied. ns.t was refused."


def test_a_refusal_that_names_the_table_already_does_not_name_it_twice(full: LocalCatalog) -> None:
    refused = both(full, set_properties(x="y"))

    assert refused.error == (404, "NoSuchTableException", "Table does not exist: ns.u")
    assert refused.hint.startswith("Nothing of the transaction was applied.")


def test_a_pointer_that_moves_again_and_again_refuses_the_transaction_in_the_same_words(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.table("ns", "u")
    monkeypatch.setattr("nunatak.catalog.commits.MAX_TRIES", 2)
    there = failing(full, monkeypatch, PointerMoved("Cannot commit ns.u: another writer changed it meanwhile"))

    refused = both(full, set_properties(x="y"))

    assert len(there) == 2
    assert refused.error[:2] == (409, "CommitFailedException")
    assert "ns.u" in refused.error[2]
    assert refused.hint.startswith("Nothing of the transaction was applied.")


def test_an_unknown_outcome_does_not_say_that_nothing_was_applied(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.table("ns", "u")
    failing(full, monkeypatch, OutcomeUnknown("the connection broke"), after=True)

    unknown = both(full, set_properties(x="y"))

    assert unknown.status == 500
    assert "hint" not in unknown.json["error"]


def test_a_commit_of_one_table_is_refused_in_the_words_of_the_reference(full: LocalCatalog) -> None:
    refused = full.commit("ns", "t", a_commit(add_snapshot(1), set_branch(1), requires=[branch_is_at(3)]))

    assert refused.error[2].startswith("Requirement failed: ")
    assert "hint" not in refused.json["error"]
