"""Fixtures every suite shares: a server of one's own, and one that many tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import RunningServer, running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A fresh server with an empty catalog, for this test alone."""
    with running_server(tmp_path / "nunatak-data") as started:
        yield started


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for many tests; each test works in a namespace of its own."""
    with running_server(tmp_path_factory.mktemp("shared") / "nunatak-data") as started:
        yield started


@pytest.fixture(scope="session")
def cache_folder() -> Path:
    """Downloads that survive a run: jars, class paths, archives."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nunatak"
    root.mkdir(parents=True, exist_ok=True)
    return root
