"""`nunatak spark worker` and `nunatak maintain --run` as far as they come without a JVM, and what they print."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from nunatak.client import Client, Json
from nunatak.maintenance.job_spec import Gain
from nunatak_spark import console
from nunatak_spark.cli.run_jobs import exit_code
from nunatak_spark.console import WorkerEvent
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.maintenance.job_context import JobOutcome
from nunatak_spark.worker import JobResult
from tests.api.wire import add_snapshot, set_branch
from tests.support.catalogs.process import RunningServer
from tests.unit.cli.conftest import run_command

NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login and no Spark of whoever runs the tests."""
    for name in ("NUNATAK_TOKEN", "NUNATAK_CREDENTIAL", "SPARK_HOME", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def client(shared_server: RunningServer) -> Iterator[Client]:
    with Client(shared_server.uri) as client:
        yield client


@pytest.fixture
def namespace(client: Client) -> str:
    name = f"worker_{uuid4().hex[:8]}"
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "x", "required": False, "type": "int"}]}
    client.create_namespace((name,), {})
    client.create_table((name, "t"), {"schema": schema})
    client.commit_table((name, "t"), [], [add_snapshot(1), set_branch(1)])
    return name


def jobs_in(client: Client, namespace: str) -> list[Json]:
    query = {"securable": f"namespace:default/{namespace}"}
    found: list[Json] = client.manage("GET", ("maintenance", "jobs"), query=query)["jobs"]
    return found


