"""Telemetry for Spark: records buffered in memory, then JSON lines in files that a job ingests. No request waits.

A file `<folder>/<kind>/<date>/<node>-<pid>-<process>-<number>.jsonl` gets its name only when it is complete. Changes
come from the outbox (outbox.py), which writes whole files, so that a crash loses none. Other records (refusals,
reports, loads, denials) are buffered: a crash loses those since the last file, at most ROTATE_SECONDS.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from nunatak.database.records import Key

log = logging.getLogger(__name__)

Kind = Literal["events", "commit_reports", "scan_reports", "audit", "table_loads"]
Fields = Mapping[str, Any]
Record = Fields | Callable[[], tuple[Kind, Fields]]  # a function is called in the writer thread, off the event loop

FLUSH_SECONDS = 1.0
ROTATE_SECONDS = 10.0
ROTATE_BYTES = 8 * 1024 * 1024
LOADS_SECONDS = 60.0
TRIM_SECONDS = 60.0
MAX_RECORDS = 50_000  # buffered between two flushes; further records are counted and dropped
MAX_BYTES = 32 * 1024 * 1024  # the same for the bytes of request bodies that records keep alive
OLDEST_SECONDS = 14 * 86_400  # ingestion runs at least every week
ABANDONED_SECONDS = 3600  # a file still unfinished after this long was left behind by a crash
FOLDER_MODE, FILE_MODE = 0o700, 0o600
ENDING, UNFINISHED = ".jsonl", ".tmp"  # Spark ignores names that begin with a dot


@dataclass
class _File:
    """Buffered lines of a future file."""

    began: float
    lines: list[bytes] = field(default_factory=list)
    size: int = 0


class Spool:
    """One per process. `add` is for the event loop's thread and takes a microsecond; files are written in another."""

    def __init__(
        self,
        folder: Path,
        process: str,
        now_ms: Callable[[], int],
        limit_bytes: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped = 0
        self.loads: dict[str, list[Any]] = {}  # by metadata location, whose hash is cached: the table and its loads
        self.node = re.sub(r"[^A-Za-z0-9.]+", "_", socket.gethostname()) or "unnamed"
        self._folder, self._process, self._limit_bytes = folder, process, limit_bytes
        self._now_ms, self._monotonic = now_ms, monotonic
        self._waiting: list[tuple[Kind, int, Record]] = []
        self._waiting_bytes = 0
        self._files: dict[Kind, _File] = {}
        self._numbered = 0
        self._written = 0
        self._loads_taken = self._trimmed = monotonic()
        self._fails = False
        self._one_at_a_time = threading.Lock()

    def add(self, kind: Kind, record: Record, size: int = 0) -> None:
        """Buffers a record; `size` is the number of bytes of a request body that it keeps alive."""
        if len(self._waiting) >= MAX_RECORDS or self._waiting_bytes + size > MAX_BYTES:
            self.dropped += 1
            return
        self._waiting_bytes += size
        self._waiting.append((kind, self._now_ms(), record))

    def count_load(self, metadata_location: str, key: Key) -> None:
        """Counts a load of a table; only the number of loads is reported, each minute."""
        known = self.loads.get(metadata_location)
        if known is not None:
            known[1] += 1
        elif len(self.loads) < MAX_RECORDS:
            self.loads[metadata_location] = [key, 1]

    async def flush(self, *, finish: bool = False) -> None:
        """Turns records into lines, and lines that are old enough into files; with `finish`, all lines."""
        taken = self._take(finish=finish)
        await asyncio.to_thread(self._write, taken, finish=finish)

    def _take(self, *, finish: bool) -> list[tuple[Kind, int, Record]]:
        now = self._monotonic()
        if finish or now - self._loads_taken >= LOADS_SECONDS:
            self._loads_taken = now
            for fields in _loads_by_table(self.loads.values()):
                self.add("table_loads", fields)
            self.loads.clear()
        taken, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return taken

    def _write(self, taken: list[tuple[Kind, int, Record]], *, finish: bool) -> None:
        with self._one_at_a_time:
            for kind, at_ms, record in taken:
                self._add_line(kind, at_ms, record)
            now = self._monotonic()
            for kind, file in list(self._files.items()):
                if finish or now - file.began >= ROTATE_SECONDS:
                    self._finish(kind)
            if now - self._trimmed >= TRIM_SECONDS:
                self._trimmed = now
                self.trim()

    def _add_line(self, kind: Kind, at_ms: int, record: Record) -> None:
        self._numbered += 1
        try:
            if callable(record):
                kind, record = record()
            line = self.line(f"{self._process}-{self._numbered}", at_ms, record)
        except Exception:  # clients' data may fail in any way; it must not block the records of others
            log.debug("a record of the spool cannot be written", exc_info=True)
            self.dropped += 1
            return
        file = self._files.get(kind)
        if file is None:
            file = self._files[kind] = _File(self._monotonic())
        file.lines.append(line)
        file.size += len(line) + 1
        if file.size >= ROTATE_BYTES:
            self._finish(kind)

    def line(self, event_id: str, at_ms: int, fields: Fields) -> bytes:
        """Returns a record as a line of JSON, without line feed."""
        return msgspec.json.encode({"event_id": event_id, "at": _time(at_ms), "node": self.node, **fields})

    def write_file(self, kind: Kind, lines: Sequence[bytes]) -> bool:
        """Writes lines to a file that survives a power failure; returns whether it could. Runs in a thread."""
        with self._one_at_a_time:
            return self._try_to_write(kind, lines, durable=True)

    def _finish(self, kind: Kind) -> None:
        lines = self._files.pop(kind).lines
        if not self._try_to_write(kind, lines):
            self.dropped += len(lines)

    def _try_to_write(self, kind: Kind, lines: Sequence[bytes], *, durable: bool = False) -> bool:
        try:
            self._write_file(kind, lines, durable=durable)
        except OSError as error:
            if not self._fails:
                log.warning("the telemetry spool cannot be written; changes wait, the rest is lost: %s", error)
            self._fails = True
            return False
        self._fails = False
        return True

    def _write_file(self, kind: Kind, lines: Sequence[bytes], *, durable: bool) -> None:
        """Writes the file under a temporary name and renames it: no reader ever sees a part of it."""
        self._written += 1
        name = f"{self.node}-{os.getpid()}-{self._process[:8]}-{self._written:06}{ENDING}"
        folder = self._folder / kind / _time(self._now_ms())[:10]
        unfinished = folder / f".{name}{UNFINISHED}"
        try:
            make_private_folders(folder, self._folder)
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "wb") as out:
                out.write(b"\n".join((*lines, b"")))
                if durable:
                    out.flush()
                    os.fsync(out.fileno())
            unfinished.rename(folder / name)
            if durable:
                _sync_folder(folder)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    def trim(self) -> None:
        """Deletes the oldest files beyond the size limit, files that are too old, and leftovers of crashes."""
        oldest = time.time() - OLDEST_SECONDS
        files = sorted(_files(self._folder))
        excess = sum(size for _, size, _ in files) - self._limit_bytes
        for written, size, path in files:
            if excess <= 0 and written >= oldest:
                break
            excess -= size
            with contextlib.suppress(OSError):
                lines = path.read_bytes().count(b"\n")
                path.unlink()
                self.dropped += lines
        _tidy(self._folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private_folders(folder: Path, above: Path) -> None:
    """Makes `folder`, `above` and the folders between for their owner only: records name tables and principals."""
    between = folder.relative_to(above).parts
    for depth in range(len(between) + 1):
        above.joinpath(*between[:depth]).mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def _loads_by_table(counted: Any) -> Iterator[Fields]:
    """Sums the loads by table: a table committed to meanwhile was counted under several locations."""
    sums: dict[Key, int] = {}
    for key, count in counted:
        sums[key] = sums.get(key, 0) + count
    for key, count in sums.items():
        yield {"warehouse": key.catalog, "namespace": key.namespace, "table_name": key.name, "loads": count}


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yields the finished files: time written, size, path."""
    for path in folder.glob(f"*/*/*{ENDING}"):
        with contextlib.suppress(OSError):  # ingested meanwhile
            found = path.stat()
            yield found.st_mtime, found.st_size, path


def _tidy(folder: Path) -> None:
    now = time.time()
    for path in folder.glob(f"*/*/.*{UNFINISHED}"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > ABANDONED_SECONDS:
                path.unlink()
    for day in folder.glob("*/*"):
        with contextlib.suppress(OSError):  # it is not empty, or already deleted
            if now - day.stat().st_mtime > 2 * 86_400:
                day.rmdir()


def _time(at_ms: int) -> str:
    seconds, millis = divmod(at_ms, 1000)
    return f"{_second(seconds)}.{millis:03}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    """Cached, because consecutive records often share a second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


async def run_spool(spool: Spool) -> None:
    """Flushes every second until cancelled; the server writes the rest when it closes."""
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        try:
            await spool.flush()
        except Exception:  # any failure: the next flush may succeed, and the server must go on
            log.exception("telemetry cannot be written now")
