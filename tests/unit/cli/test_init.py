"""`nunatak init`: one administrator, whose secret is in one file and nowhere else."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.support.catalogs.process import running_server
from tests.unit.cli.conftest import Outcome, run_command

pytestmark = pytest.mark.slow


def init(data: Path, *arguments: str) -> Outcome:
    return run_command("init", "--data", str(data), *arguments, NUNATAK_CONFIG=os.devnull)


def secret_in(data: Path) -> str:
    return str(json.loads((data / "admin.json").read_text())["client-secret"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "nunatak-data"


def test_the_secret_is_in_a_file_for_the_owner_alone_and_nowhere_else(data: Path) -> None:
    outcome = init(data)

    file = data / "admin.json"
    assert outcome.code == 0, outcome
    assert str(file) in outcome.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = secret_in(data).encode()
    assert len(secret) >= 43
    assert secret.decode() not in outcome.out + outcome.err
    others = [other for other in data.iterdir() if other.is_file() and other != file]
    assert any(other.name == "nunatak.db" for other in others)
    assert not [other.name for other in others if secret in other.read_bytes()]


def test_a_second_run_changes_nothing_and_says_where_the_file_is(data: Path) -> None:
    init(data)
    before = (data / "admin.json").read_bytes(), (data / "nunatak.db").read_bytes()

    outcome = init(data)

    assert outcome.code == 0
    assert "already has an administrator" in outcome.out
    assert str(data / "admin.json") in outcome.out
    assert ((data / "admin.json").read_bytes(), (data / "nunatak.db").read_bytes()) == before


def test_the_administrator_of_the_file_may_do_everything(data: Path) -> None:
    init(data)
    with running_server(data, environment={"NUNATAK_AUTH": "embedded"}) as server:
        outcome = run_command("principal", "list", "-o", "json", NUNATAK_URI=server.uri, NUNATAK_DATA=str(data))

    assert outcome.code == 0, outcome
    assert [each["name"] for each in outcome.json["principals"]] == ["admin"]


def test_a_lost_secret_is_replaced_and_the_old_one_opens_nothing(data: Path) -> None:
    init(data)
    old = json.loads((data / "admin.json").read_text())
    (data / "admin.json").unlink()

    lost = init(data)
    renewed = init(data, "--new-secret")

    assert "--new-secret" in lost.out
    assert renewed.code == 0, renewed
    assert secret_in(data) != old["client-secret"]
    with running_server(data, environment={"NUNATAK_AUTH": "embedded"}) as server:
        credential = f"{old['client-id']}:{old['client-secret']}"
        refused = run_command("warehouse", "list", NUNATAK_URI=server.uri, NUNATAK_CREDENTIAL=credential)
        allowed = run_command("warehouse", "list", NUNATAK_URI=server.uri, NUNATAK_DATA=str(data))
    assert refused.code == 1
    assert allowed.code == 0, allowed


def test_while_a_server_runs_it_is_the_one_to_ask(data: Path) -> None:
    with running_server(data):
        outcome = init(data)

    assert outcome.code == 1
    assert "another server already works on" in outcome.err
    assert "nunatak principal create" in outcome.err
    assert not (data / "admin.json").exists()


def test_beside_a_running_server_it_is_said_that_there_is_nothing_to_do(data: Path) -> None:
    init(data)
    with running_server(data, environment={"NUNATAK_AUTH": "embedded"}):
        outcome = init(data)

    assert outcome.code == 0
    assert "already has an administrator" in outcome.out
