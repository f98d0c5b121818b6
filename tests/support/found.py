"""What a catalog holds after a run: each table as the server, the disk and the commit log have it, for the checker."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from tests.support import mariadb, postgres
from tests.support.caller import Caller
from tests.support.history import FoundTable, LogLine

RESEND_SECONDS = 90  # a server that is not back by then will not come back
LOG_LINES = (
    "SELECT table_uuid, commit_id, metadata_location, previous_metadata_location, snapshot_id FROM nunatak_commits"
    " ORDER BY sequence"
)

Log = dict[str, list[LogLine]]


def find_tables(
    catalog: Path | str,
    port: int,
    names: Sequence[str],
    namespace: str = "faults",
    objects: Mapping[str, bytes] | None = None,
) -> list[FoundTable]:
    """Each table as the catalog, the disk and the commit log have it; `catalog` is a data folder or a database URL.

    `objects` are the files by location if they are not on this disk.
    """
    log = read_log(catalog)
    with Caller(port) as caller:
        return [_find_table(caller, log, f"/v1/namespaces/{namespace}/tables/{name}", name, objects) for name in names]


def read_log(catalog: Path | str) -> Log:
    """The commit log of each table, by its uuid."""
    if isinstance(catalog, str) and catalog.startswith("mariadb:"):
        rows = mariadb.execute(catalog, LOG_LINES)
    elif isinstance(catalog, str):
        rows = asyncio.run(postgres.execute(catalog, LOG_LINES))
    else:
        with database(catalog) as connection:
            rows = connection.execute(LOG_LINES).fetchall()
    log: Log = {}
    for table_uuid, *line in rows:
        log.setdefault(table_uuid, []).append(LogLine(*line))
    return log


def _find_table(caller: Caller, log: Log, path: str, name: str, objects: Mapping[str, bytes] | None) -> FoundTable:
    answer = caller.expect(200, "GET", f"{path}?snapshots=all")
    lines = tuple(log.get(answer["metadata"]["table-uuid"], ()))

    def read(location: str) -> bytes | None:
        if objects is not None:
            return objects.get(location)
        return local_path(location).read_bytes() if local_path(location).is_file() else None

    logged = [line.metadata_location for line in lines if line.metadata_location is not None]
    return FoundTable(
        name,
        answer["metadata-location"],
        answer["metadata"],
        read(answer["metadata-location"]),
        lines,
        tuple(location for location in logged if read(location) is None),
    )


@contextmanager
def database(data: Path) -> Iterator[apsw.Connection]:
    """The server's database, for looking only."""
    connection = apsw.Connection(str(data / "nunatak.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(10_000)
    try:
        yield connection
    finally:
        connection.close()


def tries(abandoned: threading.Event | None = None) -> Iterator[None]:
    """Again and again with a short pause, which grows: a server that comes back needs the processor itself."""
    deadline = time.monotonic() + RESEND_SECONDS
    pause = 0.02
    while time.monotonic() < deadline and not (abandoned is not None and abandoned.is_set()):
        yield
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)


def await_true(what: str, holds: Callable[[], bool]) -> None:
    """Wait for work that the server does after its answer."""
    for _ in tries():
        if holds():
            return
    raise AssertionError(f"still not true after {RESEND_SECONDS} seconds: {what}")


def await_jobs_done(data: Path) -> None:
    """Wait until the server has nothing left to clean up."""
    with database(data) as connection:
        await_true("no job is left", lambda: connection.execute("SELECT count(*) FROM nunatak_jobs").get == 0)


def local_path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
