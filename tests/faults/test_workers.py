"""Several processes behind one address: they die and come back one by one, and end together, leaving nobody behind."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.caller import Caller
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.found import await_true, find_tables
from tests.support.history import findings
from tests.support.ports import connections_read
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.promises import show
from tests.support.workload import Run, Writer, create_tables, seeded

WORKERS = 3
KILLS = int(os.environ.get("NUNATAK_TEST_KILLS", "4"))
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "120"))

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="NOT RUN: looks processes up in /proc")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres() as server:
        yield server


@contextmanager
def working(data: Path, url: str, *, port: int = 0) -> Iterator[RunningServer]:
    """A server of several workers, ended by whatever the test does, and at the latest by this."""
    environment, arguments = {"NUNATAK_DATABASE_URL": url}, ("--workers", str(WORKERS))
    workers: list[int] = []
    try:
        with running_server(data, port=port, environment=environment, arguments=arguments) as started:
            workers += workers_of(started)
            try:
                yield started
            finally:
                workers += workers_of(started)
    finally:
        await_true("no worker is left", lambda: [pid for pid in workers if is_alive(pid)] == [])


def workers_of(server: RunningServer) -> list[int]:
    pid = server.process.pid
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_alive(pid: int) -> bool:
    """A process that ended counts as gone before whoever inherited it has taken note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_workers(server: RunningServer) -> None:
    await_true("every worker is back", lambda: len(workers_of(server)) == WORKERS)


def asked_by_worker(server: RunningServer) -> dict[str, float]:
    """How many requests for the configuration each worker answered, as any one of them says."""
    with Caller(server.port) as caller:
        page = caller.send("GET", "/metrics").body.decode()
    found = re.findall(
        r'^nunatak_requests_total\{.*operation="getConfig".*worker="(\d+)".*\} (\S+)$', page, re.MULTILINE
    )
    return {worker: float(count) for worker, count in found}


def test_workers_share_the_requests_and_each_knows_what_all_have_counted(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with working(tmp_path / "data", postgres.new_database()) as server:
        assert len(workers_of(server)) == WORKERS
        for _ in range(60):
            with Caller(server.port) as caller:
                caller.expect(200, "GET", "/v1/config")

        counts = asked_by_worker(server)

        assert sum(counts.values()) == 60
        assert set(counts) == {str(number) for number in range(WORKERS)}, "the system deals connections out"


def test_workers_that_are_killed_come_back_and_nothing_is_lost_or_doubled(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    chance = seeded("workers")
    names = ["t1", "t2", "t3"]
    url = postgres.new_database()
    with working(tmp_path / "data", url) as server:
        create_tables(server.port, names)
        writers = [
            Writer(number, server.port, names, random.Random(chance.random()), keyed=bool(number % 2))
            for number in range(2 * WORKERS)
        ]
        run = Run(writers)
        with run.working():
            for number in range(KILLS):
                run.await_applied(COMMITS * (number + 1) // (KILLS + 1))
                run.await_another_attempt()
                os.kill(chance.choice(workers_of(server)), signal.SIGKILL)
                await_workers(server)
            run.await_applied(COMMITS)

        found = findings(run.attempts, run.reads, find_tables(url, server.port, names))
        print(run.summary())
        assert found == []
        assert server.process.poll() is None
        assert server.log.read_text().count("ended and is restarted") == KILLS
    show("F2", "workers of one server killed", commits=run.applied, kills=KILLS, workers=WORKERS, findings=0)


def test_a_server_told_to_stop_lets_every_worker_answer_what_it_has_begun(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with working(tmp_path / "data", postgres.new_database()) as server:
        body = json.dumps({"namespace": ["x"]}).encode()
        half = len(body) // 2
        begun = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(4 * WORKERS)]
        for number, connection in enumerate(begun):
            body = json.dumps({"namespace": [f"n{number:02}"]}).encode()
            head = f"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body[:half])
        await_true("the workers have read the halves", lambda: connections_read(server.port) == len(begun))

        server.process.send_signal(signal.SIGTERM)
        await_true("nobody is let in any more", lambda: is_refused(server.port))
        statuses = []
        for number, connection in enumerate(begun):
            connection.sendall(json.dumps({"namespace": [f"n{number:02}"]}).encode()[half:])
            with connection, connection.makefile("rb") as answer:
                statuses.append(int(answer.readline().split()[1]))

        assert statuses == [200] * len(begun)
        assert server.process.wait(30) == 0


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return True
    return False


def test_ctrl_c_ends_every_process(tmp_path: Path, postgres: PostgresServer) -> None:
    """A terminal sends it to all of them at once."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    with subprocess.Popen(
        [sys.executable, "-m", "nunatak", "serve", "--port", "0", "--workers", str(WORKERS), "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**environment, "NUNATAK_DATABASE_URL": postgres.new_database()},
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.killpg(process.pid, signal.SIGINT)
        printed, complaints = process.communicate(timeout=60)

    assert process.returncode == 0
    assert complaints == ""
    assert first.startswith("listening on http://127.0.0.1:")
    assert "listening on" not in printed, "the address is said once"
    assert len(children) == WORKERS
    assert [pid for pid in children if is_alive(int(pid))] == []


def test_workers_whose_parent_is_killed_end_too(tmp_path: Path, postgres: PostgresServer) -> None:
    with working(tmp_path / "data", postgres.new_database()) as server:
        workers = workers_of(server)
        with Caller(server.port) as caller:
            caller.expect(200, "POST", "/v1/namespaces", {"namespace": ["kept"]})

        server.kill()

        await_true("no worker is left", lambda: [pid for pid in workers if is_alive(pid)] == [])
        assert is_refused(server.port)


def serve_in_vain(data: Path, workers: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A server that should refuse to start; one that does not would run into the timeout."""
    return subprocess.run(
        [sys.executable, "-m", "nunatak", "serve", "--data", str(data), "--workers", workers, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_second_server_on_the_address_of_several_workers_is_refused(tmp_path: Path, postgres: PostgresServer) -> None:
    """Sockets that may be shared are shared with everybody; a second server would get part of the requests."""
    url = postgres.new_database()
    with working(tmp_path / "data", url) as server:
        for workers in ("1", "2"):
            second = serve_in_vain(tmp_path / "other", workers, "--port", str(server.port), "--database-url", url)
            assert second.returncode == 2
            assert f"cannot listen on 127.0.0.1:{server.port}" in second.stderr
            assert second.stdout == ""


def test_workers_that_cannot_start_say_why_once(tmp_path: Path) -> None:
    ended = serve_in_vain(
        tmp_path, str(WORKERS), "--port", "0", "--database-url", "postgresql://nobody@127.0.0.1:1/none"
    )

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("Cannot connect to PostgreSQL") == 1
    assert "Traceback" not in ended.stderr


def test_several_workers_on_sqlite_are_refused_with_what_to_do(tmp_path: Path) -> None:
    ended = serve_in_vain(tmp_path / "data", "2", "--port", "0")

    assert ended.returncode == 2
    assert "workers is 2" in ended.stderr
    assert "leave workers at 1" in ended.stderr
    assert "postgresql://" in ended.stderr
    assert not (tmp_path / "data").exists()
