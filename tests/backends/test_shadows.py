"""What every database keeps of shadows and of owners of places, and that no commit moves a shadow's pointer."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from nunatak.catalog import job_queue
from nunatak.catalog.shadows import Shadow, find_shadow, forget_shadow, list_shadows, set_shadow
from nunatak.database.records import (
    AddJob,
    Change,
    InsertPointer,
    Key,
    SaveAnswer,
    Stored,
    StoredResponse,
    Write,
)
from nunatak.database.store import PointerMoved, Store
from nunatak.errors import ShadowTable
from tests.backends.builders import CATALOG, create_namespace, delete, entry, insert, key, move, rename, stored
from tests.backends.conftest import Run

FIRST = insert("t").new
SHADOW = Shadow("hive:a.b", "shadow", 5)


def after(version: str = "v2") -> Stored:
    return stored(version, uuid=FIRST.table_uuid, location=FIRST.location)


@pytest.fixture
def shadowed(store: Store, run: Run[Any]) -> Store:
    flag = set_shadow(CATALOG, FIRST.table_uuid, SHADOW)
    run(store.apply([create_namespace(), insert("t"), insert("plain"), flag]))
    return store


def pointer(store: Store, run: Run[Any], name: str = "t") -> str | None:
    head = run(store.find_pointer(key(name), None))
    return None if head is None else head.metadata_location


ALONG: dict[str, list[Change]] = {
    "alone": [],
    "with a key": [SaveAnswer("ann", "k", b"h", StoredResponse(200), 1, 2)],
    "with a job": [AddJob("delete-files", b"{}")],
    "in a transaction": [Write("drop_shadow", {"catalog": CATALOG, "uuid": "nobody"})],
}


@pytest.mark.parametrize("along", ALONG)
def test_the_pointer_of_a_shadow_does_not_move(shadowed: Store, run: Run[Any], along: str) -> None:
    with pytest.raises(ShadowTable, match="shadow of hive:"):
        run(shadowed.apply([move("t", FIRST, after()), *ALONG[along]]))

    assert pointer(shadowed, run) == FIRST.metadata_location
    assert run(shadowed.find_answer("ann", "k", 1)) is None
    assert run(shadowed.next_job_time()) is None


def test_commits_that_go_to_the_database_together_are_refused_one_by_one(shadowed: Store, run: Run[Any]) -> None:
    other = insert("plain").new
    new = stored("v2", uuid=other.table_uuid, location=other.location)

    async def together() -> list[Any]:
        changes = [[move("t", FIRST, after())], [move("plain", other, new)]]
        return await asyncio.gather(*(shadowed.apply(each) for each in changes), return_exceptions=True)

    outcomes = run(together())

    assert isinstance(outcomes[0], ShadowTable)
    assert outcomes[1] == [None]
    assert pointer(shadowed, run, "plain") == new.metadata_location


def test_a_shadow_that_was_cut_over_moves(shadowed: Store, run: Run[Any]) -> None:
    cut_over = Shadow("hive:a.b", "cut-over", 99)
    run(shadowed.apply([set_shadow(CATALOG, FIRST.table_uuid, cut_over)]))

    run(shadowed.apply([move("t", FIRST, after())]))

    assert pointer(shadowed, run) == after().metadata_location
    assert run(find_shadow(shadowed, CATALOG, FIRST.table_uuid)) == Shadow("hive:a.b", "cut-over", 5)


def test_the_same_table_in_another_warehouse_is_no_shadow(shadowed: Store, run: Run[Any]) -> None:
    assert run(find_shadow(shadowed, "other", FIRST.table_uuid)) is None
    assert run(list_shadows(shadowed, "other")) == []


def test_a_refresh_moves_the_pointer_in_one_transaction_with_the_flag(shadowed: Store, run: Run[Any]) -> None:
    suspend = Write("suspend_shadow", {"catalog": CATALOG, "uuid": FIRST.table_uuid})
    run(shadowed.apply([suspend, move("t", FIRST, after()), set_shadow(CATALOG, FIRST.table_uuid, SHADOW)]))

    assert pointer(shadowed, run) == after().metadata_location
    assert run(find_shadow(shadowed, CATALOG, FIRST.table_uuid)) == SHADOW
    with pytest.raises(PointerMoved):  # and the suspension is undone with it
        run(shadowed.apply([suspend, move("t", FIRST, after("v3"))]))
    assert run(find_shadow(shadowed, CATALOG, FIRST.table_uuid)) == SHADOW


def test_a_shadow_is_listed_under_the_name_that_it_has_now(shadowed: Store, run: Run[Any]) -> None:
    run(shadowed.apply([rename(key("t"), key("u"))]))

    (found,) = run(list_shadows(shadowed, CATALOG))

    assert (found.key, found.table_uuid, found.shadow) == (key("u"), FIRST.table_uuid, SHADOW)


@pytest.mark.parametrize("purge", [False, True])
def test_the_flag_goes_with_the_table_and_a_purge_is_told_of_it(shadowed: Store, run: Run[Any], purge: bool) -> None:
    run(shadowed.apply([delete("t", purge=purge)]))

    assert run(find_shadow(shadowed, CATALOG, FIRST.table_uuid)) is None
    job = run(job_queue.lease(shadowed, "server", "me", 1, 1))
    assert isinstance(job, job_queue.QueuedJob) == purge
    if isinstance(job, job_queue.QueuedJob):
        assert msgspec.json.decode(job.payload)["shadow-of"] == "hive:a.b"
    run(shadowed.apply([insert("t", registered=True)]))  # no purge is in its way


def test_the_flag_stays_while_the_table_has_another_name(shadowed: Store, run: Run[Any]) -> None:
    twin = InsertPointer(key("twin"), "TABLE", FIRST, entry("register"), "ns.twin", "ns", registered=True)
    run(shadowed.apply([twin]))
    assert {Key(*row) for row in run(shadowed.rows("names_of_uuid", {"uuid": FIRST.table_uuid}))} == {
        key("t"),
        key("twin"),
    }

    run(shadowed.apply([delete("t"), forget_shadow(CATALOG, FIRST.table_uuid)]))
    assert run(find_shadow(shadowed, CATALOG, FIRST.table_uuid)) == SHADOW
    run(shadowed.apply([delete("twin")]))
    assert run(find_shadow(shadowed, CATALOG, FIRST.table_uuid)) is None


def test_a_drop_of_another_table_leaves_the_flag(shadowed: Store, run: Run[Any]) -> None:
    run(shadowed.apply([delete("plain", purge=True)]))

    job = run(job_queue.lease(shadowed, "server", "me", 1, 1))
    assert isinstance(job, job_queue.QueuedJob)
    assert msgspec.json.decode(job.payload)["shadow-of"] is None
    assert run(find_shadow(shadowed, CATALOG, FIRST.table_uuid)) == SHADOW


# Whose a place is


def test_owners_are_found_by_their_location_and_by_where_they_write(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace()]))
    for name, place in {"a": "file:///far/a", "b": "file:///far/a/b"}.items():
        new = Stored(f"file:///w/{name}/metadata/v1.json", name, f"file:///w/{name}", b"{}", (place,))
        run(store.apply([InsertPointer(key(name), "TABLE", new, entry("create"), name, "ns")]))
    asked = ["file:///w", "file:///w/a", "file:///far", "file:///far/a", "file:///far/a/b", "file:///W/a", "ä'\"\\"]

    rows = run(store.rows("owners_at", {"places": json.dumps(asked)}))

    assert {(Key(*row[:3]), row[3]) for row in rows} == {
        (key("a"), "file:///w/a"),
        (key("a"), "file:///far/a"),
        (key("b"), "file:///far/a/b"),
    }
    around = {"places": json.dumps(["file:///far"]), "first": "file:///far/a/", "behind": "file:///far/a0"}
    assert {Key(*row) for row in run(store.rows("writers_around", around))} == {key("b")}
    at = {"places": json.dumps(["file:///far/a"]), "first": "file:///x/", "behind": "file:///x0"}
    assert {Key(*row) for row in run(store.rows("writers_around", at))} == {key("a")}


def test_a_job_for_later_waits_for_its_time(store: Store, run: Run[Any]) -> None:
    run(store.apply([AddJob("remove-staged", b"{}", 50)]))

    assert run(store.next_job_time()) == 50
    assert run(job_queue.lease(store, "server", "me", 49)) is None
    job = run(job_queue.lease(store, "server", "me", 50))
    assert isinstance(job, job_queue.QueuedJob)
    assert (job.kind, job.payload) == ("remove-staged", b"{}")
