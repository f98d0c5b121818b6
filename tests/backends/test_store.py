"""What every store promises the catalog, whichever database keeps it."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nunatak.catalog import job_queue
from nunatak.catalog.job_queue import QueuedJob
from nunatak.catalog.table_properties import load_table_properties, update_table_properties
from nunatak.database.records import (
    AddJob,
    AdoptPointer,
    Change,
    ForgetAnswers,
    Kind,
    SaveAnswer,
    SavedAnswer,
    StoredResponse,
    Write,
)
from nunatak.database.store import KeyTaken, PointerMoved, Store
from nunatak.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchTable,
    NoSuchView,
)
from tests.backends.builders import (
    CATALOG,
    create_namespace,
    delete,
    drop_namespace,
    entry,
    insert,
    key,
    move,
    rename,
    stored,
    update_namespace,
)
from tests.backends.conftest import Run

ANY = Any


@pytest.fixture
def full(store: Store, run: Run[ANY]) -> Store:
    """Namespace `ns` with the table `t`."""
    run(store.apply([create_namespace(), insert("t")]))
    return store


def location_of(store: Store, run: Run[ANY], name: str, namespace: str = "ns") -> str | None:
    head = run(store.find_pointer(key(name, namespace), None))
    return None if head is None else head.metadata_location


def listed(
    store: Store, run: Run[ANY], kind: Kind, after: str = "", limit: int = 100, catalog: str = CATALOG
) -> list[str]:
    """The names of `ns`, from the JSON the store makes of them."""
    text, last, more = run(store.list_pointers(catalog, "ns", kind, after, limit, '{"of":"ns","name":'))
    entries = json.loads(f"[{text}]")
    assert all(entry["of"] == "ns" for entry in entries)
    names = [entry["name"] for entry in entries]
    assert not names or last == names[-1]
    assert not more or len(names) == limit
    return names


# Pointers


def test_a_pointer_comes_with_its_bytes_unless_the_caller_has_them(full: Store, run: Run[ANY]) -> None:
    there = insert("t").new

    head = run(full.find_pointer(key("t"), None))
    assert (head.metadata_location, head.kind, head.content) == (there.metadata_location, "TABLE", b"{}")
    assert run(full.find_pointer(key("t"), "file:///older")).content == b"{}"
    assert run(full.find_pointer(key("t"), there.metadata_location)).content is None
    assert run(full.find_pointer(key("no"), None)) is None
    assert run(full.find_pointer(key("t", "other"), None)) is None
    assert run(full.find_pointer(key("t", catalog="other"), None)) is None


def test_a_pointer_moves_only_from_where_it_is_expected(full: Store, run: Run[ANY]) -> None:
    """MISSION: 004-01, 004-11"""
    first, second, third = insert("t").new, stored("v2"), stored("v3")
    run(full.apply([move("t", first, second)]))
    assert location_of(full, run, "t") == second.metadata_location

    with pytest.raises(PointerMoved):
        run(full.apply([move("t", first, third)]))
    assert location_of(full, run, "t") == second.metadata_location
    with pytest.raises(NoSuchTable, match=re.escape("Table does not exist: ns.no")):
        run(full.apply([move("no", first, third)]))


def test_of_many_who_move_one_pointer_one_succeeds(full: Store, run: Run[ANY]) -> None:
    before = insert("t").new

    async def race() -> list[Any]:
        moves = [full.apply([move("t", before, stored(f"v{number}"))]) for number in range(2, 12)]
        return await asyncio.gather(*moves, return_exceptions=True)

    outcomes = run(race())

    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [PointerMoved] * 9
    winner = next(number for number, outcome in enumerate(outcomes, 2) if not isinstance(outcome, Exception))
    assert location_of(full, run, "t") == stored(f"v{winner}").metadata_location


def test_a_list_of_changes_happens_whole_or_not_at_all(full: Store, run: Run[ANY]) -> None:
    """MISSION: 000-37"""
    """MISSION: 004-10"""
    first = insert("t").new
    fine: list[Change] = [create_namespace("new"), insert("u"), move("t", first, stored("v2")), AddJob("purge", b"{}")]

    for position in range(len(fine) + 1):
        changes = [*fine[:position], delete("no"), *fine[position:]]
        with pytest.raises(NoSuchTable):
            run(full.apply(changes))
        assert location_of(full, run, "t") == first.metadata_location
        assert location_of(full, run, "u") is None
        assert not run(full.namespace_exists(CATALOG, "new"))
        assert run(full.next_job_time()) is None

    assert len(run(full.apply(fine))) == len(fine)
    assert location_of(full, run, "t") == stored("v2").metadata_location


def test_changes_that_arrive_together_each_have_their_own_outcome(full: Store, run: Run[ANY]) -> None:
    """They may share one commit of the database; one that fails takes nobody along."""

    async def together() -> list[Any]:
        changes: list[list[Change]] = [
            [insert(f"n{number}")] if number % 3 else [insert(f"n{number}"), delete("no")] for number in range(30)
        ]
        return await asyncio.gather(*(full.apply(change) for change in changes), return_exceptions=True)

    outcomes = run(together())

    for number, outcome in enumerate(outcomes):
        failed = number % 3 == 0
        assert isinstance(outcome, NoSuchTable) == failed
        assert (location_of(full, run, f"n{number}") is None) == failed


def test_a_name_is_given_once(full: Store, run: Run[ANY]) -> None:
    with pytest.raises(AlreadyExists, match=re.escape("Table already exists: ns.t")):
        run(full.apply([insert("t", location="file:///w/elsewhere")]))
    with pytest.raises(AlreadyExists, match=re.escape("Table with same name already exists: ns.t")):
        run(full.apply([insert("t", kind="VIEW", location="file:///w/elsewhere")]))
    with pytest.raises(NoSuchNamespace, match=re.escape("Namespace does not exist: no")):
        run(full.apply([insert("t", "no")]))


def test_a_kind_is_asked_for_and_told_apart(full: Store, run: Run[ANY]) -> None:
    run(full.apply([insert("v", kind="VIEW")]))

    assert [run(full.find_kind(key(name))) for name in ("t", "v", "no")] == ["TABLE", "VIEW", None]
    assert listed(full, run, "TABLE", "", 10, CATALOG) == ["t"]
    assert listed(full, run, "VIEW", "", 10, CATALOG) == ["v"]
    with pytest.raises(NoSuchView, match=re.escape("View does not exist: ns.t")):
        run(full.apply([delete("t", kind="VIEW")]))
    with pytest.raises(NoSuchTable, match=re.escape("Table does not exist: ns.v")):
        run(full.apply([delete("v")]))


def test_names_are_listed_in_order_from_where_one_left_off(full: Store, run: Run[ANY]) -> None:
    names = sorted(["A", "a", "a-b", "a.b", "a/b", "é", "🏔", "t"])
    run(full.apply([insert(name) for name in names if name != "t"]))

    assert listed(full, run, "TABLE", "", 100, CATALOG) == names
    assert listed(full, run, "TABLE", names[2], 3, CATALOG) == names[3:6]
    assert listed(full, run, "TABLE", names[-1], 3, CATALOG) == []
    assert listed(full, run, "TABLE", "", 100, "other") == []


def test_a_name_that_differs_only_in_case_is_found(full: Store, run: Run[ANY]) -> None:
    assert run(full.find_twin(key("T", "NS"))) == ("ns", "t")
    assert run(full.find_twin(key("u"))) is None


def test_a_rename_takes_everything_along(full: Store, run: Run[ANY]) -> None:
    before = run(full.find_pointer(key("t"), None))
    run(full.apply([create_namespace("other")]))

    run(full.apply([rename(key("t"), key("moved", "other"))]))

    assert run(full.find_pointer(key("moved", "other"), None)) == before
    assert run(full.find_pointer(key("t"), None)) is None
    assert [each.key for each in run(full.find_overlapping(insert("t").new.location, []))] == [key("moved", "other")]


def test_a_rename_that_cannot_be_changes_nothing(full: Store, run: Run[ANY]) -> None:
    run(full.apply([insert("u"), insert("v", kind="VIEW")]))
    cases = [
        (rename(key("no"), key("x")), NoSuchTable, "Table does not exist: ns.no"),
        (rename(key("t"), key("x"), "VIEW"), NoSuchView, "View does not exist: ns.t"),
        (rename(key("t"), key("t", "no")), NoSuchNamespace, "Namespace does not exist: no"),
        (rename(key("t"), key("u")), AlreadyExists, "Table already exists: ns.u"),
        (rename(key("t"), key("v")), AlreadyExists, "Cannot rename ns.t to ns.v. View already exists"),
        (rename(key("v"), key("t"), "VIEW"), AlreadyExists, "Cannot rename ns.v to ns.t. Table already exists"),
    ]
    for change, error, message in cases:
        with pytest.raises(error, match=re.escape(message)):
            run(full.apply([change]))
    assert listed(full, run, "TABLE", "", 10, CATALOG) == ["t", "u"]
    assert listed(full, run, "VIEW", "", 10, CATALOG) == ["v"]


def test_bytes_of_a_pointer_that_somebody_else_moved_are_adopted_unless_it_moved_again(
    full: Store, run: Run[ANY]
) -> None:
    newer = stored("v2", content=b"newer")

    run(full.apply([AdoptPointer(key("t"), newer, entry("external"))]))  # the pointer is still at v1: nothing to adopt
    assert run(full.find_pointer(key("t"), None)).content == b"{}"
    run(full.apply([move("t", insert("t").new, stored("v2", content=None))]))
    assert run(full.find_pointer(key("t"), None)).content is None
    run(full.apply([AdoptPointer(key("t"), newer, entry("external"))]))
    assert run(full.find_pointer(key("t"), None)).content == b"newer"


# Folders


def test_tables_whose_folders_touch_are_found_by_segments(full: Store, run: Run[ANY]) -> None:
    for name, location in [
        ("a", "file:///w/x"),
        ("b", "file:///w/x-2"),
        ("c", "file:///w/x2/y"),
        ("d", "file:///w/z/y"),
    ]:
        run(full.apply([insert(name, location=location)]))

    def names(location: str, *ancestors: str) -> set[str]:
        return {each.key.name for each in run(full.find_overlapping(location, ancestors))}

    assert names("file:///w/x") == {"a"}
    assert names("file:///w/z") == {"d"}
    assert names("file:///w/x2") == {"c"}
    assert names("file:///w/x/deep/er", "file:///w", "file:///w/x", "file:///w/x/deep") == {"a"}
    assert names("file:///w") == {"a", "b", "c", "d", "t"}
    assert names("file:///w/y") == set()


@pytest.mark.parametrize("location", ["file:///w/ns/t", "file:///w/ns/t/data", "file:///w/ns", "file:///w"])
def test_a_folder_that_touches_another_table_is_refused(full: Store, run: Run[ANY], location: str) -> None:
    """Decided in the transaction, so two creates at once cannot slip through."""
    with pytest.raises(BadRequest, match="overlaps"):
        run(full.apply([insert("u", location=location)]))
    run(full.apply([insert("u", location="file:///w/ns/t2")]))
    with pytest.raises(BadRequest, match="overlaps"):
        run(full.apply([move("u", insert("u", location="file:///w/ns/t2").new, stored("v2", location=location),
                             check_overlap=True)]))  # fmt: skip
    assert location_of(full, run, "u") == "file:///w/ns/t2/metadata/v1.json"


def test_the_same_table_may_be_registered_under_two_names(full: Store, run: Run[ANY]) -> None:
    with pytest.raises(BadRequest, match="overlaps"):  # but not made anew from its files
        run(full.apply([insert("twin", location="file:///w/ns/t", uuid="uuid-of-t")]))
    run(full.apply([insert("twin", location="file:///w/ns/t", uuid="uuid-of-t", registered=True)]))

    assert {each.key.name for each in run(full.find_overlapping("file:///w/ns/t", []))} == {"t", "twin"}


# Namespaces


def test_a_namespace_exists_by_itself_by_its_tables_and_by_its_children(full: Store, run: Run[ANY]) -> None:
    run(full.apply([create_namespace("a.b.c", "a", "a.b"), create_namespace("x.y")]))

    there = {
        name: run(full.namespace_exists(CATALOG, name))
        for name in ("ns", "a", "a.b", "a.b.c", "x", "x.y", "a.c", "b", "x-")
    }

    assert there == {"ns": True, "a": True, "a.b": True, "a.b.c": True, "x": True, "x.y": True,
                     "a.c": False, "b": False, "x-": False}  # fmt: skip
    assert not run(full.namespace_exists("other", "ns"))


def test_properties_of_a_namespace_are_kept_and_its_mark_is_hidden(store: Store, run: Run[ANY]) -> None:
    run(store.apply([create_namespace("ns", color="red", size="1")]))
    assert run(store.find_namespace(CATALOG, "ns")) == {"color": "red", "size": "1"}

    run(store.apply([update_namespace("ns", ("size", "none", "exists"), color="blue", new="yes")]))

    assert run(store.find_namespace(CATALOG, "ns")) == {"color": "blue", "new": "yes"}
    run(store.apply([update_namespace("ns", ("color", "new"))]))
    assert run(store.find_namespace(CATALOG, "ns")) == {}
    assert run(store.find_namespace(CATALOG, "no")) is None
    with pytest.raises(NoSuchNamespace):
        run(store.apply([update_namespace("no", a="b")]))


def test_a_namespace_is_created_once_and_dropped_empty(full: Store, run: Run[ANY]) -> None:
    run(full.apply([create_namespace("p.c", "p"), create_namespace("v"), insert("v", "v", kind="VIEW")]))

    for namespace in ("ns", "p", "p.c"):
        with pytest.raises(AlreadyExists, match=f"Namespace already exists: {re.escape(namespace)}$"):
            run(full.apply([create_namespace(namespace)]))
    for namespace, held in (("ns", "1 table(s)"), ("v", "1 view(s)"), ("p", "1 child namespace(s)")):
        with pytest.raises(NamespaceNotEmpty, match=re.escape(f"Namespace {namespace} is not empty. Contains {held}.")):
            run(full.apply([drop_namespace(namespace)]))
    run(full.apply([drop_namespace("p.c"), drop_namespace("p"), delete("t"), drop_namespace("ns")]))
    assert run(full.list_namespaces(CATALOG, "", "", 10)) == (["v"], None)
    with pytest.raises(NoSuchNamespace, match=re.escape("Namespace does not exist: ns")):
        run(full.apply([drop_namespace("ns")]))


def all_pages(store: Store, run: Run[ANY], parent: str, size: int) -> list[str]:
    found: list[str] = []
    after: str | None = ""
    for _ in range(1000):
        page, after = run(store.list_namespaces(CATALOG, parent, after or "", size))
        assert len(page) <= size
        found += page
        if after is None:
            return found
        assert page, "an empty page that is not the last"
    raise AssertionError("the list has no end")


LEVELS = [
    "a",
    "a-b",
    "a.b",
    "a.b.c",
    "a.c-d",
    "a/b",
    "a/",
    "a0",
    "b.c.d",
    "b.c/d",
    "c-.x",
    "c",
    "é.ö",
    "\U0010ffff",
    "🏔.x",
]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_children_are_listed_once_whatever_characters_sort_around_the_dot(
    store: Store, run: Run[ANY], size: int
) -> None:
    for name in LEVELS:
        run(store.apply([create_namespace(name)]))

    for parent in ("", "a", "a.b", "b", "b.c", "c", "c-", "a/", "é", "no"):
        prefix = f"{parent}." if parent else ""
        expected = {prefix + name[len(prefix) :].partition(".")[0] for name in LEVELS if name.startswith(prefix)} - {
            prefix
        }
        assert sorted(all_pages(store, run, parent, size)) == sorted(expected), parent


names = st.lists(
    st.text(st.sampled_from("ab-./0é\U0010ffff!~"), min_size=1, max_size=4).filter(lambda name: all(name.split("."))),
    max_size=12,
    unique=True,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=names, size=st.integers(1, 4))
def test_any_set_of_namespaces_is_listed_once(store: Store, run: Run[ANY], names: list[str], size: int) -> None:
    created = []
    for name in names:
        if not run(store.namespace_exists(CATALOG, name)):
            run(store.apply([create_namespace(name)]))
            created.append(name)
    try:
        assert sorted(all_pages(store, run, "", size)) == sorted({name.partition(".")[0] for name in created})
    finally:
        for name in sorted(created, key=lambda each: -each.count(".")):
            run(store.apply([drop_namespace(name)]))


# Idempotency keys


def test_an_answer_is_found_until_its_time_and_then_its_key_is_free(store: Store, run: Run[ANY]) -> None:
    first, second = StoredResponse(200, body=b"{}"), StoredResponse(204)
    run(store.apply([SaveAnswer("ann", "k", b"hash", first, now_ms=100, expires_ms=200)]))

    assert run(store.find_answer("ann", "k", 199)) == SavedAnswer(b"hash", first)
    assert run(store.find_answer("ann", "k", 200)) is None
    assert run(store.find_answer("bob", "k", 100)) is None
    assert run(store.find_answer("ann", "other", 100)) is None
    with pytest.raises(KeyTaken):
        run(store.apply([SaveAnswer("ann", "k", b"other", second, now_ms=199, expires_ms=250)]))
    assert run(store.find_answer("ann", "k", 199)) == SavedAnswer(b"hash", first)  # the first answer stands
    run(store.apply([SaveAnswer("ann", "k", b"other", second, now_ms=200, expires_ms=300)]))
    assert run(store.find_answer("ann", "k", 200)) == SavedAnswer(b"other", second)


def test_answers_whose_time_is_over_are_forgotten(store: Store, run: Run[ANY]) -> None:
    for number in range(5):
        run(store.apply([SaveAnswer("ann", f"k{number}", b"h", StoredResponse(204), 0, expires_ms=number * 100)]))

    run(store.apply([ForgetAnswers(200)]))

    assert [run(store.find_answer("ann", f"k{number}", -1)) is not None for number in range(5)] == [False] * 3 + [
        True
    ] * 2


def test_an_answer_is_kept_only_with_its_change(full: Store, run: Run[ANY]) -> None:
    with pytest.raises(NoSuchTable):
        run(full.apply([SaveAnswer("ann", "k", b"h", StoredResponse(204), 0, 100), delete("no")]))

    assert run(full.find_answer("ann", "k", 0)) is None


def a_move_with_a_key(now_ms: int) -> list[Change]:
    """What a commit with an idempotency key asks for: on its fast way, and then one that needs more than that."""
    answer = StoredResponse(200, metadata_location="file:///v2")
    return [move("t", insert("t").new, stored("v2")), SaveAnswer("ann", "k", b"h", answer, now_ms, now_ms + 100)]


KEYED: dict[str, Callable[[int], list[Change]]] = {
    "a commit": a_move_with_a_key,
    "a commit with work to follow": lambda now_ms: [*a_move_with_a_key(now_ms), AddJob("delete-files", b"{}")],
    "two tables": lambda now_ms: [insert("u"), *a_move_with_a_key(now_ms)],
    "a drop": lambda now_ms: [delete("t", purge=True), a_move_with_a_key(now_ms)[-1]],
    "a namespace": lambda now_ms: [create_namespace("new"), a_move_with_a_key(now_ms)[-1]],
}


@pytest.mark.parametrize("name", KEYED)
def test_a_change_whose_key_is_taken_does_not_happen(full: Store, run: Run[ANY], name: str) -> None:
    """Else a request sent to two servers at once would be carried out twice."""
    first = SavedAnswer(b"first", StoredResponse(204))
    run(full.apply([SaveAnswer("ann", "k", b"first", first.answer, now_ms=0, expires_ms=1000)]))

    with pytest.raises(KeyTaken):
        run(full.apply(KEYED[name](999)))

    assert location_of(full, run, "t") == insert("t").new.metadata_location
    assert location_of(full, run, "u") is None
    assert not run(full.namespace_exists(CATALOG, "new"))
    assert run(full.next_job_time()) is None
    assert run(full.find_answer("ann", "k", 999)) == first
    assert len(run(full.apply(KEYED[name](1000)))) == len(KEYED[name](1000))  # its time is over
    assert run(full.find_answer("ann", "k", 1000)).request_hash == b"h"


@pytest.mark.parametrize("name", KEYED)
def test_of_many_with_one_key_one_is_carried_out(full: Store, run: Run[ANY], name: str) -> None:
    async def together() -> list[Any]:
        return await asyncio.gather(*(full.apply(KEYED[name](0)) for _ in range(8)), return_exceptions=True)

    outcomes = run(together())

    # Those that come later meet what the first has done, or its key: whichever the database looks at first.
    assert len([outcome for outcome in outcomes if isinstance(outcome, list)]) == 1
    refusals = (KeyTaken, PointerMoved, NoSuchTable, AlreadyExists)
    assert all(isinstance(outcome, refusals) for outcome in outcomes if not isinstance(outcome, list))


def test_a_commit_is_found_by_table_snapshot_and_request(full: Store, run: Run[ANY]) -> None:
    line = entry("commit", snapshot_id=7, request_hash=b"h")
    run(full.apply([move("t", insert("t").new, stored("v2", uuid="u"), line=line)]))

    assert run(full.find_commit("u", 7, b"h"))
    assert not run(full.find_commit("u", 8, b"h"))
    assert not run(full.find_commit("u", 7, b"other"))
    assert not run(full.find_commit("other", 7, b"h"))


# Jobs


def lease(store: Store, run: Run[ANY], now_ms: int, owner: str = "me", until_ms: int = 10**15) -> QueuedJob | None:
    job: QueuedJob | None = run(job_queue.lease(store, "server", owner, now_ms, until_ms - now_ms))
    return job


def finish(job: QueuedJob, owner: str = "me") -> list[Change]:
    return [*job_queue.finish(job.job_id, owner, "done", now_ms=0), job_queue.forget_finished(job.job_id)]


def leased(store: Store, run: Run[ANY], now_ms: int, owner: str = "me", until_ms: int = 10**15) -> QueuedJob:
    job = lease(store, run, now_ms, owner, until_ms)
    assert job is not None
    return job


def test_jobs_come_in_order_when_they_are_due_and_stay_until_finished(store: Store, run: Run[ANY]) -> None:
    run(store.apply([AddJob("purge", b"1"), AddJob("delete-files", b"2")]))
    first = leased(store, run, 0)
    assert (first.kind, first.payload, first.attempts) == ("purge", b"1", 1)

    run(store.apply(job_queue.release(first.job_id, "me", 500, "disk full")))
    second = leased(store, run, 499)
    assert second.payload == b"2"
    assert run(store.next_job_time()) == 500
    run(store.apply(finish(second)))
    assert lease(store, run, 499) is None
    again = leased(store, run, 500)
    assert (again.payload, again.attempts) == (b"1", 2)
    run(store.apply(finish(again)))
    assert lease(store, run, 10**15) is None
    assert run(store.next_job_time()) is None


def test_a_job_belongs_to_one_server_until_its_lease_runs_out(store: Store, run: Run[ANY]) -> None:
    run(store.apply([AddJob("purge", b"1")]))
    job = leased(store, run, 0, "ann", until_ms=100)

    assert lease(store, run, 99, "bob") is None
    assert run(store.next_job_time()) == 100
    run(store.apply(job_queue.extend(job.job_id, "ann", 99, None, 101)))
    with pytest.raises(Conflict):
        run(store.apply(job_queue.extend(job.job_id, "bob", 99, None, 900)))
    assert lease(store, run, 199, "bob") is None
    taken_over = leased(store, run, 200, "bob")
    assert (taken_over.job_id, taken_over.attempts) == (job.job_id, 2)


def test_a_server_that_lost_its_lease_changes_nothing_about_the_job(store: Store, run: Run[ANY]) -> None:
    run(store.apply([AddJob("purge", b"1")]))
    job = leased(store, run, 0, "ann", until_ms=100)
    leased(store, run, 100, "bob", until_ms=200)

    for change in (
        [create_namespace("beside"), *finish(job, "ann")],
        job_queue.release(job.job_id, "ann", 900, "late"),
        job_queue.extend(job.job_id, "ann", 100, None, 900),
    ):
        with pytest.raises(Conflict):
            run(store.apply(change))

    assert not run(store.namespace_exists(CATALOG, "beside"))
    assert run(store.next_job_time()) == 200
    run(store.apply(finish(job, "bob")))
    assert run(store.next_job_time()) is None


def test_of_servers_that_ask_together_each_gets_a_job_of_its_own(store: Store, run: Run[ANY]) -> None:
    run(store.apply([AddJob("purge", str(number).encode()) for number in range(6)]))

    async def ask() -> list[Any]:
        return await asyncio.gather(*(job_queue.lease(store, "server", f"s{number}", 0, 100) for number in range(8)))

    jobs = run(ask())

    assert sorted(job.payload for job in jobs if job is not None) == [str(number).encode() for number in range(6)]
    assert jobs.count(None) == 2


def test_a_drop_with_purge_leaves_a_job_that_knows_the_table(full: Store, run: Run[ANY]) -> None:
    run(full.apply([delete("t", purge=True)]))

    job = leased(full, run, 0)
    assert job.kind == "purge"
    assert insert("t").new.metadata_location.encode() in job.payload
    run(full.apply([insert("t")]))
    run(full.apply([*finish(job), delete("t")]))
    assert run(full.next_job_time()) is None


def test_an_update_that_would_be_told_wrongly_changes_nothing(full: Store, run: Run[ANY]) -> None:
    """Which properties were removed is part of the answer, so it must still be true when they are."""
    run(full.apply([update_namespace("ns", a="1", b="2")]))
    before = run(full.find_namespace(CATALOG, "ns"))

    for removed in ((), ("a",), ("a", "b", "no")):
        with pytest.raises(PointerMoved):
            run(full.apply([replace(update_namespace("ns", removals=("a", "no", "b")), removed=removed)]))
        assert run(full.find_namespace(CATALOG, "ns")) == before
    run(full.apply([replace(update_namespace("ns", removals=("a", "no", "b")), removed=("a", "b"))]))
    assert {"a", "b"}.isdisjoint(run(full.find_namespace(CATALOG, "ns")) or {})


def test_a_drop_that_expects_another_pointer_changes_nothing(full: Store, run: Run[ANY]) -> None:
    """Whoever hands the metadata to a client must hand out what was dropped, not what was there before it."""
    there = insert("t").new.metadata_location

    with pytest.raises(PointerMoved):
        run(full.apply([replace(delete("t"), expected=there + ".old")]))
    head = run(full.find_pointer(key("t"), None))
    assert head is not None
    assert head.metadata_location == there
    run(full.apply([replace(delete("t"), expected=there)]))
    assert run(full.find_pointer(key("t"), None)) is None


# Secrets, readiness, search


def test_a_secret_is_made_once_and_differs_by_name(store: Store, run: Run[ANY]) -> None:
    first = run(store.secret("page-token"))

    assert len(first) == 32
    assert run(store.secret("page-token")) == first
    assert run(store.secret("another")) != first


def test_a_store_that_can_write_says_so(store: Store, run: Run[ANY]) -> None:
    run(store.check())


# Search


def test_a_search_looks_at_so_many_names_at_a_time(store: Store, run: Run[ANY]) -> None:
    """However many match; the next piece starts behind the last name that was looked at."""
    changes: list[Change] = [create_namespace("a"), create_namespace("B.c", "B")]
    changes += [insert(f"t{number}", "a") for number in range(5)]
    changes += [insert("Orders", "B.c"), insert("v", "B.c", kind="VIEW"), insert("last_order", "a")]
    run(store.apply(changes))

    def search(text: str, kind: Kind | None, after: tuple[str, str], piece: int) -> object:
        found, end = run(store.search_names(CATALOG, text, kind, after, piece))
        return [(each.kind, each.namespace, each.name) for each in found], end

    order, last = ("TABLE", "B.c", "Orders"), ("TABLE", "a", "last_order")
    assert search("order", None, ("", ""), 3) == ([order, last], ("a", "last_order"))
    assert search("ORDER", None, ("a", "last_order"), 3) == ([], ("a", "t2"))
    assert search("t", "TABLE", ("a", "t2"), 3) == ([("TABLE", "a", "t3"), ("TABLE", "a", "t4")], None)
    assert search("b.C", "VIEW", ("", ""), 100) == ([("VIEW", "B.c", "v")], None)
    assert search("", None, ("a", "t4"), 1) == ([], None)
    assert run(store.search_names("other", "", None, ("", ""), 10)) == ([], None)


def test_the_properties_of_a_table_in_the_catalog_follow_a_rename_and_go_with_a_drop(
    full: Store, run: Run[ANY]
) -> None:
    """No name is too long: four of 255 characters are more than a key of MariaDB may hold."""
    name = "n" * 255
    run(full.apply([rename(key("t"), key(name))]))
    values = {"catalog": CATALOG, "namespace": "ns", "name": name, "key": "k" * 255, "value": "v"}

    run(full.apply([Write("save_table_property", values), Write("save_table_property", {**values, "value": "w"})]))
    assert [tuple(row) for row in run(full.rows("table_properties", values))] == [("k" * 255, "w")]

    run(full.apply([rename(key(name), key("u"))]))
    assert run(full.rows("table_properties", values)) in ([], ())
    assert [tuple(row) for row in run(full.rows("table_properties", {**values, "name": "u"}))] == [("k" * 255, "w")]

    run(full.apply([delete("u")]))
    assert run(full.rows("table_properties", {**values, "name": "u"})) in ([], ())


def test_properties_of_a_table_are_those_of_its_uuid(full: Store, run: Run[ANY]) -> None:
    def properties(name: str) -> dict[str, str]:
        found: dict[str, str] = run(load_table_properties(full, key(name), "uuid-of-t"))
        return found

    def update(removals: tuple[str, ...] = (), **updates: str) -> None:
        changes = run(update_table_properties(full, key("t"), "uuid-of-t", updates, removals))
        run(full.apply(changes))

    update((), owner="ann", **{"k" * 255: "v" * 1000})
    update(("k" * 255,), owner="bo", tier="gold")

    assert properties("t") == {"owner": "bo", "tier": "gold"}
    assert properties("T") == {}
    run(full.apply([rename(key("t"), key("u"))]))
    assert (properties("t"), properties("u")) == ({}, {"owner": "bo", "tier": "gold"})
    run(full.apply([delete("u")]))
    assert properties("u") == {}
