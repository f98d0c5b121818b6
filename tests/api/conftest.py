"""Fixtures of the API suites: a server in this process for each test, with or without settings of its own."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.catalogs.local import LocalCatalog

MakeCatalog = Callable[..., LocalCatalog]

# Nothing here is about power cuts, and waiting for a disk is most of what these tests would do.
_MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder for this test, in memory where the machine offers that."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="nunatak-test-", dir=place) as folder:
        yield Path(folder)


@pytest.fixture
def make_catalog(quick_folder: Path) -> Iterator[MakeCatalog]:
    """Makes a catalog with environment variables given as keywords, without their prefix and in lower case."""
    made: list[LocalCatalog] = []

    def make(**environment: str) -> LocalCatalog:
        variables = {f"NUNATAK_{name.upper()}": value for name, value in environment.items()}
        made.append(LocalCatalog(quick_folder / f"data{len(made)}", variables))
        return made[-1]

    yield make
    for catalog in made:
        catalog.close()


@pytest.fixture
def catalog(make_catalog: MakeCatalog) -> LocalCatalog:
    """An empty catalog with the default settings and one namespace, `ns`."""
    made = make_catalog()
    made.namespace("ns")
    return made
