"""What every suite shares: a server of one's own, one that many tests share, and a way to be heard at the end."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.catalogs.process import RunningServer, running_server

Say = Callable[[str], None]


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Say:
    """Something for whoever runs the tests to read when they are done, whichever process ran this one."""
    return lambda text: record_property("said", text)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for Java too long ends its process: an exception would go on to ask Java, and wait again."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            limit = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(*(limit.args if limit else ()), method="thread"), append=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, text in report.user_properties:
                if name == "said":
                    terminalreporter.write_line(f"{report.nodeid}: {text}")


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
