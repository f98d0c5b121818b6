"""Each change has its event in the outbox, stored by its own transaction; what changes nothing has none."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nunatak.catalog import namespaces, tables, views
from nunatak.catalog.catalog import Caller
from nunatak.catalog.commits import commit_tables, commit_transaction, table_commit
from nunatak.catalog.write import write
from nunatak.database.records import CreateNamespace, StoredResponse
from nunatak.database.store import PointerMoved
from nunatak.errors import AlreadyExists
from nunatak.events.change_events import ChangeEvent
from nunatak.events.outbox import events_after
from nunatak.iceberg import commit_request
from nunatak.iceberg.identifiers import Identifier
from tests.api.test_request_events import spooled
from tests.api.wire import SCHEMA, a_version, done, ok, path_of
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
        before = self.newest()

        async def call() -> None:
            await function(self.catalog, self.warehouse, caller, *arguments, **named)

        self.local.run(call())
        events = self.since(before)
        for event in events:
            assert (event.principal, event.request_id, event.warehouse) == ("ann", "r-1", "default")
            assert event.at_ms > 1_700_000_000_000
        return events

    def newest(self) -> int:
        events = self.since(0)
        return events[-1].position if events else 0

    def since(self, position: int) -> Sequence[ChangeEvent]:
        return self.local.run(events_after(self.catalog.store, position))


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
    assert committed.detail.metadata_bytes == size
    assert (renamed.name, renamed.detail.renamed_to) == ("t", "ns.u")
    assert renamed.before == renamed.after == committed.after
    assert unregistered.object_uuid == created.object_uuid
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


# Changes that no request of a table, view or namespace makes


def test_a_commit_by_another_client_of_the_database_has_an_event_once_it_is_noticed(changes: Changes) -> None:
    created = changes.local.table("ns", "t")
    before = changes.newest()
    known = Path(created["metadata-location"].removeprefix("file://"))
    moved = known.with_name("00001-by-jdbc.metadata.json")
    moved.write_bytes(known.read_bytes())
    changes.local.rows("UPDATE iceberg_tables SET metadata_location = ?", f"file://{moved}")

    for _ in range(2):
        changes.local.load("ns", "t")

    (event,) = changes.since(before)
    assert (event.type, event.principal, event.namespace, event.name) == ("external", "external", "ns", "t")
    assert (event.before, event.after) == (created["metadata-location"], f"file://{moved}")
    assert event.object_uuid == created["metadata"]["table-uuid"]
    assert spooled(changes.local)[-1]["event_id"] == event.event_id


def test_the_work_of_a_background_job_has_its_event(changes: Changes) -> None:
    changes.local.table("ns", "t")
    done(changes.local.call("DELETE", path_of("ns", "tables", "t") + "?purgeRequested=true"))
    before = changes.newest()

    assert changes.local.work_off_jobs() == 1

    (event,) = changes.since(before)
    assert (event.type, event.principal, event.securable) == ("purge", "nunatak", "default\x1fns.\x1et")
    assert spooled(changes.local, "audit")[-1]["action"] == "purge"


def test_management_changes_have_their_events(tmp_path: Path) -> None:
    catalog = LocalCatalog(tmp_path / "data", auth=True)
    try:
        before = len(catalog.rows("SELECT 1 FROM nunatak_outbox"))
        sent = [
            ("POST", "principals", {"name": "bob"}),
            ("POST", "roles", {"name": "etl"}),
            ("POST", "roles/etl/members", {"principal": "bob"}),
            ("POST", "grants", {"grantee": "principal:bob", "securable": "server", "privileges": ["NS_LIST"]}),
        ]
        for method, path, body in sent:
            answer = catalog.call(method, f"/management/v1/{path}", body, {"User-Agent": "curl", "X-Request-ID": path})
            assert answer.status < 300, (path, answer.body)
        assert catalog.call("POST", "/management/v1/principals", {"name": "bob"}).status == 409

        events = catalog.run(events_after(catalog.app.catalog.store, before))
        told = [(each.type, each.principal, each.request_id, each.namespace) for each in events]
        assert told == [
            ("create-principal", "root", "principals", None),
            ("create-role", "root", "roles", None),
            ("add-member", "root", "roles/etl/members", None),
            ("grant", "root", "grants", None),
        ]
        lines = [line for line in spooled(catalog, "audit") if line["event_id"] in {each.event_id for each in events}]
        assert [line["action"] for line in lines] == [each.type for each in events]
        assert {(line["client"], line["detail"]) for line in lines} == {("curl", None)}
    finally:
        catalog.close()


def test_every_logged_change_and_every_audit_row_of_a_change_has_one_event(tmp_path: Path) -> None:
    """Whoever makes a change: what the audit trail records of it is in the outbox, and nothing else is."""
    catalog = LocalCatalog(tmp_path / "data", auth=True)
    try:
        catalog.namespace("ns")
        catalog.table("ns", "t")
        ok(catalog.commit("ns", "t", {"requirements": [], "updates": []}))
        done(catalog.call("DELETE", path_of("ns", "tables", "t")))
        assert catalog.call("DELETE", path_of("ns", "tables", "t")).status == 404
        logged = catalog.rows("SELECT operation FROM nunatak_commits UNION ALL SELECT action FROM nunatak_audit")
        assert catalog.rows("SELECT type FROM nunatak_outbox ORDER BY type") == sorted(logged)
    finally:
        catalog.close()
