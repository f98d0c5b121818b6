"""The worker without Spark: a real server, real leases and heartbeats, and jobs that do as they are told."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from nunatak.client import Client, Json, ServerUnreachable
from nunatak.errors import Conflict, NotFound
from nunatak.maintenance.job_spec import Gain
from nunatak_spark.console import WorkerEvent
from nunatak_spark.errors import CannotRun
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused, JobStopped, MaintenanceFunction
from nunatak_spark.shutdown import ShutdownSignal
from nunatak_spark.worker import ONCE_TRIES, SharedSession, Worker, WorkerOptions, unique_worker_name
from tests.api.wire import add_snapshot, set_branch
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PLACE = "namespace:default/shop"
NOWHERE = "http://127.0.0.1:1"
LEASE_SECONDS = 6
WAIT_SECONDS = 60  # for what takes two or three; a starved machine gets time


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One that gives jobs away for a short time."""
    seconds = {"NUNATAK_MAINTENANCE_LEASE_SECONDS": str(LEASE_SECONDS)}
    with running_server(tmp_path_factory.mktemp("worker") / "nunatak-data", environment=seconds) as started:
        with Client(started.uri) as client:
            client.create_namespace(("shop",), {})
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.uri) as client:
        yield client
        for job in jobs_of(client):  # none is left to the next test
            if job["state"] in ("waiting", "running"):
                client.manage("POST", ("maintenance", "jobs", str(job["job-id"]), "cancel"))


def jobs_of(client: Client) -> list[Json]:
    found: list[Json] = client.manage("GET", ("maintenance", "jobs"), query={"securable": PLACE})["jobs"]
    return found


def a_job(client: Client, table: str, kind: str = "data-compaction") -> int:
    """On a table of its own, which is made if need be."""
    if not client.table_exists(("shop", table)):
        schema = {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "x", "required": False, "type": "int"}],
        }
        client.create_table(("shop", table), {"schema": schema})
        client.commit_table(("shop", table), [], [add_snapshot(1), set_branch(1)])
    body = {"securable": f"table:default/shop/{table}", "type": kind}
    return int(client.manage("POST", ("maintenance", "jobs"), body)["jobs"][0]["job-id"])


def shown(client: Client, job: int) -> Json:
    return client.manage("GET", ("maintenance", "jobs", str(job)))


class Interrupted(Exception):
    """What a statement raises that somebody ended."""


class Session(SharedSession):
    """Stands where Spark would: a statement is a wait that an interruption ends."""

    def __init__(self, *, broken: bool = False) -> None:
        self.starts, self.stops, self.broken, self.gone = 0, 0, broken, False
        self.interrupted = threading.Event()
        super().__init__(self._made)

    def _made(self) -> "SparkSession":
        if self.broken:
            raise CannotRun("There is no Java", fix="Install one.")
        self.starts += 1
        return cast("SparkSession", self)

    def range(self, _: int) -> Any:
        return self

    def count(self) -> int:
        if self.gone:
            raise ConnectionRefusedError("[Errno 111] Connection refused")
        return 1

    def interrupt(self) -> None:
        self.interrupted.set()

    def stop(self) -> None:
        self.stops += 1
        self._spark = None

    def statement(self) -> None:
        assert self.interrupted.wait(WAIT_SECONDS)
        raise Interrupted


class Someone:
    """A worker in this thread, and everything it said."""

    def __init__(
        self,
        uri: str,
        maintain: MaintenanceFunction,
        session: Session | None = None,
        beats: str | None = None,
        **wishes: Any,
    ) -> None:
        self.said: list[WorkerEvent] = []
        self.leaving, self.session = ShutdownSignal(), session or Session()
        self.wishes = WorkerOptions(**{"securable": PLACE, "name": unique_worker_name("test"), "once": True, **wishes})
        self._uris, self._maintain = (uri, beats or uri), maintain

    def __enter__(self) -> Worker:
        self._open = contextlib.ExitStack()
        client, beats = (self._open.enter_context(Client(uri, timeout_seconds=2)) for uri in self._uris)
        self.worker = Worker(self.wishes, client, beats, self.session, self._maintain, self.leaving, self.said.append)
        return self.worker

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def events(self) -> list[str]:
        return [each.event for each in self.said]


def compacted(_: JobContext) -> JobOutcome:
    return JobOutcome(changed=True, size_bytes=7, gains=[Gain(of="data files", before=9, after=1)], detail={"x": 1})


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def eventually(look: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.05)


