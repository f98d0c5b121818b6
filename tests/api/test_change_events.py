"""Each change leaves its event with the caller, made from the change that went to the database."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from nunatak.catalog import namespaces, tables, views
from nunatak.catalog.catalog import Caller
from nunatak.catalog.commits import commit_tables, commit_transaction, table_commit
from nunatak.catalog.write import write
from nunatak.database.records import CreateNamespace, Key, StoredResponse
from nunatak.database.store import PointerMoved
from nunatak.errors import AlreadyExists
from nunatak.events.change_events import ChangeEvent
from nunatak.iceberg import commit_request
from nunatak.iceberg.identifiers import Identifier
from tests.api.wire import SCHEMA, a_version, path_of
from tests.support.catalogs.local import LocalCatalog

T, U, V = (Identifier(("ns",), name) for name in ("t", "u", "v"))


def commit_of(identifier: Identifier, **properties: str) -> Any:
    update = commit_request.SetProperties(updates=properties)
    return table_commit(identifier, [commit_request.CommitTableRequest(requirements=[], updates=[update])])


class Changes:
    """The functions of the catalog, called by `ann`."""

    def __init__(self, catalog: LocalCatalog) -> None:
        self.local = catalog
        self.catalog = catalog.app.catalog
        self.warehouse = self.catalog.warehouse("")
        catalog.namespace("ns")

    def run(self, function: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Sequence[ChangeEvent]:
        caller = Caller("ann", request_id="r-1")

        async def call() -> None:
            await function(self.catalog, self.warehouse, caller, *arguments, **named)

        self.local.run(call())
        for event in caller.progress.events:
            assert (event.principal, event.request_id, event.warehouse) == ("ann", "r-1", "default")
            assert event.at_ms > 1_700_000_000_000
        return caller.progress.events


@pytest.fixture
def changes(make_catalog: Any) -> Changes:
    return Changes(make_catalog())


def test_a_table_from_its_creation_to_its_end(changes: Changes) -> None:
    (created,) = changes.run(tables.create_table, tables.NewTable(T, SCHEMA, None, None, None, {}))
    (committed,) = changes.run(commit_tables, [commit_of(T, a="b")])
    (renamed,) = changes.run(tables.rename_entry, T, U, "TABLE")
    loaded, size = changes.local.load("ns", "u"), len(changes.local.call("GET", path_of("ns", "tables", "u")).body)
    (unregistered,) = changes.run(tables.unregister_table, U)

    assert [each.type for each in (created, committed, renamed)] == ["create-table", "commit-table", "rename-table"]
    assert (created.namespace, created.name, created.before) == ("ns", "t", None)
    assert (committed.before, committed.after) == (created.after, loaded["metadata-location"])
    assert {each.object_uuid for each in (created, committed, renamed)} == {loaded["metadata"]["table-uuid"]}
    assert committed.metadata_bytes == size
    assert renamed.renamed_to == Key("default", "ns", "u")
    assert (unregistered.type, unregistered.before, unregistered.after) == ("unregister-table", committed.after, None)


def test_the_tables_of_a_transaction_have_an_event_each(changes: Changes) -> None:
    for name in (T, U):
        changes.run(tables.create_table, tables.NewTable(name, SCHEMA, None, None, None, {}))

    found = changes.run(commit_transaction, [commit_of(T, a="b"), commit_of(U)])

    assert [(event.type, event.name) for event in found] == [("commit-table", "t")], "u is unchanged"


def test_views_and_namespaces(changes: Changes) -> None:
    (view,) = changes.run(views.create_view, views.NewView(V, SCHEMA, a_version(), None, {}))
    (dropped,) = changes.run(tables.drop_entry, V, "VIEW", purge=False)
    (made,) = changes.run(namespaces.create_namespace, ("a", "b.c"), {}, StoredResponse(200))
    (changed,) = changes.run(namespaces.update_namespace, ("ns",), {"x": "y"}, [], lambda _: StoredResponse(200))
    (gone,) = changes.run(namespaces.drop_namespace, ("a", "b.c"))

    assert (view.type, view.object_uuid, view.name) == ("create-view", dropped.object_uuid, "v")
    assert view.object_uuid
    assert dropped.type == "drop-view"
    assert [each.type for each in (made, changed, gone)] == ["create-namespace", "update-namespace", "drop-namespace"]
    assert (made.namespace, made.name) == ("a.b%2Ec", None)


def test_of_several_attempts_the_last_counts(changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    changes.run(tables.create_table, tables.NewTable(T, SCHEMA, None, None, None, {}))
    real, tries = changes.catalog.store.apply, 0

    async def apply(wanted: Any) -> list[object]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise PointerMoved("somebody was first")
        return await real(wanted)

    monkeypatch.setattr(changes.catalog.store, "apply", apply)
    (event,) = changes.run(commit_tables, [commit_of(T, a="b")])

    assert tries == 2
    assert event.after == changes.local.load("ns", "t")["metadata-location"]


def test_a_request_that_applied_something_is_not_refused_later(changes: Changes) -> None:
    caller = Caller("ann")
    change = CreateNamespace("default", "made", (), {}, "made")

    async def twice() -> None:
        await write(changes.catalog, caller, [change], StoredResponse(200))
        with pytest.raises(AlreadyExists):
            await write(changes.catalog, caller, [change], StoredResponse(200))

    changes.local.run(twice())

    assert not caller.progress.may_answer(409)
    assert caller.progress.may_answer(500)
