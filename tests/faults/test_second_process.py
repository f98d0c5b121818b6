"""Processes that come and go: one server per data folder, and one that is told to stop finishes what it began (F10)."""

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.found import await_true
from tests.support.history import findings
from tests.support.ports import connections_read
from tests.support.workload import TABLES, Caller, Run, Writer, append_to, create_tables, find_tables, seeded


def serve_a_second_time(data: Path) -> subprocess.CompletedProcess[str]:
    """`nunatak serve` on a folder; a server that does not refuse would run into the timeout."""
    return subprocess.run(
        [sys.executable, "-m", "nunatak", "serve", "--port", "0", "--data", str(data)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_second_server_on_the_same_data_refuses_to_start_and_leaves_the_first_alone(server: RunningServer) -> None:
    create_tables(server.port, ["t"])

    second = serve_a_second_time(server.data)

    assert second.returncode != 0
    assert second.stdout == ""
    assert "another server already works on" in second.stderr
    assert str(server.data / "nunatak.db") in second.stderr
    assert "Traceback" not in second.stderr
    with Caller(server.port) as caller:
        metadata = caller.expect(200, "GET", f"{TABLES}/t")["metadata"]
        caller.expect(200, "POST", f"{TABLES}/t", append_to("t", metadata, 11, "still writing"))


def test_a_server_without_a_lock_is_found_out(tmp_path: Path) -> None:
    """The canary: beside it a second one starts, so it is the lock that refuses above."""
    with (
        running_server(tmp_path / "data", broken="no-lock") as first,
        running_server(tmp_path / "data") as second,
        Caller(second.port) as caller,
    ):
        create_tables(first.port, ["t"])
        caller.expect(200, "GET", f"{TABLES}/t")


def half_sent(port: int, path: str, body: bytes) -> tuple[socket.socket, bytes]:
    """A request of which the server has the head and half of the body; and the other half."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    middle = len(body) // 2
    connection.sendall(head.encode() + body[:middle])
    return connection, body[middle:]


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of an answer after which the server closes."""
    answer = b""
    with connection:
        while chunk := connection.recv(65536):
            answer += chunk
    if not answer:
        raise ConnectionResetError("the server closed without an answer")
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


def stop_midway(server: RunningServer, names: Sequence[str]) -> tuple[list[tuple[int, bytes]], int]:
    """Tell a server to stop that has the half of some requests, then send the rest; its answers and its exit status."""
    create_tables(server.port, names)
    with Caller(server.port) as caller:
        appends = {
            name: append_to(name, caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"], 11, "in flight")
            for name in names
        }
        begun = [
            half_sent(server.port, f"{TABLES}/{name}", json.dumps(append).encode()) for name, append in appends.items()
        ]
    await_true("the server has read the halves", lambda: connections_read(server.port) == len(begun))
    try:
        server.process.send_signal(signal.SIGTERM)
        await_refusal(server.port)
        answers = []
        for connection, rest in begun:
            connection.sendall(rest)
            answers.append(read_answer(connection))
        return answers, server.process.wait(30)
    finally:
        for connection, _ in begun:
            connection.close()


def test_a_server_told_to_stop_answers_what_it_has_begun_and_ends_with_0(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(5)]
    with running_server(tmp_path / "data") as server:
        answers, status = stop_midway(server, names)

    assert [code for code, _ in answers] == [200] * len(names)
    assert status == 0
    with running_server(server.data) as heir:
        for table, (_, body) in zip(find_tables(heir.data, heir.port, names), answers, strict=True):
            assert table.chain == [11]
            assert table.metadata == json.loads(body)["metadata"]


def test_a_server_that_drops_what_it_has_begun_is_found_out(tmp_path: Path) -> None:
    """The canary."""
    with running_server(tmp_path / "data", broken="ends-at-once") as server, pytest.raises(OSError):
        stop_midway(server, ["t"])


def await_refusal(port: int) -> None:
    """Wait until the server takes no new connection any more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            return
        time.sleep(0.01)
    raise AssertionError("the server still takes connections")


def test_a_server_told_to_stop_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Writers that are turned away send the same request again to the next server."""
    chance = seeded("stop")
    names = ["t1", "t2"]
    with running_server(tmp_path / "data") as server:
        create_tables(server.port, names)
        run = Run(
            [
                Writer(number, server.port, names, random.Random(chance.random()), keyed=number % 2 == 0)
                for number in range(4)
            ]
        )
        statuses = []
        with run.working():
            for _ in range(3):
                time.sleep(chance.uniform(0.3, 0.8))
                statuses.append(server.stop())
                server.restart()

        print(run.summary())
        assert statuses == [0, 0, 0]
        assert {attempt.status for attempt in run.attempts} <= {200, 409, None}
        assert findings(run.attempts, run.reads, find_tables(server.data, server.port, names)) == []
