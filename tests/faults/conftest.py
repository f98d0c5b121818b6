"""What the fault tests share: tables that no other test knows, and a check of every catalog after every test (F23)."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from nunatak.errors import CatalogError
from nunatak.settings import SettingsError, load
from tests.support.catalogs.process import STARTED, RunningServer, Start
from tests.support.checked import assert_settings_sound
from tests.support.workload import create_tables

NUMBERS = itertools.count(1)

NewTables = Callable[[int], list[str]]


@pytest.fixture
def new_tables(shared_server: RunningServer) -> NewTables:
    """Makes so many empty tables and says their names."""

    def make(count: int) -> list[str]:
        names = [f"t{next(NUMBERS)}" for _ in range(count)]
        create_tables(shared_server.port, names)
        return names

    return make


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unsound(reason): the test damages its catalog on purpose; fsck is not asked")


@pytest.fixture(autouse=True)
def sound_catalogs(request: pytest.FixtureRequest) -> Iterator[None]:
    """F23: after the test, fsck finds nothing in the catalog of any server it started.

    A server that was broken on purpose may leave anything behind. A database that ended with the test cannot be asked
    here: such a test calls `assert_sound` itself while it runs.
    """
    before = len(STARTED)
    yield
    marker = request.node.get_closest_marker("unsound")
    if marker is not None:
        print(f"fsck is not asked: {marker.args[0]}")
        return
    started = {(str(each.data), each.environment.get("NUNATAK_DATABASE_URL", "")): each for each in STARTED[before:]}
    for start in started.values():
        if start.broken is None:
            _check(start)


def _check(start: Start) -> None:
    url = start.environment.get("NUNATAK_DATABASE_URL", "")
    if not url and not (start.data / "nunatak.db").exists():
        print(f"fsck is not asked: there is no database in {start.data} any more")
        return
    settings = load({"data": start.data}, {"NUNATAK_CONFIG": os.devnull, **start.environment})
    try:
        assert_settings_sound(settings)
    except (SettingsError, CatalogError) as error:
        if not url:
            raise
        print(f"fsck is not asked: the database is gone: {error}")
