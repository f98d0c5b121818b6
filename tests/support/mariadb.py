"""A real MariaDB server with a data folder and a port of its own, from Debian's package or whatever is installed."""

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
from urllib.parse import quote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from tests.support.ports import free_port

START_SECONDS = 60
STOP_SECONDS = 30
MEMORY_BYTES = 1 << 30  # a server with an empty database takes a fifth
USER, PASSWORD = "nunatak", "s/cret"
# A catalog's user may do what it likes in its databases, and nothing else.
USERS = f"""
CREATE USER IF NOT EXISTS admin@localhost;
GRANT ALL ON *.* TO admin@localhost WITH GRANT OPTION;
CREATE USER IF NOT EXISTS {USER}@localhost IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON `test\\_%`.* TO {USER}@localhost;
"""
NOT_INSTALLED = "NOT RUN: no mariadbd here (Debian: apt-get install mariadb-server)"


def find_server() -> Path | None:
    """Debian keeps it out of the PATH of users."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found).resolve() if found and shutil.which("mariadb-install-db") else None


def _user() -> dict[str, Any]:
    """MariaDB refuses to run as root; its package brings a user."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam("mysql")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@dataclass
class MariadbServer:
    """Running until `stop` or `kill`; `start` begins again on the same data and port."""

    binary: Path
    folder: Path
    port: int
    options: tuple[str, ...]
    process: "subprocess.Popen[bytes] | None" = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str) -> str:
        return f"mariadb://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        settings = {
            "datadir": self.folder / "data",
            "bind-address": "127.0.0.1",
            "port": self.port,
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "tmpdir": self.folder / "tmp",
            # Names compare unlike their bytes do by default, so that nothing can rest on it.
            "character-set-server": "utf8mb4",
            "collation-server": "utf8mb4_general_ci",
            "init-file": self.folder / "users.sql",
            "innodb-buffer-pool-size": "32M",
            "innodb-log-file-size": "16M",
            "performance-schema": "OFF",
        }
        options = [f"--{name}={value}" for name, value in settings.items()] + [f"--{each}" for each in self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--no-defaults", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_user(),
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"MariaDB did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            ((folder,),) = self.execute("SELECT @@datadir")
        except pymysql.err.OperationalError:  # it does not listen yet, or ends connections while it starts
            return False
        return Path(folder) == self.folder / "data"  # or it is somebody else's

    def new_database(self) -> str:
        """An empty database; returns its address."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, sql: str, *values: object, url: str = "") -> list[tuple[Any, ...]]:
        """In that database, or in none of those that a catalog is kept in."""
        return execute(url or self.url("mysql"), sql, *values)

    def stop(self) -> None:
        """In order: sessions are ended, everything is written."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: the next start recovers from the log."""
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


def execute(url: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """On a connection of its own, several statements if need be; the rows of the last."""
    with contextlib.closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(sql, values or None)
        rows = list(cursor.fetchall())
        while cursor.nextset():
            rows = list(cursor.fetchall())
        return rows


def connect(url: str, **options: Any) -> Any:
    """A client that is not Nunatak and may do everything; each statement commits by itself unless told otherwise."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 0,
        user="admin",
        database=parts.path[1:],
        ssl_disabled=True,
        **{"autocommit": True, "client_flag": CLIENT.MULTI_STATEMENTS, **options},
    )


@contextlib.contextmanager
def running_mariadb(*options: str) -> Iterator[MariadbServer]:
    """A new server."""
    binary = find_server()
    if binary is None:
        raise RuntimeError(NOT_INSTALLED)
    folder = Path(tempfile.mkdtemp(prefix="nunatak-mariadb-", dir=_quick_folder()))
    server = MariadbServer(binary, folder, free_port(), options)
    try:
        user = _user()
        # A server that starts removes what it finds of temporary tables: in a shared folder, those of its neighbour.
        (folder / "tmp").mkdir()
        if user:
            for each in (folder, folder / "tmp"):
                os.chown(each, user["user"], user["group"])
        (folder / "users.sql").write_text(USERS)
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db"]
        install += ["--auth-root-authentication-method=normal"]
        environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
        made = subprocess.run(install, cwd=folder, env=environment, capture_output=True, check=False, **user)
        if made.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed: {(made.stdout + made.stderr).decode(errors='replace')}")
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _quick_folder() -> str | None:
    """Memory, where there is some: making tables waits for the disk, and no test cuts the machine's power."""
    memory = Path("/dev/shm")
    enough = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES
    return str(memory) if enough else None
