"""Policies and maintenance jobs as every database keeps them."""

import asyncio
from typing import Any

import pytest

from nunatak.access import securables
from nunatak.access.administration import Actor
from nunatak.catalog import job_queue
from nunatak.catalog.job_queue import LEASE_MS, MAX_ATTEMPTS, QueuedJob
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import Conflict, NotFound
from nunatak.maintenance import policy_store
from nunatak.maintenance.job_spec import JobSpec, JobType
from nunatak.maintenance.planning import HOUR_MS
from nunatak.maintenance.policies import Attached
from nunatak.maintenance.worker_jobs import add_job, find_open
from tests.backends.conftest import Run
from tests.unit.maintenance.builders import policy

ANN = Actor("ann", 1000, "r-1")
HOME = securables.warehouse("default")
SALES = securables.namespace("default", ("sales",))
DEEP = securables.namespace("default", ("sales", "deep"))
ORDERS = securables.entry("default", ("sales",), "orders")
ORDERS_2 = securables.entry("default", ("sales",), "orders2")
ELSEWHERE = securables.warehouse("elsewhere")


def places(found: list[Attached]) -> list[tuple[str, str]]:
    return [(each.securable, each.policy.type) for each in found]


@pytest.fixture
def full(store: Store, run: Run[Any]) -> Store:
    """One policy of two types on each of the places."""
    for place in (HOME, SALES, DEEP, ORDERS, ORDERS_2, ELSEWHERE):
        for kind in ("statistics", "snapshot-expiry"):
            run(store.apply(policy_store.set_policy(ANN, place, policy(kind))))
    return store


def test_a_policy_is_what_it_was_set_to(store: Store, run: Run[Any]) -> None:
    wanted = policy("data-compaction", strategy="sort", columns=["größe", "a'b"], note='ü ␟ \\ "quoted"')
    run(store.apply(policy_store.set_policy(ANN, ORDERS, policy("data-compaction"))))
    run(store.apply(policy_store.set_policy(ANN, ORDERS, wanted)))

    (found,) = run(policy_store.policies_around(store, ORDERS))

    assert found == Attached(ORDERS, wanted, "ann", 1000)


def test_policies_are_found_around_and_inside(full: Store, run: Run[Any]) -> None:
    around = run(policy_store.policies_around(full, ORDERS))
    inside = run(policy_store.policies_inside(full, SALES))
    only = run(policy_store.policies_inside(full, ORDERS))

    assert {place for place, _ in places(around)} == {HOME, SALES, ORDERS}
    assert places(inside) == sorted(places(inside))
    assert {place for place, _ in places(inside)} == {SALES, DEEP, ORDERS, ORDERS_2}
    assert places(only) == [(ORDERS, "snapshot-expiry"), (ORDERS, "statistics")]


def test_pages_of_policies_make_the_whole_list(full: Store, run: Run[Any]) -> None:
    whole = run(policy_store.policies_inside(full, HOME))
    pages: list[Attached] = []
    after = ("", "")
    while page := run(policy_store.policies_inside(full, HOME, after, 3)):
        pages += page
        after = (page[-1].securable, page[-1].policy.type)

    assert pages == whole
    assert len(whole) == 10


def test_a_dropped_policy_is_gone_and_cannot_be_dropped_again(full: Store, run: Run[Any]) -> None:
    run(full.apply(policy_store.drop_policy(ANN, ORDERS, "statistics")))

    assert places(run(policy_store.policies_inside(full, ORDERS))) == [(ORDERS, "snapshot-expiry")]
    with pytest.raises(NotFound):
        run(full.apply(policy_store.drop_policy(ANN, ORDERS, "statistics")))
    rows = run(full.rows("audit_after", {"after": 0, "last": 1 << 60, "limit": 100}))
    assert [row[3] for row in rows].count("drop-policy") == 1, "a refused change leaves no record"


def test_policies_move_and_are_forgotten_with_what_they_are_about(full: Store, run: Run[Any]) -> None:
    run(full.apply([Write("forget_policies_on", {"securable": ORDERS_2})]))
    run(full.apply([Write("move_policies", {"securable": ORDERS, "to_securable": ORDERS_2})]))
    moved = run(policy_store.policies_inside(full, SALES))
    run(full.apply([Write("forget_policies_inside", {"securable": SALES, "behind": SALES + securables.BEHIND})]))

    assert {place for place, _ in places(moved)} == {SALES, DEEP, ORDERS_2}
    assert {place for place, _ in places(run(policy_store.policies_inside(full, HOME)))} == {HOME}
    assert len(run(policy_store.policies_inside(full, ELSEWHERE))) == 2


async def _together(store: Store, *changes: list[Any]) -> list[Any]:
    return await asyncio.gather(*(store.apply(each) for each in changes), return_exceptions=True)


def test_one_of_many_who_set_a_policy_at_once_is_the_last(store: Store, run: Run[Any]) -> None:
    wanted = [policy("snapshot-expiry", min_snapshots_to_keep=count) for count in range(1, 9)]

    results = run(_together(store, *(policy_store.set_policy(ANN, SALES, each) for each in wanted)))

    assert not [each for each in results if isinstance(each, BaseException)]
    (found,) = run(policy_store.policies_inside(store, SALES))
    assert found.policy in wanted


