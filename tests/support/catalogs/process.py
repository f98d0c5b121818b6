"""A real server process: started on a free port, ended by its pid; it can be killed and restarted."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nunatak import server
from nunatak.access.vault import open_vault
from nunatak.settings import Settings
from tests.api.wire import Answer
from tests.support.catalogs.local import AUTH, create_administrator, settings_of
from tests.support.catalogs.principals import Principals

ROOT = Path(__file__).parents[3]
START_SECONDS = 60  # a cold start takes about half a second; a starved machine gets time


@dataclass(frozen=True)
class Start:
    """How a server was started; what it left behind is looked at after the test."""

    data: Path
    environment: dict[str, str]
    arguments: tuple[str, ...]
    broken: str | None


STARTED: list[Start] = []  # in this process, the oldest first


@dataclass
class RunningServer(Principals):
    """One `nunatak serve` process; `uri` is what a client is given, the part before `/v1`.

    `key` is the administrator's API key where the server has `auth`, and empty otherwise.
    """

    uri: str
    process: subprocess.Popen[bytes]
    started: Start
    key: str = field(default="", repr=False)
    restarts: list[float] = field(default_factory=list)  # seconds from each start to the first answer

    @property
    def port(self) -> int:
        return int(self.uri.rpartition(":")[2])

    @property
    def data(self) -> Path:
        return self.started.data

    @property
    def environment(self) -> dict[str, str]:
        return self.started.environment

    @property
    def log(self) -> Path:
        return log_of(self.data)

    @property
    def settings(self) -> Settings:
        return settings_of(self.data, self.environment)

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def restart(self) -> None:
        """Start anew on the data and the port of the process that ended, and return once the server is ready."""
        before = time.monotonic()
        self.close()
        self.uri, self.process = _start(self.started, self.port)
        self.expect(200, "GET", "/ready", authorization="")
        self.restarts.append(time.monotonic() - before)

    def close(self) -> None:
        """Let go of what the process printed."""
        assert self.process.stdout is not None
        self.process.stdout.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """By the administrator, where there is one, unless told otherwise; an empty `authorization` sends none."""
        if authorization is None:
            authorization = f"Bearer {self.key}" if self.key else ""
        sent = {"Authorization": authorization} if authorization else {}
        if isinstance(body, dict | list):
            sent["Content-Type"] = "application/json"
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, content, {**sent, **(headers or {})})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())


@contextlib.contextmanager
def running_server(
    data: Path,
    *,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    broken: str | None = None,
    auth: bool = False,
    key: str = "",
) -> Iterator[RunningServer]:
    """Start `nunatak serve` on `data`, and yield once it says where it listens.

    `broken` names one of the breakages of broken_server.py. With `auth`, embedded authentication is on and the
    database has an administrator, unless `key` is the API key of the one that is there already.
    """
    chosen = {**(AUTH if auth else {}), **(environment or {})}
    data.mkdir(parents=True, exist_ok=True)
    if auth and not key:
        key = asyncio.run(_bootstrap(settings_of(data, chosen)))
    started = Start(data, chosen, arguments, broken)
    uri, process = _start(started, port)
    running = RunningServer(uri, process, started, key)
    try:
        yield running
    finally:
        running.stop()
        running.close()


def _start(start: Start, port: int) -> tuple[str, subprocess.Popen[bytes]]:
    """The address and the process of a new server."""
    log = log_of(start.data)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [*command(start.broken), "serve", "--port", str(port), "--data", str(start.data), *start.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**clean, "PYTHONUNBUFFERED": "1", **_path(start.broken), **start.environment},
        )
    try:
        uri = await_address(process)
    except BaseException:
        process.kill()
        process.communicate()
        print(log.read_text(errors="replace")[-4000:])
        raise
    STARTED.append(start)
    return uri, process


async def _bootstrap(settings: Settings) -> str:
    async with server.open_database_read_only(settings, exclusive=True) as store:
        vault = open_vault(settings)
        await vault.unlock(store)
        return await create_administrator(store, vault, time.time_ns() // 1_000_000)


def log_of(data: Path) -> Path:
    """Where the server of a data folder writes what it logs."""
    return data.parent / f"{data.name}.server.log"


def command(broken: str | None = None) -> list[str]:
    """How the command line is started, with one of the breakages of broken_server.py if one is named."""
    module = ["nunatak"] if broken is None else ["tests.support.broken_server", broken]
    return [sys.executable, "-m", *module]


def _path(broken: str | None) -> dict[str, str]:
    return {} if broken is None else {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}


def await_address(process: subprocess.Popen[bytes]) -> str:
    """Where a server that was just started says that it listens."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    seen = b""
    while time.monotonic() < deadline:
        ready, _, _ = select.select([process.stdout], [], [], 0.2)
        if ready:
            chunk = os.read(process.stdout.fileno(), 65536)
            seen += chunk
            found = re.search(rb"listening on (https?://\S+)", seen)
            if found:
                return found.group(1).decode()
            if not chunk:
                break
        elif process.poll() is not None:
            break
    raise RuntimeError(f"the server did not start: exit {process.poll()}, printed {seen.decode(errors='replace')!r}")
