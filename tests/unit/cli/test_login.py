"""What a command logs in with: the administrator's secret goes to the server of its own data folder alone."""

import http.server
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nunatak.address_file import Address, find_address, publish_address
from nunatak.cli.login import CommandLogin, find_login
from nunatak.client import ClientCredential
from tests.support.catalogs.process import RunningServer, running_server
from tests.unit.cli.conftest import run_command

pytestmark = pytest.mark.slow

EMBEDDED = {"NUNATAK_AUTH": "embedded"}


@contextmanager
def an_impostor(host: str = "127.0.0.1") -> Iterator[tuple[int, list[bytes]]]:
    """A server that is not ours, asks everybody to log in, and keeps what it is sent."""
    heard: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            heard.append(str(self.headers).encode() + self.rfile.read(length))
            body = b'{"error": {"message": "Log in", "type": "NotAuthorizedException", "code": 401}}'
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None: ...

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    server = Server((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], heard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("login") / "nunatak-data"
    assert run_command("init", "--data", str(folder), NUNATAK_CONFIG=os.devnull).code == 0
    return folder


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[RunningServer]:
    with running_server(data, environment=EMBEDDED) as running:
        yield running


def secret_of(data: Path) -> str:
    return str(json.loads((data / "admin.json").read_text())["client-secret"])


def found(data: Path, uri: str, **environment: str) -> CommandLogin:
    return find_login(uri, {"NUNATAK_DATA": str(data), **environment})


def test_the_file_is_for_the_server_of_its_folder(server: RunningServer, data: Path) -> None:
    login = found(data, server.uri)

    assert login.credential is not None
    assert login.credential.secret == secret_of(data)
    assert found(data, f"{server.uri}/v1") == login
    assert found(data, server.uri.removeprefix("http://")) == login


@pytest.mark.parametrize("how", ["another port", "https", "another host", "a name", "no address"])
def test_the_file_is_for_no_other_address(server: RunningServer, data: Path, how: str) -> None:
    uri = {
        "another port": f"http://127.0.0.1:{server.port + 1}",
        "https": f"https://127.0.0.1:{server.port}",
        "another host": f"http://127.0.0.2:{server.port}",
        "a name": f"http://catalog.invalid:{server.port}",
        "no address": "http://127.0.0.1:notaport",
    }[how]

    assert found(data, uri) == CommandLogin()


def test_a_name_with_a_further_address_is_not_the_server(data: Path) -> None:
    own = Address("c", "http://127.0.0.1:8181")
    every = {each[4][0] for each in socket.getaddrinfo("localhost", 8181, type=socket.SOCK_STREAM)}

    assert own.answers("http://localhost:8181") == (every == {"127.0.0.1"})
    assert Address("c", "http://0.0.0.0:8181").answers("http://127.0.0.1:8181")
    assert Address("c", "http://[::]:8181").answers("http://[::1]:8181")
    assert not Address("c", "http://0.0.0.0:8181").answers("http://[::1]:8181")
    assert not own.answers("http://127.0.0.1.nip.invalid:8181")


@pytest.mark.parametrize(
    "command",
    [
        ("namespace", "list"),
        ("principal", "list"),
        ("spark", "doctor"),
        ("job", "list"),
        ("health",),
    ],
)
def test_no_command_tells_the_secret_to_a_server_that_is_not_the_catalog(data: Path, command: tuple[str, ...]) -> None:
    with an_impostor() as (port, heard):
        outcome = run_command(*command, "--uri", f"http://127.0.0.1:{port}", NUNATAK_DATA=str(data))

    assert outcome.code != 0
    assert heard
    secrets = json.loads((data / "admin.json").read_text())
    assert not [each for each in heard if secrets["client-secret"].encode() in each or b"Basic" in each]
    assert secrets["client-secret"] not in outcome.out + outcome.err


def test_a_server_that_is_gone_is_told_nothing_even_if_it_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert run_command("init", "--data", str(folder), NUNATAK_CONFIG=os.devnull).code == 0
    with running_server(folder, environment=EMBEDDED) as running:
        uri = running.uri
        assert found(folder, uri).credential is not None
        running.kill()
    assert list(folder.glob("address-*.json")), "a kill leaves the file behind, or this shows nothing"

    assert found(folder, uri) == CommandLogin()
    with running_server(folder, environment=EMBEDDED):
        assert len(list(folder.glob("address-*.json"))) == 1
    assert list(folder.glob("address-*.json")) == []


def test_a_secret_of_another_database_is_not_sent_to_the_server_of_this_folder(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert run_command("init", "--data", str(other), NUNATAK_CONFIG=os.devnull).code == 0
    kept = (data / "admin.json").read_bytes()
    try:
        shutil.copyfile(other / "admin.json", data / "admin.json")
        mixed = found(data, server.uri)
        (data / "admin.json").write_text(json.dumps({"client-id": "a", "client-secret": "b"}))
        unnamed = found(data, server.uri)
    finally:
        (data / "admin.json").write_bytes(kept)

    assert mixed == CommandLogin()
    assert unnamed == CommandLogin()


def test_the_environment_goes_first_and_a_token_before_a_credential(server: RunningServer, data: Path) -> None:
    given = {"NUNATAK_CREDENTIAL": "c:d:e"}

    assert found(data, "https://example.org", **given).credential == ClientCredential("c", "d:e")
    assert found(data, server.uri, NUNATAK_TOKEN="t", **given) == CommandLogin(token="t")


def test_whoever_mistypes_the_address_is_told_the_right_one(server: RunningServer, data: Path) -> None:
    with an_impostor() as (port, _):
        refused = run_command("namespace", "list", "--uri", f"http://127.0.0.1:{port}", NUNATAK_DATA=str(data))

    assert f"export NUNATAK_URI={server.uri}" in refused.err
    assert "admin.json" in refused.err


def test_two_servers_of_one_folder_do_not_take_each_others_place(tmp_path: Path) -> None:
    one, two = Address("c", "http://127.0.0.1:1001"), Address("c", "http://127.0.0.1:1002")
    with publish_address(tmp_path, one):
        with publish_address(tmp_path, two):
            assert find_address(tmp_path, one.uri) == one
            assert find_address(tmp_path, two.uri) == two
        assert find_address(tmp_path, one.uri) == one
        assert find_address(tmp_path, two.uri) is None
    assert list(tmp_path.iterdir()) == []


def test_doctor_tries_the_login_that_spark_will_use(server: RunningServer, data: Path, tmp_path: Path) -> None:
    """Spark's own settings hold a login: it is tried, and one that contradicts ours is named."""
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.catalog.lake.token not-a-key\n")
    spark = {"SPARK_CONF_DIR": str(tmp_path)}

    alone = run_command("spark", "doctor", "--uri", server.uri, "-o", "json", NUNATAK_DATA=str(tmp_path), **spark)
    both = run_command("spark", "doctor", "--uri", server.uri, "-o", "json", NUNATAK_DATA=str(data), **spark)
    neither = run_command("spark", "doctor", "--uri", server.uri, "-o", "json", NUNATAK_DATA=str(data))

    def login(outcome_json: list[dict[str, str]]) -> dict[str, str]:
        return next(check for check in outcome_json if check["name"] == "login")

    assert login(alone.json)["state"] == "problem"
    assert login(both.json)["state"] == "problem"
    assert "another login" in login(both.json)["found"]
    assert "not-a-key" not in both.out + alone.out
    assert login(neither.json) | {"fix": None} == {"name": "login", "state": "ok", "found": "as admin", "fix": None}
