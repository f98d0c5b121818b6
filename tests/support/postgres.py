"""A real PostgreSQL server with a data folder and a port of its own, from Debian's package or whatever is installed."""

import asyncio
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

OLDEST = 15
START_SECONDS = 30
STOP_SECONDS = 20
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

    def start(self) -> None:
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": ""}
        options = [f"-c{name}={value}" for name, value in settings.items()] + [f"-c{each}" for each in self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.folder / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_user(),
            )
        deadline = time.monotonic() + START_SECONDS
        ask = [self.binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ask, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
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
        self._signal(signal.SIGKILL)

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
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError(NOT_INSTALLED)
    folder = Path(tempfile.mkdtemp(prefix="nunatak-postgres-"))
    server = PostgresServer(binaries, folder, _free_port(), options)
    try:
        user = _user()
        if user:
            os.chown(folder, user["user"], user["group"])
        locale = ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
        initdb = [binaries / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust", "--no-sync", *locale]
        made = subprocess.run(initdb, cwd=folder, capture_output=True, check=False, **user)
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr.decode(errors='replace')}")
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
