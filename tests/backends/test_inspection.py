"""What every database tells an inspection of the whole catalog, and what it forgets when asked to."""

import itertools
from typing import Any

from nunatak.catalog import job_queue
from nunatak.database.records import AddJob, ForgetPointer, Key, LogLine, SaveAnswer, Stored, StoredResponse
from nunatak.database.store import Store
from tests.backends.builders import create_namespace, delete, insert, key, move, rename, stored
from tests.backends.conftest import Run

START = Key("", "", "")


def all_keys(store: Store, run: Run[Any], page: int) -> list[Key]:
    found: list[Key] = []
    while keys := run(store.keys_after(found[-1] if found else START, page)):
        assert len(keys) <= page
        found += keys
    return found


def test_every_name_is_listed_once_in_order(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace("a"), create_namespace("a-b"), create_namespace("b")]))
    names = [("b", "t"), ("a", "z"), ("a-b", "t"), ("a", "Z"), ("a", "ä")]
    run(store.apply([insert(name, namespace) for namespace, name in names]))

    wanted = [key(name, namespace) for namespace, name in sorted(names)]

    assert all_keys(store, run, 2) == wanted
    assert all_keys(store, run, 100) == wanted


def test_a_pointer_is_told_with_what_is_stored_beside_it(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), insert("t"), insert("v", kind="VIEW")]))
    first = stored(uuid="uuid-of-t", location="file:///w/ns/t")
    second = stored("v2", uuid="uuid-of-t", location="file:///w/ns/t", content=b"bytes")
    run(store.apply([move("t", first, second)]))

    table, view = run(store.inspect_pointer(key("t"))), run(store.inspect_pointer(key("v")))

    assert table is not None
    assert (table.metadata_location, table.previous_metadata_location) == (
        second.metadata_location,
        first.metadata_location,
    )
    assert (table.kind, table.namespace_marked) == ("TABLE", True)
    assert table.stored == Stored(second.metadata_location, "uuid-of-t", "file:///w/ns/t", b"bytes")
    assert view is not None
    assert view.kind == "VIEW"
    assert run(store.inspect_pointer(key("nobody"))) is None


def test_only_what_has_no_pointer_is_forgotten(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), insert("t")]))
    before = run(store.inspect_pointer(key("t")))

    run(store.apply([ForgetPointer(key("t")), ForgetPointer(key("nobody"))]))

    assert run(store.inspect_pointer(key("t"))) == before


def test_the_commit_log_of_a_table_is_read_in_pages(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), insert("t"), insert("other")]))
    files = [stored(f"v{number}", uuid="uuid-of-t", location="file:///w/ns/t") for number in range(1, 6)]
    for before, after in itertools.pairwise(files):
        run(store.apply([move("t", before, after)]))
    run(store.apply([rename(key("t"), key("u"))]))
    run(store.apply([delete("u")]))

    lines: list[LogLine] = []
    while page := run(store.commits_of("uuid-of-t", lines[-1].sequence if lines else 0, 3)):
        lines += page

    assert [(each.operation, each.name) for each in lines] == [
        ("create", "t"),
        *[("commit", "t")] * 4,
        ("rename", "u"),
        ("drop", "u"),
    ]
    places = [each.metadata_location for each in files]
    assert [each.metadata_location for each in lines] == [*places, places[-1], None]
    assert [each.previous_metadata_location for each in lines] == [None, *places[:-1], places[-1], places[-1]]


def test_a_pointer_is_found_by_its_files_name(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), insert("t")]))
    run(store.apply([move("t", stored(location="file:///w/ns/t"), stored("v2", location="file:///w/ns/t"))]))

    asked = {name: run(store.points_at(name)) for name in ("v1.json", "v2.json", "v3.json", "2.json")}

    assert asked == {"v1.json": True, "v2.json": True, "v3.json": False, "2.json": False}


def test_stock_counts_what_should_have_gone_by_itself(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), insert("t")]))
    for number in range(3):
        answer = SaveAnswer("ann", f"key-{number}", b"hash", StoredResponse(204), 0, 1000 + number)
        run(store.apply([answer]))
    run(store.apply([AddJob("purge", b"{}"), AddJob("delete-files", b"{}")]))
    for attempt in range(3):  # a job whose server was lost comes after those that were due before
        run(job_queue.lease(store, "server", "a", attempt, 1))

    summary = run(store.summarize(1001, 2))

    assert (summary.pointers, summary.expired_answers) == (1, 2)
    assert [(job.kind, job.attempts, job.last_error) for job in summary.stuck_jobs] == [("purge", 2, None)]
    assert run(store.summarize(0, 3)).stuck_jobs == ()