def test_a_worker_with_nothing_to_do_ends_at_once_and_needs_no_spark(
    shared_server: RunningServer, namespace: str
) -> None:
    place = ("--securable", f"namespace:default/{namespace}")

    people = run_command("spark", "worker", "--once", "--uri", shared_server.uri, *place, **NO_JAVA)
    programs = run_command("spark", "worker", "--once", "--uri", shared_server.uri, *place, "-o", "json", **NO_JAVA)

    assert (people.code, programs.code) == (0, 0)
    assert f"takes jobs of namespace:default/{namespace}\n" in people.out
    assert [json.loads(line)["event"] for line in programs.out.splitlines()] == ["started", "stopped"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--conf", "spark.x"), 2, "write KEY=VALUE"),
        (("--securable", "namespace:other/a", "--warehouse", "default"), 2, "is not in the warehouse default"),
        (("--securable", "namespace:default/nowhere", "--once", "--plan"), 1, "Namespace does not exist"),
        (("--poll", "0"), 2, "--poll"),
    ],
)
def test_a_worker_that_cannot_be_meant_so_is_told(
    shared_server: RunningServer, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = run_command("spark", "worker", "--uri", shared_server.uri, *arguments)

    assert ended.code == code, ended
    assert said in ended.err


def test_a_worker_that_finds_no_catalog_ends_with_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nunatak_spark.worker.FIRST_WAIT_SECONDS", 0.01)

    ended = run_command("spark", "worker", "--once", "--uri", "http://127.0.0.1:1", "--securable", "warehouse:default")

    assert ended.code == 3
    assert "asking again" in ended.out


@pytest.mark.parametrize("again", [False, True], ids=["new", "waits already"])
def test_without_java_a_job_to_be_done_here_waits_for_the_workers(
    shared_server: RunningServer, client: Client, namespace: str, again: bool
) -> None:
    words = ("maintain", "compact", f"{namespace}.t", "--uri", shared_server.uri)
    if again:
        assert run_command(*words).code == 0

    ended = run_command(*words, "--run", **NO_JAVA)

    assert ended.code == 1
    assert "Hint: " in ended.err
    assert [(each["state"], each["attempts"]) for each in jobs_in(client, namespace)] == [("waiting", 0)]


def test_a_job_that_somebody_else_does_is_told_plainly(
    shared_server: RunningServer, client: Client, namespace: str
) -> None:
    words = ("maintain", "compact", f"{namespace}.t", "--uri", shared_server.uri)
    run_command(*words)
    lease = {"securable": f"namespace:default/{namespace}", "worker": "nightly"}
    job = client.manage("POST", ("maintenance", "lease"), lease)["job"]["job-id"]

    ended = run_command(*words, "--run", **NO_JAVA)

    assert ended.code == 5
    assert f"Job {job}, data-compaction of table:default/{namespace}/t, is being done by anonymous/nightly" in ended.err


def test_a_dry_run_on_spark_adds_no_job(shared_server: RunningServer, client: Client, namespace: str) -> None:
    words = ("maintain", "compact", f"{namespace}.t", "--uri", shared_server.uri)

    ended = run_command(*words, "--run", "--dry-run", **NO_JAVA)

    assert ended.code == 1, "there is no Java"
    assert jobs_in(client, namespace) == []


def test_what_is_due_nowhere_is_done_at_once(shared_server: RunningServer, namespace: str) -> None:
    ended = run_command("maintain", "all", namespace, "--run", "--uri", shared_server.uri, **NO_JAVA)

    assert ended.code == 0, ended


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ([], 0),
        ([JobResult("done", JobOutcome())], 0),
        ([JobResult("done", JobOutcome(ok=False))], 4),
        ([JobResult("done", JobOutcome(ok=False)), JobResult("cancelled")], 5),
        ([JobResult("handed-back")], 5),
        ([JobResult("lost"), JobResult("failed", error="no")], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst(ended: list[JobResult], code: int) -> None:
    assert exit_code(ended) == code


# What is printed


def step(text: str, done: int) -> WorkerEvent:
    return WorkerEvent(event="progress", text=f"[{done}/9] {text}", step=ProgressStep(text, done, 9))


def test_a_log_has_a_line_for_each_step_and_not_for_each_task(capsys: pytest.CaptureFixture[str]) -> None:
    with console.print_lines() as print_event:
        for event in (
            step("reading", 1),
            step("reading", 2),
            step("writing", 3),
            WorkerEvent(event="ended", text="done"),
        ):
            print_event(event)

    assert capsys.readouterr().out.splitlines() == ["[1/9] reading", "[3/9] writing", "done"]


def test_a_program_reads_what_was_told_back(capsys: pytest.CaptureFixture[str]) -> None:
    told = WorkerEvent(event="ended", text="job 7: done", job_id=7, gains=[Gain(of="data files", before=9, after=1)])

    with console.print_json_lines() as print_event:
        print_event(told)

    assert msgspec.json.decode(capsys.readouterr().out, type=WorkerEvent) == told


def test_a_terminal_shows_a_name_with_brackets_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with console.print_with_bars() as print_event:
        print_event(step("[bold]rewriting", 3))
        print_event(WorkerEvent(event="ended", text="job 7: a table [red] is done"))

    assert "a table [red] is done" in capsys.readouterr().out


def test_how_far_a_job_is_and_what_became_of_it_is_shown(
    shared_server: RunningServer, client: Client, namespace: str
) -> None:
    place = f"namespace:default/{namespace}"
    run_command("maintain", "compact", f"{namespace}.t", "--uri", shared_server.uri)
    job = client.manage("POST", ("maintenance", "lease"), {"securable": place, "worker": "w"})["job"]["job-id"]
    path = ("maintenance", "jobs", str(job))

    def printed() -> str:
        words = (("job", "show", str(job)), ("job", "list", place))
        return "".join(run_command(*each, "--uri", shared_server.uri).out for each in words)

    client.manage("POST", (*path, "heartbeat"), {"worker": "w", "progress": {"text": "writing", "done": 3, "total": 7}})
    halfway = printed()
    result = {"changed": True, "gains": [{"of": "data files", "before": 9, "after": 1}]}
    client.manage("POST", (*path, "finish"), {"worker": "w", "state": "done", "result": result})

    assert halfway.count("[3/7] writing") == 2
    assert printed().count("data files 9 -> 1") == 2
