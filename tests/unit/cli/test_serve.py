"""`nunatak serve` as a process, and the commands that need no server."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nunatak.cli.serve import exports_for_commands
from nunatak.client import Client
from nunatak.settings import load
from tests.api.wire import SCHEMA
from tests.support.catalogs.process import await_address, running_server
from tests.unit.cli.conftest import run_command

pytestmark = pytest.mark.slow


def serve_until(stop: signal.Signals, data: Path) -> tuple[int, str]:
    """Start, wait until it listens, stop it by `stop`; its exit status and all it printed after the first line."""
    with running_server(data) as server:
        with Client(server.uri) as client:
            client.create_namespace(("kept",), {})
        server.process.send_signal(stop)
        rest, _ = server.process.communicate(timeout=60)
        return server.process.returncode, rest.decode()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_stop_ends_cleanly_and_forgets_nothing(stop: signal.Signals, tmp_path: Path) -> None:
    status, _ = serve_until(stop, tmp_path / "data")

    assert status == 0
    got = run_command("get", "/v1/namespaces", "--data", str(tmp_path / "data"))
    assert got.code == 0, got
    assert got.json["namespaces"] == [["kept"]]


def printed_by_serve(**settings: str) -> tuple[str, str]:
    """The first line, and the rest."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "nunatak", "serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment, "NUNATAK_PORT": "0", **settings},
    )
    assert process.stdout is not None
    with process.stdout as printed:
        first = printed.readline()
        process.send_signal(signal.SIGTERM)
        rest = printed.read()
    process.wait(60)
    return first, rest


@pytest.mark.parametrize(("auth", "asks"), [("none", False), ("embedded", True)])
def test_the_lines_to_copy_have_a_place_for_the_login_if_there_is_one(auth: str, asks: bool, tmp_path: Path) -> None:
    _, rest = printed_by_serve(NUNATAK_DATA=str(tmp_path / "data"), NUNATAK_AUTH=auth)

    assert "SparkSession" in rest
    assert ("CLIENT-ID:CLIENT-SECRET" in rest) == asks
    assert ("CREATE SECRET" in rest) == asks


def test_a_server_on_another_port_prints_the_line_that_leads_commands_to_it(tmp_path: Path) -> None:
    first, rest = printed_by_serve(NUNATAK_DATA=str(tmp_path / "data"))

    uri = first.split()[-1]
    assert [line for line in rest.splitlines() if line.startswith("export ")] == [f"export NUNATAK_URI={uri}"]


@pytest.mark.parametrize(
    ("uri", "settings", "exports"),
    [
        ("http://127.0.0.1:8181", {}, []),
        ("http://127.0.0.1:9000", {}, ["NUNATAK_URI=http://127.0.0.1:9000"]),
        ("https://127.0.0.1:8181", {}, ["NUNATAK_URI=https://127.0.0.1:8181"]),
        ("http://0.0.0.0:8181", {}, []),
        ("http://[::]:8181", {}, ["'NUNATAK_URI=http://[::1]:8181'"]),
        ("http://127.0.0.1:8181", {"NUNATAK_AUTH": "embedded"}, []),
        ("http://127.0.0.1:8181", {"NUNATAK_DATA": "/srv/lake"}, []),
        ("http://127.0.0.1:8181", {"NUNATAK_AUTH": "embedded", "NUNATAK_DATA": "/a b"}, ["NUNATAK_DATA='/a b'"]),
    ],
)
def test_only_what_the_defaults_of_a_command_lack_is_exported(
    uri: str, settings: dict[str, str], exports: list[str]
) -> None:
    shown = exports_for_commands(uri, load({}, {**settings, "NUNATAK_CONFIG": os.devnull}))

    assert shlex.split(" ".join(shown)) == shlex.split(" ".join(f"export {line}" for line in exports))


