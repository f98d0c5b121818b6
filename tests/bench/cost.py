"""The command `python -m tests.bench cost`: what single requests cost a server that asks for a login.

Each request is sent several times. The CPU time of the server's threads is read from the system, so other work on the
machine counts little; what other clients notice is measured by a second process that loads a table again and again.
"""

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.api.wire import a_table, path_of
from tests.bench.cost_requests import KNOWN, STRANGER, Costly, costly_requests
from tests.support.catalogs.process import RunningServer, running_server

TABLE = path_of("ns", "tables", "t")
ANSWER_SECONDS = 120
MOST_TIMES_OF_A_LOAD = {STRANGER: 20, KNOWN: 2000}
LONGEST_HOLD_MS = 100
SMALL_BYTES = 100_000  # what is smaller is sent ten times as often
LOADS = 500
PROBE_PAUSE_SECONDS = 0.002


@dataclass(frozen=True)
class Cost:
    """What one request took; `held_ms` is CPU time of the thread that runs the event loop, `probe_*` other clients."""

    name: str
    who: str
    sent_bytes: int
    status: int
    cpu_ms: float
    held_ms: float
    ratio: float
    probe_p99_ms: float
    probe_worst_ms: float

    @property
    def is_too_much(self) -> bool:
        return self.ratio > MOST_TIMES_OF_A_LOAD[self.who] or self.held_ms > LONGEST_HOLD_MS


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Of all threads of a process, and of its first one, in nanosecond steps."""
    times = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            times[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return sum(times.values()), times[pid]


class Connection:
    """Sends requests on one connection for as long as the server keeps it, and opens another then."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._stream: Any = None
        self.opened = 0

    def exchange(self, request: bytes) -> int:
        """The status of the answer; 0 if the connection was closed without one."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), ANSWER_SECONDS)
            self._stream = self._socket.makefile("rb")
            self.opened += 1
        # The answer to a large one may come, and the server stop to read, long before all of it is sent.
        sending = threading.Thread(target=_send, args=(self._socket, request))
        sending.start()
        try:
            status, kept = read_answer(self._stream.readline, self._stream.read)
        except ConnectionError:
            status, kept = 0, False
        if not kept or len(request) > SMALL_BYTES:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        sending.join()
        if not kept or len(request) > SMALL_BYTES:
            self.close()
        return status

    def close(self) -> None:
        if self._socket is not None:
            self._stream.close()
            self._socket.close()
            self._socket = None


def _send(sock: socket.socket, request: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(request)


def read_answer(readline: Callable[[], bytes], read: Callable[[int], bytes]) -> tuple[int, bool]:
    """The status, 0 for none, and whether the connection may be used again."""
    line = readline().split()
    if not line:
        return 0, False
    length, kept = 0, True
    while header := readline().strip().lower():
        name, _, value = header.partition(b":")
        if name == b"content-length":
            length = int(value)
        kept = kept and header != b"connection: close"
    read(length)
    return int(line[1]), kept


def loads_cpu_ms(server: RunningServer, count: int = LOADS) -> float:
    """CPU of one plain load of a small table by somebody known, on a connection that stays open."""
    request = plain_load(server.key)
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, ANSWER_SECONDS) as sock, sock.makefile("rb") as stream:
        for number in range(count + 50):
            if number == 50:
                before, _ = cpu_seconds(server.process.pid)
            sock.sendall(request)
            assert read_answer(stream.readline, stream.read)[0] == 200
    return (cpu_seconds(server.process.pid)[0] - before) * 1000 / count


def connection_cpu_ms(server: RunningServer, load_ms: float, count: int = 50) -> float:
    """CPU of opening and closing a connection, for requests after which the server closes it."""
    request = plain_load(server.key)
    before, _ = cpu_seconds(server.process.pid)
    for _ in range(count):
        connection = Connection(server.port)
        connection.exchange(request)
        connection.close()
    return max(0.0, (cpu_seconds(server.process.pid)[0] - before) * 1000 / count - load_ms)


def plain_load(key: str) -> bytes:
    return f"GET {TABLE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def _probe(port: int, request: bytes, line: multiprocessing.connection.Connection) -> None:
    """Loads without end, and told what it saw whenever asked: seconds of each."""
    seen: list[float] = []
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as sock, sock.makefile("rb") as stream:
        while True:
            if line.poll():
                if line.recv() == "stop":
                    return
                line.send(seen)
                seen = []
            started = time.perf_counter()
            sock.sendall(request)
            read_answer(stream.readline, stream.read)
            seen.append(time.perf_counter() - started)
            time.sleep(PROBE_PAUSE_SECONDS)


class Probe:
    """What another client notices meanwhile, from a process of its own."""

    def __init__(self, line: multiprocessing.connection.Connection) -> None:
        self._line = line

    def seen_ms(self) -> list[float]:
        self._line.send("tell")
        return sorted(seconds * 1000 for seconds in self._line.recv()) or [0.0]


@contextlib.contextmanager
def probing(server: RunningServer) -> Iterator[Probe]:
    ours, theirs = multiprocessing.Pipe()
    arguments = (server.port, plain_load(server.key), theirs)
    process = multiprocessing.get_context("spawn").Process(target=_probe, args=arguments, daemon=True)
    process.start()
    try:
        probe = Probe(ours)
        time.sleep(0.5)
        probe.seen_ms()
        yield probe
    finally:
        ours.send("stop")
        process.join(10)


def measured(server: RunningServer, costly: Costly, probe: Probe | None, times: int, pace: float = 0.0) -> Cost:
    """The load it is compared with is measured right before, since the machine may be busier a minute later.

    It is sent in the same way: on a connection of its own if the request needs one. With a `pace` of seconds the other
    clients are watched for that long after each; without, only while the server works on it.
    """
    pid = server.process.pid
    load_ms = loads_cpu_ms(server)
    connection_ms = connection_cpu_ms(server, load_ms)
    repeats = times if len(costly.request) > SMALL_BYTES else times * 10
    connection = Connection(server.port)
    send = partial(connection.exchange, costly.request) if costly.send is None else partial(costly.send, server)
    if len(costly.request) <= SMALL_BYTES:
        send()  # what is learnt once, such as a route, is not what is asked for
    totals, firsts, seen = [], [], [0.0]
    for _ in range(times):
        if probe is not None:
            probe.seen_ms()
        before = cpu_seconds(pid)
        for _ in range(repeats // times):
            status = send()
        after = cpu_seconds(pid)
        noticed = probe.seen_ms() if probe is not None else []
        seen += noticed
        if probe is not None and pace:
            time.sleep(pace)
            seen += probe.seen_ms()
        own_ms = len(noticed) * load_ms
        totals.append(max(0.0, (after[0] - before[0]) * 1000 - own_ms) / (repeats // times))
        firsts.append(max(0.0, (after[1] - before[1]) * 1000 - own_ms) / (repeats // times))
    connection.close()
    seen.sort()
    cpu_ms = statistics.median(totals)
    return Cost(
        costly.name,
        costly.who,
        len(costly.request),
        status,
        cpu_ms,
        statistics.median(firsts),
        cpu_ms / (load_ms + connection_ms * min(1.0, connection.opened / repeats)),
        seen[int(len(seen) * 0.99)],
        seen[-1],
    )


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[RunningServer]:
    """A server that asks for a login, with the table `ns.t`."""
    with running_server(folder / "data", environment={"NUNATAK_SPOOL_LOCATION": "off"}, auth=True) as server:
        server.expect(200, "POST", "/v1/namespaces", {"namespace": ["ns"]})
        server.expect(200, "POST", path_of("ns", "tables"), a_table("t"))
        server.expect(200, "GET", TABLE)
        yield server


def as_markdown(load_ms: float, idle: Sequence[float], costs: Sequence[Cost]) -> str:
    lines = [
        f"A plain load: {load_ms * 1000:.0f} µs of CPU. Other clients without any of this: p99 "
        f"{idle[int(len(idle) * 0.99)]:.1f} ms, worst {idle[-1]:.1f} ms.",
        "",
        "| request | by | bytes sent | answer | CPU ms | × a load | event loop ms | others' p99 ms | worst ms |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for cost in sorted(costs, key=lambda each: (each.who != STRANGER, -each.cpu_ms)):
        mark = " **too much**" if cost.is_too_much else ""
        lines.append(
            f"| {cost.name} | {cost.who} | {cost.sent_bytes:,} | {cost.status or 'closed'} | {cost.cpu_ms:.2f} | "
            f"{cost.ratio:,.0f}{mark} | {cost.held_ms:.1f} | {cost.probe_p99_ms:.1f} | {cost.probe_worst_ms:.1f} |"
        )
    return "\n".join(lines) + "\n"


@click.command(help="Which single request costs most: CPU, the event loop's time, and what other clients notice.")
@click.option("--only", default="", metavar="TEXT", help="Requests whose name holds this.")
@click.option("--times", default=3, show_default=True, type=click.IntRange(1, 100), help="How often each is sent.")
@click.option("--pace", default=0.0, type=click.FloatRange(0, 60), metavar="SECONDS", help="Wait after each sending.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def cost(only: str, times: int, pace: float, as_json: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="nunatak-cost-") as folder, prepared(Path(folder)) as server:
        load_ms = loads_cpu_ms(server)
        wanted = [each for each in costly_requests(server.key) if only in each.name]
        with probing(server) as probe:
            time.sleep(2)
            idle = probe.seen_ms()
            costs = []
            for costly in wanted:
                click.echo(f"… {costly.name}", err=True)
                costs.append(measured(server, costly, probe, times, pace))
    if as_json:
        click.echo(json.dumps([vars(each) for each in costs], indent=2))
    else:
        click.echo(as_markdown(load_ms, idle, costs))
    if any(each.is_too_much for each in costs):
        sys.exit(1)
