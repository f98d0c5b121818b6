"""Principals, roles, grants, keys and warehouses from the command line, against a server that asks who you are."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from nunatak.cli.bundles import in_bundles
from nunatak.client import ClientCredential
from tests.support.catalogs.process import RunningServer, running_server
from tests.unit.cli.conftest import Outcome, Run, run_command


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("guarded") / "nunatak-data"
    made = run_command("init", "--data", str(data), NUNATAK_CONFIG=os.devnull)
    assert made.code == 0, made
    with running_server(data, environment={"NUNATAK_AUTH": "embedded"}) as server:
        yield server


@pytest.fixture
def run(guarded: RunningServer) -> Run:
    """As the administrator, whom the commands find in the data folder, or with other variables set."""

    def run(*arguments: str, code: int = 0, **environment: str) -> Outcome:
        variables = {"NUNATAK_URI": guarded.uri, "NUNATAK_DATA": str(guarded.data), **environment}
        outcome = run_command(*arguments, **variables)
        assert outcome.code == code, outcome
        return outcome

    return run


@pytest.fixture
def name() -> str:
    """Of the test's own."""
    return f"n{uuid4().hex[:10]}"


def test_principals_are_created_shown_disabled_and_dropped(run: Run, name: str) -> None:
    run("role", "create", name)
    run("principal", "create", name, "--note", "from sales", "--role", name)
    shown = run("principal", "show", name).out
    run("principal", "disable", name)
    disabled = run("principal", "show", name, "-o", "json").json
    run("principal", "enable", name)
    listed = {each["name"]: each for each in run("principal", "list", "-o", "json").json["principals"]}
    run("principal", "drop", name)

    assert "from sales" in shown
    assert (disabled["disabled"], disabled["roles"], disabled["grants"]) == (True, [name], [])
    assert listed[name]["disabled"] is False
    assert "does not exist" in run("principal", "show", name, code=1).err
    assert name not in run("principal", "list").out


def test_roles_have_members(run: Run, name: str) -> None:
    run("principal", "create", name)
    run("role", "create", name, "--note", "readers")
    run("role", "add", name, name)
    members = run("role", "members", name).out
    run("role", "remove", name, name)

    assert name in members
    assert run("role", "members", name, "-o", "json").json == {"members": []}
    assert "readers" in run("role", "list").out
    run("role", "drop", name)
    assert "does not exist" in run("role", "members", name, code=1).err


def test_a_grant_lets_its_grantee_in_until_it_is_removed(run: Run, name: str) -> None:
    run("namespace", "create", name)
    run("principal", "create", name)
    key = run("credential", "create", name, "-o", "json").json["secret"]
    place = f"namespace:default/{name}"
    run("namespace", "show", name, code=1, NUNATAK_TOKEN=key)

    run("grant", "add", f"PRINCIPAL:{name}", "READ", place)
    allowed = run("namespace", "show", name, NUNATAK_TOKEN=key).out
    listed = run("grant", "list", "--grantee", f"principal:{name}").out
    why = run("access", "explain", name, "TABLE_LIST", place).out
    why_not = run("access", "explain", name, "TABLE_DROP", place, "-o", "json").json
    own = run("access", "explain", name, "TABLE_DROP", place, NUNATAK_TOKEN=key).out
    who = run("access", "matrix", place).out
    run("grant", "remove", f"principal:{name}", "READ", place)

    assert name in allowed
    assert "READ" in listed
    assert "decides" in why
    assert (why_not["allowed"], why_not["deciding-grant"]) == (False, None)
    assert re.search(r"who can grant it +principal:admin", own)
    assert f"principal:{name}" in who
    assert "everything (SERVER_ADMIN)" in who
    run("namespace", "show", name, code=1, NUNATAK_TOKEN=key)
    assert run("grant", "list", "--grantee", f"principal:{name}", "-o", "json").json == {"grants": []}


def test_a_secret_is_written_to_a_new_file_for_its_owner_alone(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    run("principal", "create", name)

    made = run("credential", "create", name, "--kind", "client", "--expires", "90d", "--file", str(file))
    secret = file.read_text().strip()
    (listed,) = run("credential", "list", name, "-o", "json").json["credentials"]
    again = run("credential", "create", name, "--file", str(file), code=1)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in made.out
    assert listed["expires-ms"] - listed["created-ms"] == 90 * 86_400_000
    assert "Nothing was created" in again.err
    assert len(run("credential", "list", name, "-o", "json").json["credentials"]) == 1
    credential = f"{listed['credential-id']}:{secret}"
    assert run("warehouse", "list", "-o", "json", NUNATAK_CREDENTIAL=credential).json == {"warehouses": []}
    run("credential", "drop", name, listed["credential-id"])
    assert "key" in run("credential", "list", name).out
    refused = run("warehouse", "list", code=1, NUNATAK_CREDENTIAL=credential)
    assert secret not in refused.err


@pytest.mark.parametrize("text", ["90", "d", "1y", "-1d", "1.5h"])
def test_a_duration_that_cannot_be_read_is_a_usage_error(run: Run, text: str) -> None:
    assert "write 30m, 12h or 90d" in run("credential", "create", "admin", f"--expires={text}", code=2).err


def test_a_warehouse_is_created_used_and_dropped(run: Run, name: str) -> None:
    created = run("warehouse", "create", name).out
    run("namespace", "create", "a", "--warehouse", name)
    full = run("warehouse", "drop", name, code=1).err
    run("namespace", "drop", "a", "--warehouse", name)
    listed = run("warehouse", "list").out
    run("warehouse", "drop", name)

    assert f"/warehouses/{name}" in created
    assert "not empty" in full
    assert name in listed
    assert name not in run("warehouse", "list").out


def test_tokens_are_signed_with_a_new_key_and_commands_log_in_anew(run: Run) -> None:
    made = run("credential", "rotate-signing", "--forget-older", "-o", "json").json

    assert made["key-id"]
    run("warehouse", "list")


def test_somebody_without_credentials_is_told_how_to_log_in(run: Run, tmp_path: Path) -> None:
    refused = run("principal", "list", code=1, NUNATAK_DATA=str(tmp_path))

    assert "NUNATAK_CREDENTIAL" in refused.err


def test_a_wrong_secret_is_refused_and_not_repeated(run: Run) -> None:
    refused = run("principal", "list", code=1, NUNATAK_CREDENTIAL="client-x:not-the-secret")

    assert "not-the-secret" not in refused.err
    assert run("principal", "list", code=2, NUNATAK_CREDENTIAL="no colon").err


def test_a_credential_does_not_show_its_secret() -> None:
    assert "hidden" not in repr(ClientCredential("id", "hidden"))


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["NS_LIST", "TABLE_LIST", "TABLE_READ_META", "TABLE_READ_DATA"], "READ"),
        (["NS_LIST", "TABLE_LIST", "TABLE_READ_META", "TABLE_READ_DATA", "TABLE_DROP"], "READ, TABLE_DROP"),
        (["TABLE_DROP"], "TABLE_DROP"),
        (["SERVER_ADMIN", "TABLE_DROP"], "everything (SERVER_ADMIN)"),
        ([], ""),
    ],
)
def test_privileges_are_shown_by_the_largest_bundle(names: list[str], shown: str) -> None:
    assert in_bundles(names) == shown