def test_a_command_that_finds_nobody_is_told_where_the_server_of_its_folder_listens(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        asked = run_command("namespace", "list", "--uri", "http://127.0.0.1:1", NUNATAK_DATA=str(tmp_path / "data"))
    gone = run_command("namespace", "list", "--uri", "http://127.0.0.1:1", NUNATAK_DATA=str(tmp_path / "data"))

    assert asked.err.endswith(f"listens elsewhere: export NUNATAK_URI={server.uri}\n")
    assert "export" not in gone.err


def test_the_data_folder_is_ignored_by_git_unless_it_was_there_before(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        assert run_command("init", "--data", str(tmp_path / name), NUNATAK_CONFIG=os.devnull).code == 0

    shown = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert "mine/admin.json" in shown
    assert "new/" not in shown
    assert not (tmp_path / "mine" / ".gitignore").exists()


def test_the_first_line_is_the_address_and_the_rest_is_to_copy(tmp_path: Path) -> None:
    first, rest = printed_by_serve(NUNATAK_DATA=str(tmp_path / "elsewhere"))

    said, _, uri = first.strip().rpartition(" ")
    assert said == "listening on"
    assert uri.startswith("http://127.0.0.1:")
    for words in (
        f'load_catalog("lake", type="rest", uri="{uri}")',
        "SparkSession",
        "ATTACH ''",
        f"curl -s {uri}/v1/config",
    ):
        assert words in rest
    assert (tmp_path / "elsewhere").is_dir()


def test_a_second_server_on_the_same_data_does_not_start(tmp_path: Path) -> None:
    with running_server(tmp_path / "data"):
        second = subprocess.run(
            [sys.executable, "-m", "nunatak", "serve", "--port", "0", "--data", str(tmp_path / "data")],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert second.returncode != 0
    assert "listening" not in second.stdout
    assert "Traceback" not in second.stderr


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [sys.executable, "-m", "nunatak", "serve", "--port", str(port), "--data", str(tmp_path / "data")],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert ended.returncode != 0
    assert str(port) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_none_is_a_usage_error() -> None:
    outcome = run_command("serve", "--port", "eighty")

    assert outcome.code == 2
    assert "port from the command line is 'eighty'" in outcome.err


@pytest.mark.parametrize(
    ("module", "address", "extra"),
    [
        ("asyncpg", "postgresql://ann@127.0.0.1/l", "postgres"),
        ("pymysql", "mariadb://ann@127.0.0.1/lake", "mariadb"),
    ],
)
def test_a_driver_that_is_missing_is_named_with_what_brings_it(
    module: str, address: str, extra: str, tmp_path: Path
) -> None:
    """MISSION: 004-24"""
    without = f"import sys; sys.modules[{module!r}] = None; from nunatak.cli.main import main; main()"
    words = ["serve", "--port", "0", "--data", str(tmp_path / "data"), "--database-url", address]
    ended = subprocess.run(
        [sys.executable, "-c", without, *words], capture_output=True, text=True, timeout=60, check=False
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Error: database_url cannot be used: ")
    assert ended.stderr.endswith(f"a driver: pip install 'nunatak[{extra}]'\n")


def test_an_export_of_an_empty_audit_trail_is_an_empty_file(tmp_path: Path) -> None:
    run_command("database", "migrate", "--data", str(tmp_path / "data"))
    exported = run_command("audit", "export", str(tmp_path / "audit.jsonl"), "--data", str(tmp_path / "data"))

    assert exported.code == 0
    assert (tmp_path / "audit.jsonl").read_bytes() == b""


def test_get_answers_without_a_server(tmp_path: Path) -> None:
    """The database is migrated by a command of its own before. MISSION: 003-58"""
    run_command("database", "migrate", "--data", str(tmp_path / "data"))
    config = run_command("get", "v1/config", "--data", str(tmp_path / "data"))
    missing = run_command("get", "/v1/namespaces/none", "--data", str(tmp_path / "data"))

    assert config.code == 0
    assert "GET /v1/{prefix}/namespaces" in config.json["endpoints"]
    assert missing.code == 1
    assert json.loads(missing.err)["error"]["type"] == "NoSuchNamespaceException"


@pytest.mark.parametrize("command", [("get", "/v1/config"), ("fsck",), ("audit", "list"), ("backup", "copy")])
def test_a_command_that_looks_makes_no_catalog_where_none_is(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run_command(*command, "--data", "mistyped")

    assert outcome.code in (1, 2)
    assert "mistyped/nunatak.db" in outcome.err
    assert list(tmp_path.iterdir()) == []


WITH_DATA = [("serve", "--port", "0"), ("get", "/v1/config"), ("database", "migrate"), ("fsck",), ("audit", "list")]


@pytest.mark.parametrize("command", WITH_DATA, ids=" ".join)
def test_a_file_that_is_no_database_is_named_in_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "nunatak.db").write_text("garbage, and more of it than fits into the head of a database" * 10)

    outcome = run_command(*command, "--data", str(tmp_path))

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Error: ")
    assert f"{tmp_path}/nunatak.db cannot be opened: file is not a database" in outcome.err


@pytest.mark.parametrize("command", [("init",), ("database", "migrate"), ("restore", "b")], ids=" ".join)
def test_a_folder_that_cannot_be_is_named_in_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    outcome = run_command(*command, "--data", str(tmp_path / "file" / "data"))

    assert outcome.code == 2
    assert outcome.err == f"Error: the folder {tmp_path}/file/data cannot be used: Not a directory\n"


def test_migrating_twice_finds_nothing_the_second_time(tmp_path: Path) -> None:
    first = run_command("database", "migrate", "--data", str(tmp_path / "data"))
    second = run_command("database", "migrate", "--data", str(tmp_path / "data"))

    assert first.code == second.code == 0
    assert first.out.startswith("applied 0001")
    assert second.out == "the database schema is up to date\n"


@pytest.mark.parametrize("how", ["flag", "setting"])
def test_a_catalog_in_memory_leaves_nothing_behind(how: str, tmp_path: Path) -> None:
    """004-19: what H2 is to JDBC catalogs in tests."""
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    chosen = {"NUNATAK_DATABASE_URL": "sqlite:///:memory:"} if how == "setting" else {}
    process = subprocess.Popen(
        [sys.executable, "-m", "nunatak", "serve", "--port", "0", *(["--memory"] if how == "flag" else [])],
        stdout=subprocess.PIPE,
        cwd=here,
        env={**environment, "TMPDIR": str(temporary), **chosen},
    )
    try:
        with Client(await_address(process)) as client:
            client.create_namespace(("ns",), {})
            table = client.create_table(("ns", "t"), {"schema": SCHEMA})
            assert client.load_table(("ns", "t"))["metadata"] == table["metadata"]
            assert list(client.list_tables(("ns",))) == [("ns", "t")]
        file = Path(table["metadata-location"].removeprefix("file://"))
        assert file.is_file()
        assert file.is_relative_to(temporary)
    finally:
        process.terminate()
        process.communicate(timeout=60)

    assert process.returncode == 0
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []


def test_a_catalog_in_memory_uses_the_folders_it_is_given(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", arguments=("--memory",)) as server, Client(server.uri) as client:
        client.create_namespace(("ns",), {})
        table = client.create_table(("ns", "t"), {"schema": SCHEMA})

    assert (tmp_path / "data" / "warehouse") in Path(table["metadata-location"].removeprefix("file://")).parents
    assert not (tmp_path / "data" / "nunatak.db").exists()


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        (("serve", "--memory", "--database-url", "sqlite:///x.db"), {}, "exclude each other"),
        (("serve", "--memory", "--workers", "2"), {}, "workers is 2"),
        (("serve", "--memory"), {"NUNATAK_AUTH": "embedded"}, "has no administrator"),
        (("serve", "--memory", "--data", "DATA"), {}, "holds a catalog"),
        (("get", "/v1/config", "--database-url", "sqlite:///:memory:"), {}, "in the memory of its server"),
        (("init", "--database-url", "sqlite:///:memory:"), {}, "in the memory of its server"),
        (("database", "migrate", "--database-url", "sqlite:///:memory:"), {}, "in the memory of its server"),
        (("backup", "x.backup", "--database-url", "sqlite:///:memory:"), {}, "in the memory of its server"),
    ],
)  # fmt: skip
def test_what_a_catalog_in_memory_cannot_be_used_for_is_said(
    arguments: tuple[str, ...], settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "nunatak.db").touch()
    filled = [argument.replace("DATA", str(tmp_path)) for argument in arguments]

    outcome = run_command(*filled, NUNATAK_PORT="0", **settings)

    assert outcome.code == 2, outcome
    assert said in outcome.err
    assert "Traceback" not in outcome.err
