"""A real server process for tests: started on a free port, ended by its pid."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
class RunningServer:
    """One `nunatak serve` process; `uri` is what a client is given, the part before `/v1`."""

    uri: str
    process: subprocess.Popen[bytes]
    data: Path
    log: Path

    @property
    def port(self) -> int:
        return int(self.uri.rpartition(":")[2])

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


def start_server(
    data: Path,
    *,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    broken: str | None = None,
) -> RunningServer:
    """Start `nunatak serve` on `data` and return once it says where it listens; `broken` names one of the breakages."""
    data.mkdir(parents=True, exist_ok=True)
    log = data.parent / f"{data.name}.server.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [*command(broken), "serve", "--port", str(port), "--data", str(data), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**clean, "PYTHONUNBUFFERED": "1", **_path(broken), **(environment or {})},
        )
    try:
        uri = await_address(process)
    except BaseException:
        process.kill()
        process.communicate()
        print(log.read_text(errors="replace")[-4000:])
        raise
    STARTED.append(Start(data, dict(environment or {}), arguments, broken))
    return RunningServer(uri, process, data, log)


def command(broken: str | None = None) -> list[str]:
    """How the command line is started, with one of the breakages of broken_server.py if one is named."""
    module = ["nunatak"] if broken is None else ["tests.support.broken_server", broken]
    return [sys.executable, "-m", *module]


def _path(broken: str | None) -> dict[str, str]:
    return {} if broken is None else {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}


@contextlib.contextmanager
def running_server(
    data: Path,
    *,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    broken: str | None = None,
) -> Iterator[RunningServer]:
    server = start_server(data, port=port, environment=environment, arguments=arguments, broken=broken)
    try:
        yield server
    finally:
        server.stop()
        assert server.process.stdout is not None
        server.process.stdout.close()


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