def test_jobs_are_done_with_one_session_and_what_became_of_them_is_stored(
    client: Client, server: RunningServer
) -> None:
    first, second = a_job(client, "a"), a_job(client, "b")
    someone = Someone(server.uri, compacted)

    with someone as worker:
        worker.run()

    told = shown(client, first)
    assert (told["state"], told["changed"], told["size-bytes"], told["attempts"]) == ("done", True, 7, 1)
    assert told["result"]["gains"] == [{"of": "data files", "before": 9, "after": 1}]
    assert shown(client, second)["state"] == "done"
    assert someone.session.starts == 1
    assert [each.state for each in worker.results] == ["done", "done"]
    ended = [each for each in someone.said if each.event == "ended"]
    assert ended[0].text.endswith("s: data files 9 -> 1")


def test_spark_is_not_started_while_there_is_nothing_to_do(client: Client, server: RunningServer) -> None:
    someone = Someone(server.uri, compacted)

    with someone as worker:
        worker.run()

    assert someone.session.starts == 0
    assert someone.events() == ["started", "stopped"]


def test_a_refusal_and_a_failure_are_told_in_a_line_and_the_next_job_is_done(
    client: Client, server: RunningServer
) -> None:
    jobs = [a_job(client, name) for name in ("refused", "broken", "good")]

    def maintain(work: JobContext) -> JobOutcome:
        if work.spec.table == "refused":
            raise JobRefused("shop.refused shares its folder; move it first")
        if work.spec.table == "broken":
            raise RuntimeError("java.lang.IllegalStateException: out of luck\n\tat a.b.C\n\tat d.e.F")
        return JobOutcome()

    with Someone(server.uri, maintain) as worker:
        worker.run()

    told = [shown(client, each) for each in jobs]
    assert [each["state"] for each in told] == ["failed", "failed", "done"]
    assert told[0]["error"] == "shop.refused shares its folder; move it first"
    assert told[1]["error"] == "java.lang.IllegalStateException: out of luck"
    assert told[2]["changed"] is False


def test_a_result_that_is_too_long_to_keep_is_kept_without_its_details(client: Client, server: RunningServer) -> None:
    job = a_job(client, "long")

    with Someone(server.uri, lambda _: JobOutcome(changed=True, detail={"x": "y" * 300_000})) as worker:
        worker.run()

    assert shown(client, job)["state"] == "done"
    assert set(shown(client, job)["result"]["detail"]) == {"left-out"}


def test_progress_is_stored_and_the_lease_kept_while_a_statement_runs(client: Client, server: RunningServer) -> None:
    job = a_job(client, "busy")

    def maintain(work: JobContext) -> JobOutcome:
        work.progress(ProgressStep("rewriting", 3, 7))
        time.sleep(LEASE_SECONDS * 1.5)  # in which nobody calls anything
        work.check()
        seen.update(shown(client, job))
        with pytest.raises(Conflict, match="is being done by anonymous/test"):
            client.manage("POST", ("maintenance", "lease"), {"securable": PLACE, "worker": "thief", "job-id": job})
        return JobOutcome()

    seen: Json = {}
    with Someone(server.uri, maintain) as worker:
        worker.run()

    assert seen["progress"] == {"text": "rewriting", "done": 3, "total": 7}
    assert (shown(client, job)["state"], shown(client, job)["attempts"]) == ("done", 1)


def test_a_cancelled_job_is_interrupted(client: Client, server: RunningServer) -> None:
    job = a_job(client, "unwanted")
    someone = Someone(server.uri, lambda work: cast(Session, work.spark).statement())  # type: ignore[arg-type, return-value]

    with someone as worker:
        running = in_background(worker.run)
        eventually(lambda: shown(client, job)["state"] == "running")
        client.manage("POST", ("maintenance", "jobs", str(job), "cancel"))
        running.join(WAIT_SECONDS)

    assert shown(client, job)["state"] == "cancelled"
    assert [each.state for each in worker.results] == ["cancelled"]


