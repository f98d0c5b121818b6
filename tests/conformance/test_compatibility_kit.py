"""The official compatibility kit, every switch at its strictest: no test fails, and none is skipped that could run."""

from pathlib import Path

import pytest

from tests.conftest import Say
from tests.support import mariadb
from tests.support.catalogs.cluster import running_cluster
from tests.support.catalogs.process import running_server
from tests.support.cluster_clients import round_robin
from tests.support.java.project import missing_tools
from tests.support.kit import NEVER_RUN, ONLY_OPENED, Result, run_kit, summary
from tests.support.postgres import NOT_INSTALLED, find_binaries, running_postgres

pytestmark = [pytest.mark.java, pytest.mark.slow]

# The kit asks for locations below this folder; they are constants in its source.
ALLOWED = {"NUNATAK_ALLOWED_LOCATIONS": "file:///tmp"}
PUBLISHED = 157  # executions of version 1.11.0: 106 for tables, 51 for views


TOKEN_SECONDS = 10  # less than a suite takes; Java gets another token when a tenth is left
LOGINS = 5  # of the kit, with tokens that outlive it

VARIANTS = ("sqlite", "logged in", "signed", "postgres", "two servers on postgres", "mariadb")


@pytest.fixture(scope="module", params=VARIANTS)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    if (reason := missing_tools()) is not None:
        pytest.skip(f"NOT RUN: the compatibility kit ({reason})")
    if request.param == "sqlite":
        return _run(tmp_path_factory.mktemp("kit"), {})
    if request.param == "logged in":
        return _run_logged_in(tmp_path_factory.mktemp("kit"))
    if request.param == "signed":
        return _run_signed(tmp_path_factory.mktemp("kit"))
    if request.param == "mariadb":
        if mariadb.find_server() is None:
            pytest.skip(mariadb.NOT_INSTALLED)
        with mariadb.running_mariadb() as database:
            return _run(tmp_path_factory.mktemp("kit"), {"NUNATAK_DATABASE_URL": database.new_database()})
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as postgres:
        if request.param == "two servers on postgres":
            return _run_on_two(tmp_path_factory.mktemp("kit"), postgres.new_database())
        return _run(tmp_path_factory.mktemp("kit"), {"NUNATAK_DATABASE_URL": postgres.new_database()})


def _run(folder: Path, environment: dict[str, str]) -> list[Result]:
    with running_server(folder / "data", environment=ALLOWED | environment) as server:
        return run_kit(server.uri, folder / "work")


def _run_logged_in(folder: Path) -> list[Result]:
    """By client id and secret, with tokens that end again and again while the kit runs."""
    environment = ALLOWED | {"NUNATAK_TOKEN_SECONDS": str(TOKEN_SECONDS)}
    with running_server(folder / "data", environment=environment, auth=True) as server:
        client = server.principal("kit", warehouse="WAREHOUSE_ADMIN")
        properties = {"credential": client.credential, "oauth2-server-uri": server.token_uri, "scope": "catalog"}
        results = run_kit(server.uri, folder / "work", properties=properties)
        assert server.tokens_issued() > LOGINS
        assert server.turned_away() == 0
    return results


def _run_signed(folder: Path) -> list[Result]:
    """With an access key, by which the Java client signs each request."""
    with running_server(folder / "data", environment=ALLOWED, auth=True) as server:
        key, secret = server.principal("kit", warehouse="WAREHOUSE_ADMIN").access_key
        properties = {
            "rest.sigv4-enabled": "true",
            "rest.signing-name": "execute-api",
            "rest.signing-region": "eu-north-1",
            "rest.access-key-id": key,
            "rest.secret-access-key": secret,
        }
        results = run_kit(server.uri, folder / "work", properties=properties)
        assert server.tokens_issued() == 0
    return results


def _run_on_two(folder: Path, url: str) -> list[Result]:
    """Each request goes to the server that did not get the one before."""
    with running_cluster(folder / "data", url, environment=ALLOWED) as cluster, round_robin(cluster.ports) as proxy:
        results = run_kit(f"http://127.0.0.1:{proxy.port}", folder / "work")
    assert min(proxy.counts.values()) > len(results)
    return results


def test_no_test_of_the_kit_fails(results: list[Result], say: Say) -> None:
    say(summary(results))

    failed = [f"{result.suite}.{result.test}: {result.message}" for result in results if result.outcome == "failed"]
    assert not failed, "\n".join(failed)


def test_the_whole_kit_ran_and_the_opened_tests_on_top(results: list[Result]) -> None:
    ours = {result.method for result in results if result.suite == "OpenedKitTests"}

    assert len(results) == PUBLISHED + len(ONLY_OPENED)
    assert ours == ONLY_OPENED


def test_only_what_no_server_can_run_is_skipped(results: list[Result]) -> None:
    skipped = {result.method for result in results if result.outcome == "skipped"}
    passed = {result.method for result in results if result.outcome == "passed"}

    assert skipped == NEVER_RUN | ONLY_OPENED
    assert skipped - passed == NEVER_RUN
