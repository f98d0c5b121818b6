"""`nunatak table`, `register` and `search` against a real server."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.catalogs.process import RunningServer
from tests.unit.cli.conftest import Run


def test_a_table_is_created_from_columns_and_shown(run: Run, namespace: str) -> None:
    name = f"{namespace}.orders"

    created = run("table", "create", name, "--column", "id:long!", "--column", "note:string", "--property", "owner=ana")
    shown = run("table", "show", name)

    assert created.out.startswith(f"created table {name} at file:/")
    assert "owner=ana" in shown.out
    rows = [line.split() for line in shown.out.splitlines()]
    assert ["1", "id", "long", "required"] in rows
    assert ["2", "note", "string"] in rows


def test_a_table_is_created_from_a_schema(run: Run, namespace: str) -> None:
    tags = {"type": "list", "element-id": 2, "element": "string", "element-required": False}
    schema = {"fields": [{"id": 1, "name": "tags", "required": False, "type": tags}]}

    loaded = run("table", "create", f"{namespace}.nested", "--schema", json.dumps(schema), "-o", "json").json

    assert loaded["metadata"]["schemas"][0]["fields"][0]["type"] == tags
    assert "list<string>" in run("table", "show", f"{namespace}.nested").out


def test_tables_are_listed_per_namespace_and_across_all(run: Run, namespace: str) -> None:
    run("namespace", "create", f"{namespace}.deep")
    run("table", "create", f"{namespace}.a", "--column", "id:long")
    run("table", "create", f"{namespace}.deep.b", "--column", "id:long")

    here = run("table", "list", namespace, "-o", "json").json
    everywhere = run("table", "list").out.split()

    assert here == {"identifiers": [{"namespace": [namespace], "name": "a"}]}
    assert {f"{namespace}.a", f"{namespace}.deep.b"} <= set(everywhere)


def test_a_table_is_renamed_within_and_across_namespaces(run: Run, namespace: str) -> None:
    run("namespace", "create", f"{namespace}.archive")
    run("table", "create", f"{namespace}.old", "--column", "id:long")

    assert (
        run("table", "rename", f"{namespace}.old", "new").out == f"renamed table {namespace}.old to {namespace}.new\n"
    )
    run("table", "rename", f"{namespace}.new", f"{namespace}.archive.new")

    assert run("table", "list", namespace, "-o", "json").json == {"identifiers": []}
    assert run("table", "show", f"{namespace}.archive.new")


def test_a_dropped_table_keeps_its_files_and_can_be_registered_again(run: Run, namespace: str) -> None:
    """003-66: a table comes back by its metadata file."""
    loaded = run("table", "create", f"{namespace}.t", "--column", "id:long", "-o", "json").json

    run("table", "drop", f"{namespace}.t")
    registered = run("register", f"{namespace}.again", loaded["metadata-location"], "-o", "json").json

    assert registered["metadata"]["table-uuid"] == loaded["metadata"]["table-uuid"]
    assert run("table", "list", namespace, "-o", "json").json["identifiers"] == [
        {"namespace": [namespace], "name": "again"}
    ]


def test_registering_over_a_table_needs_overwrite(run: Run, namespace: str) -> None:
    first = run("table", "create", f"{namespace}.t", "--column", "id:long", "-o", "json").json

    assert "already exists" in run("register", f"{namespace}.t", first["metadata-location"], code=1).err
    again = run("register", f"{namespace}.t", first["metadata-location"], "--overwrite")
    assert again.out == f"registered table {namespace}.t\n"


def test_purge_deletes_the_files(run: Run, namespace: str) -> None:
    loaded = run("table", "create", f"{namespace}.t", "--column", "id:long", "-o", "json").json
    file = Path(unquote(urlsplit(loaded["metadata-location"]).path))
    assert file.is_file()

    assert run("table", "drop", f"{namespace}.t", "--purge").out == f"dropped table {namespace}.t and its files\n"

    assert f"{namespace}.t" in run("table", "show", f"{namespace}.t", code=1).err
    for _ in range(600):  # a job deletes the files, soon and at the latest within a minute
        if not file.exists():
            break
        time.sleep(0.1)
    assert not file.exists()


def test_a_table_that_is_not_there_ends_with_1(run: Run, namespace: str) -> None:
    outcome = run("table", "show", f"{namespace}.none", code=1)

    assert outcome.out == ""
    assert f"Table does not exist: {namespace}.none" in outcome.err


def test_a_table_needs_a_namespace(run: Run) -> None:
    assert "names no namespace" in run("table", "show", "orders", code=2).err


def test_tables_and_views_are_found_by_a_part_of_their_name(run: Run, namespace: str) -> None:
    """002-37"""
    part = namespace.removeprefix("cli_")
    run("table", "create", f"{namespace}.first_{part}", "--column", "id:long")
    run("view", "create", f"{namespace}.second_{part}", "--sql", "SELECT 1 AS id", "--column", "id:int")

    both = run("search", part).out.splitlines()
    views = run("search", part, "--type", "view", "-o", "json").json

    assert {tuple(line.split()) for line in both} >= {
        ("table", f"{namespace}.first_{part}"),
        ("view", f"{namespace}.second_{part}"),
    }
    assert [result["identifier"]["name"] for result in views["results"]] == [f"second_{part}"]


def test_piped_output_has_whole_lines_and_no_colour(shared_server: RunningServer, run: Run, namespace: str) -> None:
    long = f"{namespace}.{'x' * 200}"
    run("table", "create", long, "--column", "id:long")
    environment = {**os.environ, "NUNATAK_URI": shared_server.uri}

    printed = subprocess.run(
        [sys.executable, "-m", "nunatak", "table", "list", namespace],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )

    assert printed.returncode == 0
    assert long in [line.strip() for line in printed.stdout.splitlines()]
    assert "\x1b" not in printed.stdout
