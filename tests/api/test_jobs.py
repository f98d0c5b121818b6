"""Work that follows a change: leased by one server, kept alive while it takes, and handed on when that server stops."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nunatak.catalog import job_queue, jobs
from nunatak.database.records import Change, ForgetAnswers, Write
from nunatak.errors import InternalError, ServiceUnavailable
from tests.api.wire import a_commit, ok, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog, metadata_file

JOBS = "SELECT leased_by, attempts, not_before_ms, last_error FROM nunatak_jobs"


def purged(catalog: LocalCatalog, name: str = "t") -> Any:
    """A table that is dropped, its files still to be deleted."""
    table = catalog.table("ns", name)
    assert catalog.call("DELETE", f"{path_of('ns', 'tables', name)}?purgeRequested=true").status == 204
    return table


class SlowDeletes:
    """Deletes that wait until they are let go."""

    def __init__(self, catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self._delete = catalog.app.catalog.objects.delete
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(catalog.app.catalog.objects, "delete", self.delete)

    async def delete(self, location: str) -> None:
        self.begun.set()
        await self.go_on.wait()
        await self._delete(location)


def test_a_long_job_stays_with_its_server(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "HEARTBEAT_SECONDS", 0.01)
    table = purged(catalog)
    slow = SlowDeletes(catalog, monkeypatch)
    me = catalog.app.catalog.server_id

    async def watch() -> list[int]:
        working = asyncio.create_task(jobs.run_next(catalog.app.catalog))
        await slow.begun.wait()
        until = []
        for _ in range(3):
            catalog.clock.added_ms += 60_000  # no lease was given for longer than one and a half of these
            until.append(0)
            for _ in range(500):  # however long the disk takes for a heartbeat
                await asyncio.sleep(0.01)
                ((owner, attempts, lease_ends_ms, _),) = catalog.rows(JOBS)
                assert (owner, attempts) == (me, 1)
                until[-1] = lease_ends_ms - catalog.app.catalog.now_ms()
                if until[-1] > 60_000:
                    break
        slow.go_on.set()
        assert await working
        return until

    assert all(left_ms > 60_000 for left_ms in catalog.run(watch()))
    assert catalog.rows(JOBS) == []
    assert not metadata_file(table).exists()


def test_a_server_that_stops_hands_its_job_on_at_once(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = purged(catalog)

    async def stop_midway() -> None:
        slow = SlowDeletes(catalog, monkeypatch)
        working = asyncio.create_task(jobs.run_jobs(catalog.app.catalog))
        await slow.begun.wait()
        working.cancel()
        await asyncio.wait([working])
        monkeypatch.undo()

    catalog.run(stop_midway())

    ((owner, attempts, due_ms, error),) = catalog.rows(JOBS)
    assert (owner, attempts, error) == (None, 0, None), "an attempt that the server ended does not count"
    assert due_ms <= catalog.app.catalog.now_ms()
    assert catalog.work_off_jobs() == 1
    assert not metadata_file(table).exists()


def test_the_job_of_a_server_that_was_killed_waits_for_nobody_on_sqlite(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server knows that the last is gone: two cannot have the file open."""
    table = purged(catalog)

    async def die_midway() -> None:
        slow = SlowDeletes(catalog, monkeypatch)
        working = asyncio.create_task(jobs.run_next(catalog.app.catalog))
        await slow.begun.wait()
        monkeypatch.setattr(catalog.store, "apply", None)  # nothing more is heard of it
        working.cancel()
        await asyncio.wait([working])
        monkeypatch.undo()

    catalog.run(die_midway())
    assert catalog.rows(JOBS)[0][0] is not None
    catalog.restart()

    assert catalog.work_off_jobs() == 1
    assert not metadata_file(table).exists()


def test_a_server_that_slept_through_its_lease_deletes_nothing_any_more(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has done the job meanwhile, and the same files may have been put back since."""
    monkeypatch.setattr(jobs, "DELETES_AT_ONCE", 1)
    catalog.table("ns", "t")
    files = [metadata_file(catalog.load("ns", "t"))]
    for number in range(3):
        ok(catalog.commit("ns", "t", a_commit(set_properties(number=str(number)))))
        files.append(metadata_file(catalog.load("ns", "t")))
    assert catalog.call("DELETE", f"{path_of('ns', 'tables', 't')}?purgeRequested=true").status == 204
    deleted = catalog.app.catalog.objects.delete

    async def sleep_too_long(location: str) -> None:
        await deleted(location)
        catalog.clock.added_ms += job_queue.LEASE_MS

    monkeypatch.setattr(catalog.app.catalog.objects, "delete", sleep_too_long)

    assert catalog.run(jobs.run_next(catalog.app.catalog))
    assert [file.exists() for file in files].count(False) == 1
    monkeypatch.undo()
    catalog.clock.added_ms += 10_000
    assert catalog.work_off_jobs() == 1
    assert [file.exists() for file in files] == [False] * 4


def test_a_job_that_fails_is_tried_again_later_and_later(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    purged(catalog)

    async def refuse(location: str) -> None:
        raise InternalError(f"Cannot delete {location}")

    monkeypatch.setattr(catalog.app.catalog.objects, "delete", refuse)
    pauses = []
    for attempt in range(1, 5):
        assert catalog.work_off_jobs() == 1
        ((owner, attempts, due_ms, error),) = catalog.rows(JOBS)
        assert (owner, attempts) == (None, attempt)
        assert error.startswith("Cannot delete")
        pauses.append(round((due_ms - catalog.app.catalog.now_ms()) / 1000))
        catalog.clock.added_ms += 1000 * pauses[-1] + 1000

    assert pauses == [1, 2, 4, 8]


def test_jobs_go_on_after_an_outage_of_the_database(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its questions the outage meets."""
    purged(catalog)
    monkeypatch.setattr(jobs, "OUTAGE_SECONDS", 0.01)
    store = catalog.store
    apply, next_job_time = store.apply, store.next_job_time
    outages: list[str] = []

    async def apply_later(changes: Sequence[Change]) -> list[object]:
        # The event of a finished job comes before the statement that ends it.
        kind = next((each.statement for each in changes if isinstance(each, Write)), type(changes[0]).__name__)
        if kind not in outages and kind != "extend_lease":
            outages.append(kind)
            raise ServiceUnavailable("the database is restarting")
        if isinstance(changes[0], ForgetAnswers):
            catalog.app.catalog.job_added.clear()
        return await apply(changes)

    async def time_later() -> int | None:
        if "time" not in outages:
            outages.append("time")
            raise ServiceUnavailable("the database is restarting")
        return await next_job_time()

    async def outlive() -> None:
        monkeypatch.setattr(store, "apply", apply_later)
        monkeypatch.setattr(store, "next_job_time", time_later)
        working = asyncio.create_task(jobs.run_jobs(catalog.app.catalog))
        for _ in range(500):
            if len(outages) == 4:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert not working.done()
        working.cancel()
        await asyncio.wait([working])

    catalog.run(outlive())

    assert outages == ["lease_job", "finish_job", "ForgetAnswers", "time"]
    catalog.clock.added_ms += job_queue.LEASE_MS  # the job that could not be finished is run again
    assert catalog.work_off_jobs() == 1
    assert catalog.rows(JOBS) == []
