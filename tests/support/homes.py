"""Where a catalog lives, for tests that mean every database: a data folder, and its rows in SQLite or PostgreSQL."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from nunatak.checks import DATABASE_FILE
from tests.support import postgres
from tests.support.catalogs.process import command
from tests.support.workload import NAMESPACE, SCHEMA, TABLES, Caller, append_to


@dataclass(frozen=True)
class Home:
    data: Path
    url: str | None  # of the PostgreSQL database; None is SQLite in the data folder
    warehouse: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a server is told to find it."""
        where = {} if self.url is None else {"NUNATAK_DATABASE_URL": self.url}
        return {"NUNATAK_DATA": str(self.data), "NUNATAK_WAREHOUSE": f"file://{self.warehouse}", **where}

    @property
    def catalog(self) -> Path | str:
        """As found.py takes it."""
        return self.data if self.url is None else self.url

    @property
    def database(self) -> Path | str:
        """As the functions of `nunatak.database.backup` take it."""
        return self.data / DATABASE_FILE if self.url is None else self.url

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """One statement on a connection of its own."""
        if self.url is not None:
            return asyncio.run(postgres.execute(self.url, sql))
        with contextlib.closing(apsw.Connection(str(self.database))) as connection:
            connection.set_busy_timeout(10_000)
            return connection.execute(sql).fetchall()

    def load(self, script: str) -> None:
        """Run a script of many statements, as psql or the sqlite shell would."""
        if self.url is None:
            self.execute(script)
        else:
            asyncio.run(postgres.execute(self.url, f"{script};"))

    def schema(self) -> list[tuple[Any, ...]]:
        """All that a migration could change about the tables, in a form that can be compared."""
        if self.url is None:
            return self.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
        columns = (
            "SELECT table_name::text, column_name::text, data_type::text, is_nullable::text, column_default::text,"
            " collation_name::text FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"
        )
        indexes = "SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
        return self.execute(columns) + self.execute(indexes)

    def nunatak(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The command line with this place as its settings."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
        return subprocess.run(
            [*command(), *arguments],
            env={**clean, **self.environment, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


class Homes:
    """Makes empty ones of one kind."""

    def __init__(self, kind: str, folder: Path, server: "postgres.PostgresServer | None") -> None:
        self.kind = kind
        self._folder = folder
        self._server = server

    def new(self, name: str, warehouse: Path | None = None) -> Home:
        """Its tables lie in a folder of its own unless another is named."""
        data = self._folder / name
        data.mkdir()
        url = None if self._server is None else self._server.new_database()
        return Home(data, url, warehouse or data / "warehouse")


def lives(port: int) -> None:
    """Create, read, commit, rename and drop on a catalog with tables of the workload in it."""
    with Caller(port) as caller:
        caller.expect(200, "GET", "/ready")
        metadata = caller.expect(200, "POST", TABLES, {"name": "made", "schema": SCHEMA})["metadata"]
        caller.expect(200, "POST", f"{TABLES}/made", append_to("made", metadata, 11, "of its own"))
        source, to = ({"namespace": [NAMESPACE], "name": name} for name in ("made", "moved"))
        caller.expect(204, "POST", "/v1/tables/rename", {"source": source, "destination": to})
        assert caller.expect(200, "GET", f"{TABLES}/moved")["metadata"]["current-snapshot-id"] == 11
        caller.expect(204, "DELETE", f"{TABLES}/moved?purgeRequested=true")
        listed = [each["name"] for each in caller.expect(200, "GET", TABLES)["identifiers"]]
        assert "moved" not in listed
        old = caller.expect(200, "GET", f"{TABLES}/{listed[0]}")["metadata"]
        caller.expect(200, "POST", f"{TABLES}/{listed[0]}", append_to(listed[0], old, 12, "on what was there"))
        caller.expect(204, "DELETE", f"{TABLES}/{listed[0]}")
