"""Runs `nunatak serve` on a free local port for the demo."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from nunatak_spark.errors import CannotRun

START_SECONDS = 60  # it takes half a second; a loaded machine gets time
STOP_SECONDS = 30
LOOK_SECONDS = 0.05


@contextlib.contextmanager
def run_catalog(data: Path, log: Path, port: int = 0) -> Iterator[str]:
    """Starts a catalog for the block and yields its URI; its output goes to `log`.

    It gets default settings: NUNATAK_ variables of this shell may name a database that must not be touched.
    """
    place = ["--host", "127.0.0.1", "--port", str(port), "--data", str(data.resolve())]
    with log.open("wb") as out:
        # A process group of its own: Ctrl-C goes to the demo only, which then stops the catalog.
        process = subprocess.Popen(
            [sys.executable, "-m", "nunatak", "serve", *place],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=log.parent,
            env={name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")},
        )
    try:
        yield _address(process, log)
    finally:
        _end(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"^listening on (\S+)$", log.read_text("utf-8", errors="replace"), re.MULTILINE)
        if found:
            return found.group(1)
        time.sleep(LOOK_SECONDS)
    said = log.read_text("utf-8", errors="replace").strip().splitlines()
    raise CannotRun(f"The catalog did not start: {said[-1] if said else 'it printed nothing'}", fix=f"Look into {log}.")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