# Jobs


def spec(table: str = "orders", kind: JobType = "statistics") -> JobSpec:
    return JobSpec(type=kind, warehouse="default", namespace=["sales"], table=table, table_uuid=f"uuid-of-{table}")


def add(store: Store, run: Run[Any], wanted: JobSpec, policy: str | None = None, size_bytes: int = 0) -> int:
    run(store.apply(add_job(ANN, wanted, policy, size_bytes)))
    job_id = run(find_open(store, wanted))
    assert isinstance(job_id, int)
    return job_id


def lease(store: Store, run: Run[Any], owner: str, now_ms: int = 2000, place: str = HOME) -> QueuedJob | None:
    found: QueuedJob | None = run(job_queue.lease(store, "worker", owner, now_ms, securable=place))
    return found


def test_a_job_goes_to_one_worker_which_finishes_it(store: Store, run: Run[Any]) -> None:
    job_id = add(store, run, spec())

    leased = lease(store, run, "one")
    other = lease(store, run, "two")
    run(store.apply(job_queue.extend(job_id, "one", 3000, {"done": 1, "of": 2})))
    halfway = run(job_queue.find_job(store, "worker", job_id))
    run(
        store.apply(
            job_queue.finish(job_id, "one", "done", now_ms=4000, changed=True, size_bytes=7, result={"files": 1})
        )
    )
    over = run(job_queue.find_job(store, "worker", job_id))

    assert leased is not None
    assert (leased.job_id, leased.state, leased.attempts, leased.leased_by) == (job_id, "running", 1, "one")
    assert other is None
    assert (halfway.progress, halfway.due_ms) == ('{"done":1,"of":2}', 3000 + LEASE_MS)
    assert (over.state, over.changed, over.size_bytes, over.result) == ("done", True, 7, '{"files":1}')
    assert lease(store, run, "two", 10**9) is None


def test_of_one_type_one_job_waits_for_a_table(store: Store, run: Run[Any]) -> None:
    add(store, run, spec())

    with pytest.raises(Conflict):
        run(store.apply(add_job(ANN, spec(), None, 0)))
    add(store, run, spec(kind="snapshot-expiry"))
    add(store, run, spec("other"))

    assert len(run(job_queue.list_jobs(store, HOME, 1 << 60, 10))) == 3


def test_one_worker_works_on_a_table_at_a_time(store: Store, run: Run[Any]) -> None:
    first = add(store, run, spec())
    second = add(store, run, spec(kind="snapshot-expiry"))
    third = add(store, run, spec("other"))

    leased = [lease(store, run, owner) for owner in ("one", "two", "three")]
    run(store.apply(job_queue.finish(first, "one", "failed", now_ms=2500, error="no")))
    after = lease(store, run, "three", 3000)

    assert [each and each.job_id for each in leased] == [first, third, None]
    assert after is not None
    assert after.job_id == second


def test_a_job_whose_worker_died_is_handed_on_and_the_dead_one_is_told(store: Store, run: Run[Any]) -> None:
    job_id = add(store, run, spec())
    lease(store, run, "dead", 2000)

    too_early = lease(store, run, "next", 2000 + LEASE_MS - 1)
    taken = lease(store, run, "next", 2000 + LEASE_MS)

    assert too_early is None
    assert taken is not None
    assert (taken.job_id, taken.attempts) == (job_id, 2)
    for changes in (
        job_queue.extend(job_id, "dead", 3000, None),
        job_queue.finish(job_id, "dead", "done", now_ms=3000),
        job_queue.release(job_id, "dead", 3000),
    ):
        with pytest.raises(Conflict):
            run(store.apply(changes))
    run(store.apply(job_queue.finish(job_id, "next", "done", now_ms=4000)))


def test_a_job_that_takes_every_worker_with_it_is_given_up(store: Store, run: Run[Any]) -> None:
    job_id = add(store, run, spec())
    now_ms = 2000
    for _ in range(MAX_ATTEMPTS):
        assert lease(store, run, "doomed", now_ms) is not None
        now_ms += LEASE_MS

    assert lease(store, run, "doomed", now_ms) is None
    over = run(job_queue.find_job(store, "worker", job_id))
    assert over.state == "failed"
    assert "given up" in over.error
    add(store, run, spec())


def test_a_worker_that_stops_hands_its_job_back_at_once(store: Store, run: Run[Any]) -> None:
    job_id = add(store, run, spec())
    lease(store, run, "one")
    run(store.apply(job_queue.release(job_id, "one", 2500)))

    taken = lease(store, run, "two", 2500)

    assert taken is not None
    assert taken.job_id == job_id


def test_a_job_that_was_handed_back_is_not_nearer_to_being_given_up(store: Store, run: Run[Any]) -> None:
    job_id = add(store, run, spec())
    for _ in range(MAX_ATTEMPTS + 1):
        assert lease(store, run, "one") is not None
        run(store.apply(job_queue.release(job_id, "one", 2000)))

    taken = lease(store, run, "two")

    assert taken is not None
    assert taken.attempts == 1


