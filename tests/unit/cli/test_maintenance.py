"""`nunatak health`, `policy` and `maintain` against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nunatak.cli.policy import value_of
from nunatak.client import Client
from tests.api.wire import add_snapshot, set_branch
from tests.support.catalogs.process import RunningServer
from tests.unit.cli.conftest import Run

MIB = 1 << 20


@pytest.fixture
def client(shared_server: RunningServer) -> Iterator[Client]:
    with Client(shared_server.uri) as client:
        yield client


def messy(run: Run, client: Client, namespace: str, name: str, files: int = 2000) -> str:
    """A table whose summary tells of so many files of 10 KiB."""
    run("table", "create", f"{namespace}.{name}", "--column", "id:long!")
    update = add_snapshot(1)
    update["snapshot"]["summary"] |= {
        "total-data-files": str(files),
        "total-files-size": str(files * 10240),
        "total-delete-files": "0",
        "total-records": str(files),
    }
    client.commit_table((namespace, name), [], [update, set_branch(1)])
    return f"{namespace}.{name}"


def line_of(out: str, start: str) -> str:
    """The only line that begins so."""
    (line,) = [each.strip() for each in out.splitlines() if each.strip().startswith(start)]
    return line


def test_the_health_of_a_table_is_told_check_by_check(run: Run, client: Client, namespace: str) -> None:
    table = messy(run, client, namespace, "events")

    shown = run("health", table)
    told = run("health", table, "--json").json

    assert "65 of 100" in shown.out
    line = line_of(shown.out, "-25")
    assert "small-files" in line
    assert line.endswith(f"nunatak maintain compact {table}")
    assert told["tables"][0]["score"] == 65
    assert told == run("health", table, "-o", "json").json


def test_the_tables_of_a_namespace_are_told_worst_first(run: Run, client: Client, namespace: str) -> None:
    run("table", "create", f"{namespace}.a_new", "--column", "id:long")
    messy(run, client, namespace, "b_messy")

    shown = run("health", namespace)
    below = run("health", namespace, "--below", "100", "-o", "json").json

    rows = [line.split()[:2] for line in shown.out.splitlines() if namespace in line]
    assert rows == [["65", f"{namespace}.b_messy"], ["100", f"{namespace}.a_new"]]
    assert "2 of 2 tables." in shown.out
    assert [each["securable"] for each in below["tables"]] == [f"table:default/{namespace}/b_messy"]


def test_the_warehouse_is_told_without_a_name(run: Run, client: Client, namespace: str) -> None:
    table = messy(run, client, namespace, "events")

    assert table in run("health").out


def test_a_nested_namespace_is_told_apart_from_a_table(run: Run, client: Client, namespace: str) -> None:
    run("namespace", "create", f"{namespace}.deep")
    run("table", "create", f"{namespace}.deep.t", "--column", "id:long")

    assert f"{namespace}.deep.t" in run("health", f"{namespace}.deep").out
    assert "does not exist" in run("health", f"{namespace}.nothing", code=1).err


def test_a_policy_is_set_shown_explained_and_dropped(run: Run, client: Client, namespace: str) -> None:
    table = messy(run, client, namespace, "events")
    place = f"namespace:default/{namespace}"

    done = run("policy", "set", "data-compaction", place, "trigger.small-file-percent=40", "budget.bytes-per-hour=1GiB")
    shown = run("policy", "show", f"table:default/{namespace}/events")
    inside = run("policy", "show", place, "--inside", "-o", "json").json
    explained = run("policy", "explain", table)
    dropped = run("policy", "drop", "data-compaction", place)

    assert done.out == f"set data-compaction on {place}\n"
    assert "trigger.small-file-percent=40.0, budget.bytes-per-hour=1073741824" in shown.out
    assert place in shown.out
    assert inside["policies"][0]["policy"]["budget"] == {"bytes-per-hour": 1 << 30}
    line = line_of(explained.out, "data-compaction")
    assert line.split()[1] == "due"
    assert "small-file-percent is 100, the limit 40" in line
    assert "data files 2000 -> 1" in line
    assert "no policy applies" in explained.out
    assert dropped.out == f"dropped data-compaction from {place}\n"
    assert "There is" not in run("policy", "drop", "data-compaction", place, code=1).out


def test_a_policy_is_read_from_a_file_and_refused_with_its_reason(run: Run, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"older-than-seconds": 864_000}))
    place = f"namespace:default/{namespace}"

    run("policy", "set", "orphan-removal", place, "--file", str(file))
    refused = run("policy", "set", "orphan-removal", place, "older-than-seconds=1h", code=1)
    off = run("policy", "set", "orphan-removal", place, "--disabled", "-o", "json").json

    assert "259200" in refused.err
    assert off["policy"] == {"type": "orphan-removal", "enabled": False}


def test_the_plan_is_shown_and_nothing_is_done(run: Run, client: Client, namespace: str) -> None:
    table = messy(run, client, namespace, "events")
    messy(run, client, namespace, "calm", files=2)
    run("policy", "set", "data-compaction", f"namespace:default/{namespace}")
    run("policy", "set", "snapshot-expiry", f"namespace:default/{namespace}")

    planned = run("maintain", "all", namespace, "--dry-run")
    one = run("maintain", "compact", table, "--dry-run", "-o", "json").json

    assert "1 job due in 2 tables." in planned.out
    assert line_of(planned.out, table).split()[1:3] == ["data-compaction", "due"]
    (decision,) = one["tables"][0]["decisions"]
    assert decision["job"]["table"] == "events"
    assert run("job", "list", f"namespace:default/{namespace}", "-o", "json").json == {"jobs": []}


def test_jobs_are_added_shown_and_cancelled(run: Run, client: Client, namespace: str) -> None:
    table = messy(run, client, namespace, "events")
    run("policy", "set", "data-compaction", f"namespace:default/{namespace}")
    place = f"namespace:default/{namespace}"

    due = run("maintain", "all", namespace)
    asked = run("maintain", "expire", table, "-o", "json").json
    refused = run("maintain", "compact", namespace, code=2)
    number = str(asked["jobs"][0]["job-id"])
    listed = run("job", "list", place)
    shown = run("job", "show", number)
    cancelled = run("job", "cancel", number)

    assert due.out.splitlines()[0].endswith(f": data-compaction of {table}")
    assert due.out.splitlines()[1] == "1 job added."
    assert asked["jobs"][0]["job"]["reasons"] == ["asked for"]
    assert "needs the name of a table" in refused.err
    rows = [line.split()[:4] for line in listed.out.splitlines() if table in line]
    assert [row[1:] for row in rows] == [["waiting", "snapshot-expiry", table], ["waiting", "data-compaction", table]]
    assert "asked for" in shown.out
    assert cancelled.out == f"cancelled job {number}\n"
    assert run("job", "show", number, "-o", "json").json["state"] == "cancelled"
    assert "over" in run("job", "cancel", number, code=1).err


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("min-interval-seconds", "90s", 90),
        ("min-interval-seconds", "15m", 900),
        ("max-age-seconds", "7d", 604_800),
        ("max-age-seconds", "60", 60),
        ("metadata-bytes", "8MiB", 8 * MIB),
        ("bytes-per-hour", "2GiB", 2 << 30),
        ("columns", "a, b", ["a", "b"]),
        ("columns", "1", ["1"]),
        ("column", "7d", "7d"),
        ("start", "22:00", "22:00"),
        ("enabled", "false", False),
        ("small-file-percent", "12.5", 12.5),
        ("strategy", "sort", "sort"),
    ],
)
def test_values_are_read_as_their_fields_mean_them(field: str, text: str, value: object) -> None:
    assert value_of(field, text) == value
