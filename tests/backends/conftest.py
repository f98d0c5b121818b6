"""One store of each kind under the same promises; SQLite in a temporary file so far."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def run() -> Iterator[Run[Any]]:
    """Runs a coroutine in the event loop of this test."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(params=["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, run: Run[Any]) -> Iterator[Store]:
    assert request.param == "sqlite"
    opened = SqliteStore(tmp_path / "catalog.db")
    yield opened
    run(opened.close())
