"""Which servers are measured: a fresh Nunatak, the Java reference, or one that runs already."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from tests.support.catalogs.process import running_server
from tests.support.reference import reference_server

NUNATAK = "nunatak"
REFERENCE = "reference"
# The tests start the reference with a quick and modest JVM; it is measured with all of its compiler and more memory.
# This variable is the one that beats what the command line says.
REFERENCE_JVM = {"_JAVA_OPTIONS": "-XX:TieredStopAtLevel=4 -Xmx1g"}
GIVEN = re.compile(r"(?P<name>[\w.-]+)=(?P<uri>http://[^;]+)(?:;pid=(?P<pid>\d+))?")


@dataclass(frozen=True)
class Server:
    name: str
    uri: str
    pid: int | None  # unknown for a server that was given without: then CPU and memory are not measured


@dataclass(frozen=True)
class Candidate:
    """A server that can be started; `is_ours` means that it may be stopped and started again."""

    name: str
    start: Callable[[], AbstractContextManager[Server]]
    is_ours: bool


def nunatak(folder: Path) -> Candidate:
    @contextlib.contextmanager
    def start() -> Iterator[Server]:
        with running_server(folder / NUNATAK) as started:
            yield Server(NUNATAK, started.uri, started.process.pid)

    return Candidate(NUNATAK, start, is_ours=True)


def reference(folder: Path) -> Candidate:
    @contextlib.contextmanager
    def start() -> Iterator[Server]:
        os.environ.update(REFERENCE_JVM)
        with reference_server(folder / REFERENCE, backend="sqlite") as started:
            yield Server(REFERENCE, started.uri, started.pid)

    return Candidate(REFERENCE, start, is_ours=True)


def given(text: str) -> Candidate:
    """A running server from NAME=URI[;pid=N]; raises ValueError for anything else."""
    found = GIVEN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not NAME=http://HOST:PORT[/PATH][;pid=N]")
    pid = None if found["pid"] is None else int(found["pid"])
    server = Server(found["name"], found["uri"].rstrip("/"), pid)
    return Candidate(server.name, lambda: contextlib.nullcontext(server), is_ours=False)


def cold_start_seconds(candidate: Candidate) -> float:
    """From starting the process to its first answer, with whatever it has to remember; it is stopped again."""
    began = time.perf_counter()
    with candidate.start() as server:
        with urlopen(f"{server.uri}/v1/config", timeout=30) as answer:
            assert answer.status == 200
        return time.perf_counter() - began