def test_a_worker_that_is_asked_to_end_hands_its_job_back(client: Client, server: RunningServer) -> None:
    first, second = a_job(client, "long_one"), a_job(client, "never_begun")
    someone = Someone(server.uri, lambda work: cast(Session, work.spark).statement(), once=False)  # type: ignore[arg-type, return-value]

    with someone as worker:
        running = in_background(worker.run)
        eventually(lambda: shown(client, first)["state"] == "running")
        someone.leaving.requested = True
        running.join(WAIT_SECONDS)

    assert [each.state for each in worker.results] == ["handed-back"]
    told = shown(client, first)
    assert (told["state"], told["worker"], told["attempts"]) == ("waiting", None, 0)
    assert shown(client, second)["state"] == "waiting"
    assert someone.events()[-1] == "stopped"


def test_a_job_that_finishes_although_it_was_to_stop_is_done(client: Client, server: RunningServer) -> None:
    job = a_job(client, "almost")

    def maintain(_: JobContext) -> JobOutcome:
        someone.leaving.requested = True
        return JobOutcome(changed=True)

    someone = Someone(server.uri, maintain)
    with someone as worker:
        worker.run()

    assert shown(client, job)["state"] == "done"


def test_a_session_that_does_not_listen_is_stopped(
    client: Client, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak_spark.job_lease.PATIENCE_SECONDS", 0.5)
    a_job(client, "deaf")

    def maintain(work: JobContext) -> JobOutcome:
        someone.leaving.requested = True
        eventually(lambda: someone.session.stops > 0)
        raise Interrupted

    someone = Someone(server.uri, maintain)
    with someone as worker:
        worker.run()

    assert [each.state for each in worker.results] == ["handed-back"]


def test_of_two_workers_each_gets_tables_of_its_own(client: Client, server: RunningServer) -> None:
    jobs = [a_job(client, table, kind) for table in "pqr" for kind in ("statistics", "snapshot-expiry")]
    at_work: list[str] = []
    shared: list[str] = []

    def maintain(work: JobContext) -> JobOutcome:
        shared.extend(each for each in at_work if each == work.spec.table)
        at_work.append(work.spec.table)
        time.sleep(0.3)
        at_work.remove(work.spec.table)
        return JobOutcome()

    with Someone(server.uri, maintain) as one, Someone(server.uri, maintain) as other:
        threads = [in_background(each.run) for each in (one, other)]
        for thread in threads:
            thread.join(WAIT_SECONDS)
        one.run()  # whatever was held back by a table that was taken when both looked last

    assert shared == []
    assert [shown(client, each)["state"] for each in jobs] == ["done"] * 6
    assert len(one.results) + len(other.results) == 6


def test_a_worker_without_spark_hands_the_job_back_and_says_why(client: Client, server: RunningServer) -> None:
    job = a_job(client, "waits")

    with Someone(server.uri, compacted, Session(broken=True)) as worker, pytest.raises(CannotRun, match="no Java"):
        worker.run()

    assert (shown(client, job)["state"], shown(client, job)["attempts"]) == ("waiting", 0)


def test_a_worker_whose_spark_died_says_so_and_ends(client: Client, server: RunningServer) -> None:
    job, next_job = a_job(client, "fatal"), a_job(client, "spared")

    def maintain(_: JobContext) -> JobOutcome:
        someone.session.gone = True
        raise ConnectionRefusedError("[Errno 111] Connection refused")  # as py4j says that there is no JVM

    someone = Someone(server.uri, maintain)
    with someone as worker, pytest.raises(CannotRun, match="The Spark session ended"):
        worker.run()

    assert (shown(client, job)["state"], shown(client, next_job)["state"]) == ("failed", "waiting")


def test_spark_is_stopped_while_there_is_nothing_to_do_if_wished(client: Client, server: RunningServer) -> None:
    first = a_job(client, "early")
    someone = Someone(server.uri, compacted, once=False, poll_seconds=0.1, idle_stop_seconds=0.3, max_jobs=2)

    with someone as worker:
        running = in_background(worker.run)
        eventually(lambda: someone.session.stops == 1)
        later = a_job(client, "later")
        running.join(WAIT_SECONDS)

    assert [shown(client, each)["state"] for each in (first, later)] == ["done", "done"]
    assert someone.session.starts == 2


def test_only_so_many_jobs_are_taken_as_were_wished(client: Client, server: RunningServer) -> None:
    jobs = [a_job(client, table) for table in ("m1", "m2", "m3")]

    with Someone(server.uri, compacted, max_jobs=2) as worker:
        worker.run()

    assert [shown(client, each)["state"] for each in jobs] == ["done", "done", "waiting"]


def test_what_is_due_by_policy_is_planned_if_wished(client: Client, server: RunningServer) -> None:
    a_job(client, "by_policy")  # which makes the table
    with Someone(server.uri, compacted) as worker:
        worker.run()
    table = "table:default/shop/by_policy"
    policy = {"type": "statistics", "trigger": {"max-delay-seconds": 1, "min-interval-seconds": 1}}
    client.manage("POST", ("policies",), {"securable": table, "policy": policy})
    time.sleep(1.2)

    with Someone(server.uri, compacted, securable=table) as unplanned:
        unplanned.run()
    with Someone(server.uri, compacted, securable=table, plan=True, max_jobs=1) as planned:
        planned.run()

    client.manage("DELETE", ("policies",), query={"securable": table, "type": "statistics"})
    assert (len(unplanned.results), len(planned.results)) == (0, 1)


def test_one_job_is_done_by_its_number_and_no_other(client: Client, server: RunningServer) -> None:
    other, wanted = a_job(client, "n1"), a_job(client, "n2")

    with Someone(server.uri, compacted) as worker:
        worker.run_one(wanted)
        with pytest.raises(Conflict, match=f"Job {wanted} is done"):
            worker.run_one(wanted)
        with pytest.raises(NotFound):
            worker.run_one(10**6)

    assert shown(client, wanted)["state"] == "done"
    assert shown(client, other)["state"] == "waiting"


# When the catalog does not answer


def test_a_worker_that_is_not_heard_of_stops_in_time_and_what_it_does_later_does_not_count(
    client: Client, server: RunningServer
) -> None:
    job = a_job(client, "unheard")
    stopped: list[str] = []

    def maintain(work: JobContext) -> JobOutcome:
        with pytest.raises(Interrupted):
            cast(Session, work.spark).statement()
        stopped.append(shown(client, job)["worker"])
        with pytest.raises(JobStopped, match="lost"):
            work.check()
        eventually(lambda: shown(client, job)["state"] == "done")
        return JobOutcome(changed=False)  # it should not go on, and if it does, nobody believes it

    with Someone(server.uri, maintain, beats=NOWHERE, max_jobs=1) as unheard, Someone(server.uri, compacted) as other:
        first = in_background(unheard.run)
        eventually(lambda: len(stopped) == 1)
        eventually(lambda: other.run() or len(other.results) == 1)  # type: ignore[func-returns-value]
        first.join(WAIT_SECONDS)

    assert stopped == [f"anonymous/{unheard.name}"], "nobody had it before the first had stopped"
    assert [each.state for each in unheard.results] == ["lost"]
    told = shown(client, job)
    assert (told["state"], told["changed"], told["attempts"]) == ("done", True, 2)


def test_a_catalog_that_is_away_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    someone = Someone(f"http://127.0.0.1:{port}", compacted, once=False, poll_seconds=0.1, max_jobs=1)

    with someone as worker:
        running = in_background(worker.run)
        eventually(lambda: someone.events().count("unreachable") >= 2)
        with running_server(tmp_path / "nunatak-data", port=port) as late, Client(late.uri) as client:
            client.create_namespace(("shop",), {})
            job = a_job(client, "t")
            running.join(WAIT_SECONDS)
            assert shown(client, job)["state"] == "done"


def test_a_worker_that_is_to_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nunatak_spark.worker.FIRST_WAIT_SECONDS", 0.01)
    someone = Someone(NOWHERE, compacted)

    with someone as worker, pytest.raises(ServerUnreachable):
        worker.run()

    assert someone.events().count("unreachable") == ONCE_TRIES - 1


def test_a_job_from_under_which_the_catalog_vanished_is_handed_back(client: Client, server: RunningServer) -> None:
    job = a_job(client, "vanished")

    def maintain(_: JobContext) -> JobOutcome:
        raise ServerUnreachable("no catalog answers")

    with Someone(server.uri, maintain, max_jobs=1) as worker:
        worker.run()

    assert (shown(client, job)["state"], shown(client, job)["attempts"]) == ("waiting", 0)


# What ends a process


def test_the_first_signal_asks_and_the_second_ends() -> None:
    leaving, before = ShutdownSignal(), signal.getsignal(signal.SIGTERM)

    with leaving.handle_signals():
        signal.raise_signal(signal.SIGTERM)
        assert leaving.requested
        leaving.sleep(WAIT_SECONDS)  # which is over at once
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGTERM) is before