def test_a_lease_that_ran_out_cannot_be_extended_beside_another_job_of_the_table(store: Store, run: Run[Any]) -> None:
    first = add(store, run, spec())
    lease(store, run, "slow", 2000)
    second = add(store, run, spec(kind="snapshot-expiry"))
    late = 2000 + LEASE_MS

    taken = run(job_queue.lease_this(store, "other", run(job_queue.find_job(store, "worker", second)), late))

    assert taken.job_id == second
    with pytest.raises(Conflict):
        run(store.apply(job_queue.extend(first, "slow", late, None)))
    assert lease(store, run, "third", late) is None, "one worker works on the table"


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_by_its_worker(store: Store, run: Run[Any]) -> None:
    waiting, running = add(store, run, spec("a")), add(store, run, spec("b"))
    run(store.apply(job_queue.cancel(ANN, run(job_queue.find_job(store, "worker", waiting)))))
    lease(store, run, "one")
    run(store.apply(job_queue.cancel(ANN, run(job_queue.find_job(store, "worker", running)))))

    assert run(job_queue.find_job(store, "worker", waiting)).state == "cancelled"
    told = run(job_queue.find_job(store, "worker", running))
    assert (told.state, told.cancelled) == ("running", True)
    assert lease(store, run, "two", 2000 + LEASE_MS) is None, "a cancelled job is not begun again"
    assert run(job_queue.find_job(store, "worker", running)).state == "cancelled"
    with pytest.raises(Conflict):
        job_queue.cancel(ANN, run(job_queue.find_job(store, "worker", running)))


def test_a_worker_is_given_jobs_of_its_own_place_alone(store: Store, run: Run[Any]) -> None:
    job_id = add(store, run, spec())

    assert lease(store, run, "one", place=ELSEWHERE) is None
    assert lease(store, run, "one", place=DEEP) is None
    found = lease(store, run, "one", place=ORDERS)
    assert found is not None
    assert found.job_id == job_id


def test_what_a_policy_uses_is_counted_within_the_hour(store: Store, run: Run[Any]) -> None:
    done = add(store, run, spec("a"), HOME, 100)
    lease(store, run, "one")
    run(store.apply(job_queue.finish(done, "one", "done", now_ms=5000, size_bytes=40)))
    add(store, run, spec("b"), HOME, 7)
    add(store, run, spec("c"), SALES, 9)
    add(store, run, spec("d"), None, 1)

    def used(now_ms: int) -> dict[str, tuple[int, int]]:
        rows = run(store.rows("load_of_policies", {"since_ms": now_ms - HOUR_MS}))
        return {row[0]: (int(row[2]), int(row[3])) for row in rows}

    assert used(6000) == {HOME: (1, 47), SALES: (1, 9)}
    assert used(5001 + HOUR_MS) == {HOME: (1, 7), SALES: (1, 9)}


def test_jobs_come_newest_first_page_by_page(store: Store, run: Run[Any]) -> None:
    added = [add(store, run, spec(name)) for name in "abcde"]

    first = run(job_queue.list_jobs(store, SALES, 1 << 60, 3))
    rest = run(job_queue.list_jobs(store, SALES, first[-1].job_id, 3))

    assert [each.job_id for each in (*first, *rest)] == added[::-1]


async def _lease_together(store: Store, workers: int, now_ms: int) -> list[QueuedJob | None]:
    return await asyncio.gather(
        *(job_queue.lease(store, "worker", f"w{each}", now_ms, securable=HOME) for each in range(workers))
    )


def test_workers_that_ask_at_once_never_share_a_table(store: Store, run: Run[Any]) -> None:
    kinds: tuple[JobType, ...] = ("statistics", "snapshot-expiry", "orphan-removal")
    for table in "abcd":
        for kind in kinds:
            add(store, run, spec(table, kind))

    now_ms, finished = 2000, 0
    for _ in range(30):
        leased = [each for each in run(_lease_together(store, 6, now_ms)) if each is not None]
        tables = [each.table_uuid for each in leased]
        assert len(tables) == len(set(tables))
        for each in leased:
            assert each.leased_by is not None
            run(store.apply(job_queue.finish(each.job_id, each.leased_by, "done", now_ms=now_ms)))
        finished += len(leased)
        now_ms += 10
        if finished == 12:
            break

    assert finished == 12


def test_two_jobs_of_a_table_that_are_taken_at_once_go_to_one_worker(store: Store, run: Run[Any]) -> None:
    """The moment that `lease` hardly ever meets: each looks for the other's lease before either is there."""
    for number in range(10):
        table = f"t{number}"
        pair = [add(store, run, spec(table, "statistics")), add(store, run, spec(table, "snapshot-expiry"))]
        changes = [job_queue.take(job_id, f"uuid-of-{table}", f"w{job_id}", 2000) for job_id in pair]

        results = run(_together(store, *changes))

        assert sorted(isinstance(each, Conflict) for each in results) == [False, True], results
