"""Programs that tests start: with a log file, awaited until they answer, ended by their pid."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

START_SECONDS = 120  # seconds on a quiet machine; a starved one gets time
STOP_SECONDS = 3  # SeaweedFS would take half a minute
LOG_SHOWN_CHARACTERS = 4000


class StartFailed(Exception):
    """The program ended, or did not answer in time; the message ends with its log."""


@contextlib.contextmanager
def running_process(
    name: str,
    command: Sequence[str],
    is_ready: Callable[[], bool],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program in `folder`, which gets its log, and yields the process once it is ready.

    It does not see the AWS_ variables of this process: a program without credentials must not find ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**inherited, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _await_ready(process, is_ready, name, log)
        yield process
    finally:
        _stop(process)


def _await_ready(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], name: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if is_ready():
            return
        time.sleep(0.05)
    written = log.read_text(errors="replace")[-LOG_SHOWN_CHARACTERS:]
    raise StartFailed(f"{name} did not start (exit status {process.poll()}):\n{written}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def answers_200(url: str) -> Callable[[], bool]:
    """Returns a check whether a GET of the URL is answered with 200."""

    def check() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return check


def accepts_connections(port: int) -> Callable[[], bool]:
    """Returns a check whether something listens on a port of this machine."""

    def check() -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return check
