"""The real Open Policy Agent for tests: built with Go once, kept in a cache, started on a free port, ended by its pid.

Also a command: `python -m tests.support.opa` builds it if need be and prints where it is.
"""

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.ports import free_port
from tests.support.tool_cache import INSTALL_SECONDS, ToolMissing, go_program

VERSION = "v1.22.0"
MODULE = "github.com/open-policy-agent/opa"
NOT_INSTALLED = "NOT RUN: the real OPA is built with Go, and `go` is not on the PATH"
BUILD_SECONDS = INSTALL_SECONDS  # some three minutes of two cores, once
START_SECONDS = 60


class OpaFailed(Exception):
    """It could not be started; the message ends with what it printed."""


def find_opa() -> Path | None:
    """The program, built if this is the first time; None if there is neither the program nor Go to build it."""
    try:
        # Without what fetches bundles from container registries.
        return go_program("opa", MODULE, VERSION, ["-tags=opa_no_oci"])
    except ToolMissing:
        return None


@contextlib.contextmanager
def running_opa(
    policies: Sequence[Path], log: Path, *, scheme: str = "http", options: Sequence[str] = ()
) -> Iterator[str]:
    """A server with these policies; yields its address."""
    program = find_opa()
    assert program is not None, NOT_INSTALLED
    address = f"127.0.0.1:{free_port()}"
    command = [str(program), "run", "--server", "--addr", address, "--skip-version-check", "--log-level", "error"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options, *map(str, policies)], stdout=output, stderr=output)
    try:
        _await_port(address, process, log)
        yield f"{scheme}://{address}"
    finally:
        process.kill()
        process.wait()


def replace_policy(address: str, name: str, text: str) -> None:
    """Give a running server other rules, as its API allows."""
    request = urllib.request.Request(f"{address}/v1/policies/{name}", data=text.encode(), method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        raise OpaFailed(error.read().decode(errors="replace")) from error


def _await_port(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise OpaFailed(f"OPA did not start: exit {process.poll()}\n{log.read_text(errors='replace')[-4000:]}")


if __name__ == "__main__":
    print(find_opa() or NOT_INSTALLED)
