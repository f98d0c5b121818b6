"""What every suite shares: a server of one's own, one that many tests share, and a way to be heard at the end."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.object_stores import AzureEmulator, GcsEmulator, S3Emulator, azurite, gcs, ministack, moto, seaweedfs
from tests.support.tool_cache import INSTALL_SECONDS, ToolMissing

Say = Callable[[str], None]
Emulator = TypeVar("Emulator")
# These install a program on its first use: minutes, on a machine without a cache of them.
EMULATORS = frozenset({"azure_store", "azure_oauth_store", "gcs_store"})
INSTALLING = re.compile(
    r"tests/engines/(s3/|test_(trino|flink|python_engines)\.py)|test_storages|emulators|/test_cedar|/test_opa"
)


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Say:
    """Something for whoever runs the tests to read when they are done, whichever process ran this one."""
    return lambda text: record_property("said", text)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for Java too long ends its process: an exception would go on to ask Java, and wait again.

    A test that may be the first to install an engine or a store gets the time for that, too.
    """
    for item in items:
        installs = INSTALLING.search(item.nodeid) or not EMULATORS.isdisjoint(getattr(item, "fixturenames", ()))
        if installs and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(INSTALL_SECONDS + 600))
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


@pytest.fixture(scope="session")
def ministack_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Emulator]:
    """S3 with STS and IAM: enforces session policies, demands an external id of whoever assumes the role."""
    with _or_skip(ministack(tmp_path_factory.mktemp("s3"))) as store:
        yield store


@pytest.fixture(scope="session")
def seaweedfs_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Emulator]:
    """S3 with STS of another make: enforces session policies, checks every signature."""
    with _or_skip(seaweedfs(tmp_path_factory.mktemp("s3"))) as store:
        yield store


@pytest.fixture(scope="session")
def moto_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Emulator]:
    """S3 with STS that enforces nothing: every key may do everything."""
    with moto(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="session", params=["ministack", "seaweedfs"])
def s3_store(request: pytest.FixtureRequest) -> S3Emulator:
    """Each make of S3 in turn."""
    store = request.getfixturevalue(f"{request.param}_store")
    assert isinstance(store, S3Emulator)
    return store


@pytest.fixture(scope="session")
def azure_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureEmulator]:
    """Azure's blob service over HTTP, with an account key."""
    with _or_skip(azurite(tmp_path_factory.mktemp("azure"))) as store:
        yield store


@pytest.fixture(scope="session")
def azure_oauth_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureEmulator]:
    """Azure's blob service over HTTPS, which takes tokens and gives out user delegation keys."""
    with _or_skip(azurite(tmp_path_factory.mktemp("azure"), oauth=True)) as store:
        yield store


@pytest.fixture(scope="session")
def gcs_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsEmulator]:
    """Google Cloud Storage, which enforces the access boundaries of downscoped tokens."""
    with _or_skip(gcs(tmp_path_factory.mktemp("gcs"))) as store:
        yield store


@contextlib.contextmanager
def _or_skip(store: AbstractContextManager[Emulator]) -> Iterator[Emulator]:
    """Skips the tests that need a store whose program cannot be installed here; the message says what is missing."""
    try:
        opened = store.__enter__()
    except ToolMissing as reason:
        pytest.skip(str(reason))
    try:
        yield opened
    finally:
        store.__exit__(None, None, None)
