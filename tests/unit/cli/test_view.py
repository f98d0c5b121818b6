"""`nunatak view` against a real server."""

from tests.unit.cli.conftest import Run


def test_a_view_is_created_shown_renamed_and_dropped(run: Run, namespace: str) -> None:
    name = f"{namespace}.big"

    created = run("view", "create", name, "--sql", "SELECT id FROM orders", "--column", "id:long", "--property", "a=b")
    assert created.out == f"created view {name}\n"

    shown = run("view", "show", name).out
    assert "SELECT id FROM orders" in shown
    assert "sql (spark)" in shown
    assert "a=b" in shown
    assert run("view", "list", namespace, "-o", "json").json == {
        "identifiers": [{"namespace": [namespace], "name": "big"}]
    }

    run("view", "rename", name, "huge")
    assert run("view", "list", namespace).out.split()[-1] == f"{namespace}.huge"

    assert run("view", "drop", f"{namespace}.huge").out == f"dropped view {namespace}.huge\n"
    assert "View does not exist" in run("view", "show", f"{namespace}.huge", code=1).err


def test_a_view_speaks_the_dialect_it_was_given(run: Run, namespace: str) -> None:
    loaded = run(
        "view",
        "create",
        f"{namespace}.v",
        "--sql",
        "SELECT 1",
        "--dialect",
        "trino",
        "--column",
        "one:int",
        "-o",
        "json",
    ).json

    assert loaded["metadata"]["versions"][0]["representations"] == [
        {"type": "sql", "sql": "SELECT 1", "dialect": "trino"}
    ]
    assert loaded["metadata"]["versions"][0]["default-namespace"] == [namespace]


def test_a_dropped_view_is_registered_again(run: Run, namespace: str) -> None:
    loaded = run("view", "create", f"{namespace}.v", "--sql", "SELECT 1", "--column", "one:int", "-o", "json").json
    run("view", "drop", f"{namespace}.v")

    registered = run("register", f"{namespace}.w", loaded["metadata-location"], "--view")

    assert registered.out == f"registered view {namespace}.w\n"
    assert (
        run("view", "show", f"{namespace}.w", "-o", "json").json["metadata"]["view-uuid"]
        == (loaded["metadata"]["view-uuid"])
    )


def test_a_view_cannot_be_registered_over_another(run: Run) -> None:
    assert "--overwrite is for tables" in run("register", "a.b", "file:///x", "--view", "--overwrite", code=2).err
