"""One store of each kind under the same promises: SQLite in a file and in memory, the others in an own database."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nunatak.database import mariadb as mariadb_driver
from nunatak.database.postgres import open_store
from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store
from tests.support import mariadb as mariadb_support
from tests.support.mariadb import MariadbServer, running_mariadb
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def run() -> Iterator[Run[Any]]:
    """Runs a coroutine in the event loop of this test."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all; nothing here cuts its power, so it need not wait for the disk."""
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The address of an empty database."""
    return postgres.new_database()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    """One server for all."""
    if mariadb_support.find_server() is None:
        pytest.skip(mariadb_support.NOT_INSTALLED)
    with running_mariadb() as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb: MariadbServer) -> str:
    """The address of an empty database."""
    return mariadb.new_database()


@pytest.fixture(params=["sqlite", "memory", "postgres", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path, run: Run[Any]) -> Iterator[Store]:
    opened: Store
    if request.param == "sqlite":
        opened = SqliteStore(tmp_path / "catalog.db")
    elif request.param == "memory":
        opened = SqliteStore(None)
    elif request.param == "postgres":
        opened = run(open_store(request.getfixturevalue("database")))
    else:
        opened = run(mariadb_driver.open_store(request.getfixturevalue("mariadb_database")))
    yield opened
    run(opened.close())
