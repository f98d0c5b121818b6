"""A real PostgreSQL server with a data folder and a port of its own, from Debian's package or whatever is installed;
its crashes, and a standby that follows it and can take over."""

import asyncio
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from tests.support.ports import free_port

OLDEST = 15
START_SECONDS = 30
STOP_SECONDS = 20
FLUSHERS = ["walwriter", "checkpointer", "background writer", "autovacuum launcher", "autovacuum worker"]
NOT_INSTALLED = f"NOT RUN: no initdb of PostgreSQL {OLDEST} or newer here (Debian: apt-get install postgresql)"


def find_binaries() -> Path | None:
    """The folder of initdb and postgres; Debian keeps it out of the PATH."""
    debian = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    for folder in sorted(debian, key=lambda path: -int(path.parent.name)):
        if int(folder.parent.name) >= OLDEST and (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root; its package brings a user."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam("postgres")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@dataclass
class PostgresServer:
    """Running until `stop` or `kill`; `start` begins again on the same data and port."""

    binaries: Path
    folder: Path
    port: int
    options: tuple[str, ...]
    process: "subprocess.Popen[bytes] | None" = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": ""}
        options = [f"-c{name}={value}" for name, value in settings.items()] + [f"-c{each}" for each in self.options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.folder / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_user(),
            )
        deadline = time.monotonic() + START_SECONDS
        ask: list[str | Path] = [self.binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ask, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def new_database(self) -> str:
        """An empty database; returns its address."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, sql: str, *values: object, url: str | None = None) -> list[tuple[Any, ...]]:
        """One statement on a connection of its own, or several without values."""
        return asyncio.run(execute(url or self.url(), sql, *values))

    def stop(self) -> None:
        """In order: sessions are ended, everything is written."""
        self._signal(signal.SIGINT)

    def stop_at_once(self) -> None:
        """What PostgreSQL calls immediate: the next start recovers from the log."""
        self._signal(signal.SIGQUIT)

    def kill(self) -> None:
        """kill -9 of the first process; the others notice, and until they have ended no new start is possible."""
        others = psutil.Process(self.process.pid).children() if self.process and self._is_running() else []
        self._signal(signal.SIGKILL)
        for other in others:
            if other.is_running() and other.status() == psutil.STATUS_STOPPED:
                other.kill()  # it cannot notice
        _, stubborn = psutil.wait_procs(others, STOP_SECONDS)
        for other in stubborn:
            other.kill()

    def stop_flushing(self) -> None:
        """From here on nothing reaches the disk but what a commit waits for: whoever else writes the log stands still.

        Only `kill` ends a server after that.
        """
        pids = self.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = ANY($1)", FLUSHERS)
        for (pid,) in pids:
            os.kill(pid, signal.SIGSTOP)

    def has_unflushed_commits(self) -> bool:
        """Whether a crash now loses something."""
        return self.execute("SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()") == [(True,)]

    def _is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # Replication

    def follow_with(self, standby: "PostgresServer", *, synchronous: bool) -> None:
        """Return once `standby` receives what is written here; from then on, if synchronous, a commit waits for it."""
        streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        self.await_rows(streaming, [(1,)])
        if synchronous:
            self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.execute("SELECT pg_reload_conf()")
            self.await_rows(f"{streaming} AND sync_state = 'sync'", [(1,)])
        assert standby.execute("SELECT pg_is_in_recovery()") == [(True,)]

    def freeze_replication(self) -> None:
        """Nothing more leaves this server; whoever follows it hears nothing and keeps waiting."""
        for (pid,) in self.execute("SELECT pid FROM pg_stat_replication"):
            os.kill(pid, signal.SIGSTOP)

    def thaw_replication(self) -> None:
        for (pid,) in self.execute("SELECT pid FROM pg_stat_replication"):
            os.kill(pid, signal.SIGCONT)

    def promote(self) -> None:
        """Stop following and take over; returns once it can be written."""
        self.execute("SELECT pg_promote()")
        self.await_rows("SELECT pg_is_in_recovery()", [(False,)])

    def await_rows(self, sql: str, wanted: list[tuple[Any, ...]], *, url: str | None = None) -> None:
        """Ask until the answer is the one that is wanted."""
        deadline = time.monotonic() + START_SECONDS
        while (found := self.execute(sql, url=url)) != wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL answers {found} instead of {wanted} to: {sql}")
            time.sleep(0.02)

    @contextlib.contextmanager
    def holding(self, url: str, sql: str) -> Iterator[None]:
        """Inside the block a transaction holds the locks that the statement takes."""
        with asyncio.Runner() as runner:
            connection = runner.run(asyncpg.connect(url))
            try:
                runner.run(connection.execute(f"BEGIN; {sql}"))
                yield
                runner.run(connection.execute("COMMIT"))
            finally:
                runner.run(connection.close())

    def _signal(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


async def execute(url: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        if not values and ";" in sql:
            await connection.execute(sql)
            return []
        return [tuple(row) for row in await connection.fetch(sql, *values)]
    finally:
        await connection.close()


@contextlib.contextmanager
def running_postgres(*options: str) -> Iterator[PostgresServer]:
    """A new server. Its locale orders names unlike their bytes do, so that nothing can rest on the default order."""
    locale = ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
    initdb = ["initdb", "-U", "postgres", "--auth=trust", "--no-sync", *locale]
    with _made_by(initdb, free_port(), options) as server:
        yield server


@contextlib.contextmanager
def running_standby(primary: PostgresServer, *, port: int = 0) -> Iterator[PostgresServer]:
    """A server that begins as a copy of `primary` and follows it."""
    copy = ["pg_basebackup", "-R", "-c", "fast", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
    with _made_by([*copy, "--no-sync"], port or free_port(), primary.options) as server:
        yield server


@contextlib.contextmanager
def _made_by(command: list[str], port: int, options: tuple[str, ...]) -> Iterator[PostgresServer]:
    """A server on the data folder that the command makes."""
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError(NOT_INSTALLED)
    folder = Path(tempfile.mkdtemp(prefix="nunatak-postgres-"))
    server = PostgresServer(binaries, folder, port, options)
    try:
        user = _user()
        if user:
            os.chown(folder, user["user"], user["group"])
        make: list[str | Path] = [binaries / command[0], "-D", folder / "data", *command[1:]]
        made = subprocess.run(make, cwd=folder, capture_output=True, check=False, **user)
        if made.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {made.stderr.decode(errors='replace')}")
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
