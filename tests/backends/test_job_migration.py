"""The migration to one job queue: from a database with jobs of servers and workers in two tables, on every database."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from nunatak.access import securables
from nunatak.access.administration import Actor
from nunatak.catalog import job_queue
from nunatak.catalog.job_queue import QueuedJob
from nunatak.database import mariadb as mariadb_driver
from nunatak.database.ddl import Dialect
from nunatak.database.postgres import open_store
from nunatak.database.sqlite import SqliteStore
from nunatak.database.statements import read_migrations
from nunatak.database.store import Store
from nunatak.errors import Conflict
from nunatak.maintenance.job_spec import JobSpec, JobType
from nunatak.maintenance.worker_jobs import add_job, find_open, open_key
from tests.backends.conftest import Run
from tests.support import postgres as postgres_support
from tests.support.mariadb import MariadbServer
from tests.support.schemas import script_path

NUMBER = next(number for number, name, _ in read_migrations() if name.endswith("_one_job_queue"))
ANN = Actor("ann", 1000, "r-1")
ORDERS = securables.entry("default", ("sales",), "orders")
HOME = securables.warehouse("default")


def spec(kind: JobType) -> JobSpec:
    """Its text has what a careless conversion to bytes would change."""
    return JobSpec(type=kind, warehouse="default", namespace=["sales"], table="orders", table_uuid="u-1",
                   reasons=["größer als 512 MiB", "a\\b 'quoted'"])  # fmt: skip


def text(kind: JobType) -> str:
    return msgspec.json.encode(spec(kind)).decode()


WORKER = [
    QueuedJob(1, "statistics", ORDERS, "u-1", HOME, text("statistics").encode(), "waiting", "ann", 10, 20, 0, None,
              False, None, None, False, 7, None, None),
    QueuedJob(2, "orphan-removal", ORDERS, "u-1", None, text("orphan-removal").encode(), "running", "bob", 11, 5000, 3,
              "bob\x1fw1", True, '{"done":1}', None, False, 0, None, None),
    QueuedJob(3, "snapshot-expiry", ORDERS, "u-1", HOME, text("snapshot-expiry").encode(), "done", "ann", 12, 30, 1,
              None, False, None, 900, True, 4 << 40, '{"größe":"ü"}', None),
    QueuedJob(7, "data-compaction", ORDERS, "u-1", None, text("data-compaction").encode(), "failed", "ann", 13, 31, 2,
              None, False, None, 901, False, 0, None, "kein Platz: 'a\\b'"),
]  # fmt: skip
OPEN = ("waiting", "running")
NEVER_MS = (1 << 63) - 1
CARRIED_OVER = [job if job.state in OPEN else replace(job, due_ms=NEVER_MS) for job in WORKER]


def literal(value: object, dialect: Dialect) -> str:
    if value is None or isinstance(value, bool | int):
        return "NULL" if value is None else str(int(value))
    written = str(value).encode().hex()
    if dialect == "postgres":
        return f"convert_from('\\x{written}', 'UTF8')"
    return f"_utf8mb4 X'{written}'" if dialect == "mariadb" else f"CAST(X'{written}' AS TEXT)"


def filled(dialect: Dialect) -> str:
    """The script of the schema before the migration, with two jobs of servers and four of workers."""
    made = script_path(dialect, NUMBER - 1).read_text()
    payload = "X'7b7d'" if dialect != "postgres" else "'\\x7b7d'"
    made += (
        "INSERT INTO nunatak_jobs (kind, payload, location, attempts, not_before_ms, last_error, leased_by) VALUES "
        f"('purge', {payload}, 'file:///w/t', 2, 50, 'no disk', NULL), "
        f"('delete-files', {payload}, NULL, 1, 6000, NULL, 'server-1');\n"
    )
    columns = (
        "type, securable, table_uuid, policy, spec, state, created_by, created_ms, due_ms, attempts, leased_by, "
        "cancelled, progress, finished_ms, changed, size_bytes, result, error, open_key, job_id"
    )
    overriding = " OVERRIDING SYSTEM VALUE" if dialect == "postgres" else ""
    for job in WORKER:
        values: list[object] = [
            job.kind, job.securable, job.table_uuid, job.policy, job.payload.decode(), job.state, job.created_by,
            job.created_ms, job.due_ms, job.attempts, job.leased_by, job.cancelled, job.progress, job.finished_ms,
            job.changed, job.size_bytes, job.result, job.error, f"u-1/{job.kind}" if job.state in OPEN else None,
            job.job_id,
        ]  # fmt: skip
        row = ", ".join(literal(value, dialect) for value in values)
        made += f"INSERT INTO nunatak_maintenance_jobs ({columns}){overriding} VALUES ({row});\n"
    return made


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def migrated(request: pytest.FixtureRequest, tmp_path: Path, run: Run[Any]) -> Any:
    """A store on a migrated database that had jobs, and a function that runs SQL on it."""
    execute: Callable[[str], Any]
    if request.param == "sqlite":
        path = tmp_path / "catalog.db"
        connection = apsw.Connection(str(path))
        execute = lambda sql: connection.execute(sql).fetchall()  # noqa: E731
        execute(filled("sqlite"))
        with_lease = "UPDATE nunatak_jobs SET leased_by = 'server-1', not_before_ms = 6000, state = 'running'"
        store: Store = SqliteStore(path)
        execute(f"{with_lease} WHERE kind = 'delete-files'")  # a server that starts ends the leases of the last one
    elif request.param == "postgres":
        url = request.getfixturevalue("database")
        execute = lambda sql: run(postgres_support.execute(url, sql))  # noqa: E731
        execute(filled("postgres"))
        store = run(open_store(url))
    else:
        url, server = request.getfixturevalue("mariadb_database"), request.getfixturevalue("mariadb")
        execute = lambda sql: server.execute(sql, url=url)  # noqa: E731
        execute(filled("mariadb"))
        store = run(mariadb_driver.open_store(url))
    yield store, execute
    run(store.close())
    if request.param == "sqlite":
        connection.close()


def assert_carried_over(store: Store, run: Run[Any]) -> None:
    assert run(job_queue.list_jobs(store, HOME, job_queue.NEWEST, 10)) == CARRIED_OVER[::-1]
    for job in CARRIED_OVER:
        assert run(job_queue.find_job(store, "worker", job.job_id)) == job
    assert run(store.rows("purge_of", {"location": "file:///w/t"}))
    assert run(store.next_job_time()) == 50


def test_jobs_leases_and_finished_runs_are_carried_over(migrated: Any, run: Run[Any]) -> None:
    store, execute = migrated

    assert_carried_over(store, run)
    assert run(find_open(store, spec("statistics"))) == 1
    with pytest.raises(Exception, match="nunatak_maintenance_jobs"):
        execute("SELECT * FROM nunatak_maintenance_jobs")


def test_a_worker_that_ran_during_the_migration_goes_on(migrated: Any, run: Run[Any]) -> None:
    store, _ = migrated

    run(store.apply(job_queue.extend(2, "bob\x1fw1", 4999, {"done": 2})))
    assert run(job_queue.lease(store, "worker", "w2", 4999, securable=HOME)) is None, "its table is taken"
    run(store.apply(job_queue.finish(2, "bob\x1fw1", "cancelled", now_ms=5000)))
    taken = run(job_queue.lease(store, "worker", "w2", 5001, securable=HOME))

    assert (taken.job_id, taken.attempts) == (1, 1)


def test_the_jobs_of_servers_are_run_and_their_leases_hold(migrated: Any, run: Run[Any]) -> None:
    store, _ = migrated

    purge = run(job_queue.lease(store, "server", "s2", 5999))
    assert (purge.kind, purge.payload, purge.attempts, purge.error) == ("purge", b"{}", 3, "no disk")
    assert run(job_queue.lease(store, "server", "s2", 5999)) is None, "another server's lease"
    late = run(job_queue.lease(store, "server", "s2", 6000))
    assert (late.kind, late.attempts) == ("delete-files", 2)
    assert {purge.job_id, late.job_id}.isdisjoint({job.job_id for job in WORKER})


def test_a_new_job_gets_an_id_of_its_own_and_waits_for_no_finished_one(migrated: Any, run: Run[Any]) -> None:
    store, execute = migrated
    used = {job_id for (job_id,) in execute("SELECT job_id FROM nunatak_jobs")}

    with pytest.raises(Conflict):
        run(store.apply(add_job(ANN, spec("statistics"), None, 0)))
    run(store.apply(add_job(ANN, spec("data-compaction"), None, 0)))

    assert len(used) == 6
    assert run(find_open(store, spec("data-compaction"))) > max(used)


def test_a_server_of_the_version_before_still_adds_jobs(migrated: Any, run: Run[Any]) -> None:
    """Several servers are upgraded one after the other: what the old ones leave is done by the new ones."""
    store, execute = migrated
    execute("DELETE FROM nunatak_jobs")

    execute("INSERT INTO nunatak_jobs (kind, payload, location) VALUES ('purge', '{}', 'file:///w/old')")

    assert run(store.rows("purge_of", {"location": "file:///w/old"}))
    job = run(job_queue.lease(store, "server", "s2", 1))
    assert (job.kind, job.attempts) == ("purge", 1)


def test_a_server_of_the_version_before_finds_no_finished_job_due(migrated: Any, run: Run[Any]) -> None:
    """It takes the first job that is due, whatever its state."""
    store, execute = migrated
    run(store.apply(job_queue.cancel(ANN, run(job_queue.find_job(store, "worker", 1)))))
    run(store.apply(job_queue.finish(2, "bob\x1fw1", "done", now_ms=100)))

    due = execute("SELECT job_id FROM nunatak_jobs WHERE runs_on = 'worker' AND not_before_ms <= 4000000000000000")

    assert due == []


def test_a_migration_that_was_interrupted_anywhere_is_carried_on(mariadb: MariadbServer, run: Run[Any]) -> None:
    (sql,) = [sql for number, _, sql in read_migrations("mariadb") if number == NUMBER]
    steps = [step for step in sql.split(";\n") if step.strip()]
    assert len(steps) > 20
    for count in range(1, len(steps) + 1):
        url = mariadb.new_database()
        mariadb.execute(filled("mariadb"), url=url)
        mariadb.execute(";\n".join(steps[:count]), url=url)
        store = run(mariadb_driver.open_store(url))

        assert_carried_over(store, run)
        assert mariadb.execute("SELECT count(*) FROM nunatak_jobs", url=url) == [(6,)]
        run(store.close())


def test_the_open_key_of_a_job_is_its_table_and_type() -> None:
    """The migration keeps the keys of the version before."""
    assert open_key(spec("statistics")) == "u-1/statistics"
