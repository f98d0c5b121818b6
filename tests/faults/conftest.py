"""What the fault tests share: tables that no other test knows, on the server that many tests share."""

import itertools
from collections.abc import Callable

import pytest

from tests.support.server import RunningServer
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
