"""`nunatak connect`: what it prints is what works; the snippets that can run here are run against a real server."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

import duckdb
import pytest

from nunatak.connect import ENGINES
from tests.support.catalogs.process import RunningServer, running_server
from tests.unit.cli.conftest import Run, run_command


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("warehouse", [None, "lakehouse_1"])
def test_every_engine_is_given_the_address_and_the_warehouse(engine: str, warehouse: str | None) -> None:
    chosen = () if warehouse is None else ("--warehouse", warehouse)

    printed = run_command("connect", engine, *chosen, NUNATAK_URI="http://catalog.example:9/").out

    assert "http://catalog.example:9" in printed
    assert "http://catalog.example:9//" not in printed
    assert ("lakehouse_1" in printed) == (warehouse is not None)


def test_an_unknown_engine_is_answered_with_the_known_ones() -> None:
    outcome = run_command("connect", "oracle")

    assert outcome.code == 2
    assert "'pyiceberg'" in outcome.err


def test_the_lines_for_pyiceberg_run(run: Run, shared_server: RunningServer, namespace: str) -> None:
    """003-63: two properties are enough."""
    script = run_command("connect", "pyiceberg", "--uri", shared_server.uri).out

    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert namespace in printed


def test_the_lines_for_curl_run(shared_server: RunningServer, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    config, listing, creation = run_command("connect", "curl", "--uri", shared_server.uri).out.splitlines()

    def shell(line: str) -> str:
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert '"endpoints"' in shell(config)
    shell(creation)
    assert '["demo"]' in shell(listing).replace(" ", "")


def test_the_lines_for_curl_stay_in_the_warehouse() -> None:
    printed = run_command("connect", "curl", "--warehouse", "a lab").out

    assert printed.count("/v1/a%20lab/namespaces") == 2
    assert "/v1/namespaces" not in printed


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("uri", ["catalog.example:9", "http://catalog.example:9/v1", "http://catalog.example:9/v1/"])
def test_an_address_is_printed_as_engines_need_it(engine: str, uri: str) -> None:
    printed = run_command("connect", engine, "--uri", uri)

    assert printed == run_command("connect", engine, "--uri", "http://catalog.example:9")


def in_duckdb(lines: str) -> list[tuple[object, ...]]:
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as connection:
        # The extension comes from its wheel, so the two lines that would download it are left out.
        for name in ("avro", "httpfs", "iceberg"):
            (extension,) = Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        return connection.execute(lines.removeprefix("INSTALL iceberg;\nLOAD iceberg;\n")).fetchall()


def test_the_lines_for_duckdb_run(shared_server: RunningServer, run: Run, namespace: str) -> None:
    """000-83"""
    run("table", "create", f"{namespace}.t", "--column", "id:long")
    lines = run_command("connect", "duckdb", "--uri", shared_server.uri).out
    shown = in_duckdb(lines)

    assert ("lake", namespace, "t") in [row[:3] for row in shown]


# With a login


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("secured") / "nunatak-data", auth=True) as server:
        yield server


@pytest.fixture(params=["client", "key"])
def login(request: pytest.FixtureRequest, secured: RunningServer) -> dict[str, str]:
    """What the environment of somebody holds who logs in by a client's secret, or by an API key."""
    way = {"client": ("NUNATAK_CREDENTIAL", secured.root.credential), "key": ("NUNATAK_TOKEN", secured.root.api_key)}
    return dict([way[request.param]])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("login", "words"), [("client", ("CLIENT-ID", "CLIENT-SECRET")), ("key", ("API-KEY",))])
def test_every_engine_is_shown_where_its_login_goes(engine: str, login: str, words: tuple[str, ...]) -> None:
    uri = "http://catalog.example:9"
    plain = run_command("connect", engine, "--uri", uri).out
    shown = run_command("connect", engine, "--uri", uri, "--login", login).out

    assert all(word in shown and word not in plain for word in words)
    assert (f"{uri}/v1/oauth/tokens" in shown) == (login == "client")


@pytest.mark.parametrize("engine", ENGINES)
def test_whoever_logs_in_is_shown_how_to_and_no_secret(engine: str, login: dict[str, str]) -> None:
    shown = run_command("connect", engine, **login).out

    assert ("CLIENT-SECRET" in shown) == ("NUNATAK_CREDENTIAL" in login)
    assert ("API-KEY" in shown) == ("NUNATAK_TOKEN" in login)
    assert not any(value.rpartition(":")[2] in shown for value in login.values())


def test_a_login_is_left_out_when_told_so(login: dict[str, str]) -> None:
    assert run_command("connect", "spark", "--login", "none", **login) == run_command("connect", "spark")


def test_a_secret_that_is_not_there_is_not_put_in() -> None:
    outcome = run_command("connect", "spark", "--login", "client", "--with-secret")

    assert outcome.code == 2
    assert "NUNATAK_CREDENTIAL" in outcome.err


def test_the_administrators_file_tells_that_a_login_is_needed_and_is_not_printed(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    run_command("init", "--data", data)
    secret = json.loads((tmp_path / "data" / "admin.json").read_text())["client-secret"]

    shown = run_command("connect", "pyiceberg", NUNATAK_DATA=data).out
    refused = run_command("connect", "pyiceberg", "--with-secret", NUNATAK_DATA=data)

    assert "CLIENT-ID:CLIENT-SECRET" in shown
    assert refused.code == 2
    assert secret not in shown + refused.out + refused.err


def test_the_lines_for_pyiceberg_run_with_a_login(secured: RunningServer, login: dict[str, str]) -> None:
    script = run_command("connect", "pyiceberg", "--uri", secured.uri, "--with-secret", **login).out

    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert printed.stdout.startswith("[")
    assert "oauth2-server-uri" not in printed.stderr  # no warning that its address was guessed


def test_the_lines_for_curl_run_with_a_login(secured: RunningServer, login: dict[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    shown = run_command("connect", "curl", "--uri", secured.uri, "--with-secret", **login).out
    name = f"curl_{uuid4().hex[:12]}"

    command = ["bash", "-c", shown.replace("demo", name)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert '"endpoints"' in printed
    assert f'"namespace":["{name}"]' in printed


def test_the_lines_for_duckdb_run_with_a_login(secured: RunningServer, login: dict[str, str]) -> None:
    assert in_duckdb(run_command("connect", "duckdb", "--uri", secured.uri, "--with-secret", **login).out) == []
