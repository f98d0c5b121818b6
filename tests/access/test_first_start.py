"""From `init` to a running server: nothing is open by accident, no secret is lost, no file is open to everybody."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from nunatak.checks import is_readable_by_all
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.postgres import find_binaries, running_postgres
from tests.unit.cli.conftest import run_command

EMBEDDED = {"NUNATAK_AUTH": "embedded"}
NUNATAK = [sys.executable, "-m", "nunatak"]


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    return {**clean, "NUNATAK_CONFIG": os.devnull, **settings}


def serve(data: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected to refuse to start."""
    command = [*NUNATAK, "serve", "--port", "0", "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(**settings), check=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder whose catalog has an administrator."""
    folder = tmp_path / "nunatak-data"
    assert run_command("init", "--data", str(folder), NUNATAK_CONFIG=os.devnull).code == 0
    return folder


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user of the machine may enter, as /srv is; pytest's own are for their owner alone."""
    with tempfile.TemporaryDirectory(prefix="nunatak-reachable-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_catalog_with_an_administrator_is_not_opened_by_a_forgotten_setting(data: Path) -> None:
    refused = serve(data)

    assert refused.returncode == 2
    assert "has an administrator, but auth is none" in refused.stderr
    assert "NUNATAK_AUTH=embedded" in refused.stderr
    assert "listening on" not in refused.stdout


def test_it_is_opened_on_purpose_and_says_so(data: Path) -> None:
    with running_server(data, environment={"NUNATAK_ALLOW_OPEN": "true"}) as server:
        assert run_command("namespace", "list", NUNATAK_URI=server.uri).code == 0
        said = server.log.read_text()
    assert "every caller has all privileges" in said


def test_an_administrator_by_another_road_counts_too(data: Path) -> None:
    """Whoever holds SERVER_ADMIN by a role is one, also when `admin` itself is gone."""
    with running_server(data, environment=EMBEDDED) as server:
        as_admin = {"NUNATAK_URI": server.uri, "NUNATAK_DATA": str(data)}
        for command in (
            "role create chiefs",
            "principal create ana --role chiefs",
            "grant add role:chiefs SERVER_ADMIN server",
            "credential create ana",
        ):
            assert run_command(*command.split(), **as_admin).code == 0, command

        made = run_command("credential", "create", "ana", "-o", "json", **as_admin).json["secret"]
        dropped = run_command("principal", "drop", "admin", NUNATAK_URI=server.uri, NUNATAK_TOKEN=made)
        assert dropped.code == 0, dropped

    assert serve(data).returncode == 2


def test_parallel_inits_leave_one_administrator_whose_secret_is_known(tmp_path: Path) -> None:
    if find_binaries() is None:
        pytest.skip("NOT RUN: PostgreSQL is not installed")
    with running_postgres("fsync=off") as postgres:
        for attempt in range(3):
            data = tmp_path / f"data{attempt}"
            url = postgres.new_database()
            settings = environment(NUNATAK_DATABASE_URL=url)
            command = [*NUNATAK, "init", "--data", str(data)]
            runs = [
                subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for _ in range(4)
            ]
            said = [run.communicate(timeout=120) for run in runs]

            assert [run.returncode for run in runs] == [0] * 4, said
            assert sum("created the administrator" in out for out, _ in said) == 1, said
            assert not list(data.glob("admin.json.*")), "no secret that opens nothing is left behind"
            with running_server(data, environment={**EMBEDDED, "NUNATAK_DATABASE_URL": url}) as server:
                listed = run_command("principal", "list", "-o", "json", **_as_admin(server, url))
            assert listed.code == 0, listed
            assert [each["name"] for each in listed.json["principals"]] == ["admin"]


def _as_admin(server: RunningServer, url: str) -> dict[str, str]:
    return {"NUNATAK_URI": server.uri, "NUNATAK_DATA": str(server.data), "NUNATAK_DATABASE_URL": url}


def test_an_init_elsewhere_does_not_take_the_secret_of_the_first(tmp_path: Path) -> None:
    """Two pods with folders of their own: whichever comes second changes nothing."""
    if find_binaries() is None:
        pytest.skip("NOT RUN: PostgreSQL is not installed")
    with running_postgres("fsync=off") as postgres:
        url = postgres.new_database()
        folders = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
        shared = environment(NUNATAK_DATABASE_URL=url, NUNATAK_KEY_FILE=str(tmp_path / "nunatak.keys"))
        runs = [subprocess.Popen([*NUNATAK, "init", "--data", str(folder)], env=shared) for folder in folders]
        assert [run.wait(120) for run in runs] == [0] * 3

    assert sum((folder / "admin.json").exists() for folder in folders) == 1


def test_what_the_server_makes_is_for_its_owner_alone(tmp_path: Path) -> None:
    data = tmp_path / "nunatak-data"
    before = os.umask(0)
    try:
        made = subprocess.run([*NUNATAK, "init", "--data", str(data)], env=environment(), check=True)
        assert made.returncode == 0
        with running_server(data, environment=EMBEDDED) as server:
            as_admin = {"NUNATAK_URI": server.uri, "NUNATAK_DATA": str(data)}
            assert run_command("namespace", "create", "a", **as_admin).code == 0
    finally:
        os.umask(before)

    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    spooled = [path for path in (data / "spool").rglob("*") if path.is_file()]
    assert spooled, "the namespace is an event that the spool holds"
    wrong = {
        str(path.relative_to(data)): oct(path.stat().st_mode)
        for path in (data, *data.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) & 0o077 and "warehouse" not in path.relative_to(data).parts
    }
    assert wrong == {}


@pytest.mark.parametrize("file", ["nunatak.db", "nunatak.db-wal"])
def test_a_database_that_everybody_can_read_is_refused(reachable: Path, file: str) -> None:
    data = reachable / "nunatak-data"
    assert run_command("init", "--data", str(data), NUNATAK_CONFIG=os.devnull).code == 0
    (data / file).touch()
    (data / file).chmod(0o644)
    data.chmod(0o755)

    refused = serve(data, **EMBEDDED)
    checked = run_command("config", "check", NUNATAK_DATA=str(data), NUNATAK_CONFIG=os.devnull)
    data.chmod(0o700)

    assert refused.returncode == 2
    assert f"chmod 600 {data / file}" in refused.stderr
    assert checked.code == 2
    with running_server(data, environment=EMBEDDED):
        """A folder that nobody else may enter hides it."""


def test_a_settings_file_with_a_secret_that_everybody_can_read_is_refused(reachable: Path) -> None:
    file = reachable / "nunatak.toml"
    data = reachable / "data"

    def said(text: str, mode: int) -> str:
        file.write_text(text)
        file.chmod(mode)
        return run_command("config", "check", NUNATAK_DATA=str(data), NUNATAK_CONFIG=str(file)).err

    hint = f"chmod 600 {file}"
    assert hint in said('database_url = "postgresql://nunatak:hush@127.0.0.1/nunatak"\n', 0o644)
    assert hint in said('opa_token = "hush"\n', 0o604)
    assert hint not in said('opa_token = "hush"\n', 0o640)
    assert hint not in said('log_level = "info"\n', 0o644)


def test_a_tls_key_that_everybody_can_read_is_refused(reachable: Path) -> None:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    chain, key, both = (reachable / name for name in ("chain.pem", "key.pem", "both.pem"))
    certificate.cert_chain_pems[0].write_to_path(chain)
    certificate.private_key_pem.write_to_path(key)
    certificate.private_key_and_cert_chain_pem.write_to_path(both)
    for path in (chain, key, both):
        path.chmod(0o644)

    def said(**settings: str) -> str:
        return run_command(
            "config", "check", NUNATAK_DATA=str(reachable / "d"), NUNATAK_CONFIG=os.devnull, **settings
        ).err

    assert f"chmod 600 {key}" in said(NUNATAK_TLS_CERTIFICATE=str(chain), NUNATAK_TLS_KEY=str(key))
    assert f"chmod 600 {both}" in said(NUNATAK_TLS_CERTIFICATE=str(both))
    key.chmod(0o640)
    assert "chmod" not in said(NUNATAK_TLS_CERTIFICATE=str(chain), NUNATAK_TLS_KEY=str(key))


def test_a_link_to_a_readable_file_counts_as_the_file(reachable: Path) -> None:
    (reachable / "real").write_text("")
    (reachable / "real").chmod(0o644)
    (reachable / "hidden").mkdir(mode=0o700)
    (reachable / "hidden" / "link").symlink_to(reachable / "real")

    assert is_readable_by_all(reachable / "hidden" / "link")
    assert not is_readable_by_all(reachable / "absent")


def test_the_administrators_file_names_its_catalog(data: Path) -> None:
    assert json.loads((data / "admin.json").read_text())["catalog"] == f"sqlite:///{data / 'nunatak.db'}"
