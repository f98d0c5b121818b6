"""`nunatak namespace` against a real server."""

from tests.unit.cli.conftest import Run


def test_a_namespace_is_created_shown_listed_and_dropped(run: Run, namespace: str) -> None:
    created = run("namespace", "create", f"{namespace}.eu", "--property", "owner=ana", "--property", "note=a=b")
    assert created.out == f"created namespace {namespace}.eu\n"

    shown = run("namespace", "show", f"{namespace}.eu")
    assert "owner=ana" in shown.out
    assert "note=a=b" in shown.out
    assert run("namespace", "list", namespace, "-o", "json").json == {"namespaces": [[namespace, "eu"]]}

    assert run("namespace", "drop", f"{namespace}.eu").out == f"dropped namespace {namespace}.eu\n"
    assert run("namespace", "list", namespace, "-o", "json").json == {"namespaces": []}


def test_json_shows_what_the_server_said(run: Run, namespace: str) -> None:
    created = run("namespace", "create", f"{namespace}.a", "--property", "k=v", "-o", "json").json
    loaded = run("namespace", "show", f"{namespace}.a", "-o", "json").json

    assert created["namespace"] == loaded["namespace"] == [namespace, "a"]
    assert loaded["properties"]["k"] == "v"
    assert run("namespace", "drop", f"{namespace}.a", "-o", "json").json == {"dropped": [namespace, "a"]}


def test_a_level_with_a_dot_is_typed_and_printed_in_quotes(run: Run, namespace: str) -> None:
    run("namespace", "create", f'{namespace}."v1.2"')
    run("namespace", "create", f'{namespace}."v1.2".below')

    printed = run("namespace", "list", namespace, "--recursive").out.split()

    assert printed[-2:] == [f'{namespace}."v1.2"', f'{namespace}."v1.2".below']


def test_a_refusal_ends_with_1_and_the_servers_words_on_stderr(run: Run, namespace: str) -> None:
    outcome = run("namespace", "create", namespace, code=1)

    assert outcome.out == ""
    assert outcome.err.startswith("Error: Namespace already exists")


def test_a_namespace_that_holds_something_is_not_dropped(run: Run, namespace: str) -> None:
    run("table", "create", f"{namespace}.t", "--column", "id:long")

    outcome = run("namespace", "drop", namespace, code=1)

    assert "not empty" in outcome.err
    assert run("namespace", "show", namespace)


def test_a_property_without_a_value_is_a_usage_error(run: Run) -> None:
    assert "'color' is not KEY=VALUE" in run("namespace", "create", "x", "--property", "color", code=2).err


def test_a_broken_name_is_a_usage_error(run: Run) -> None:
    assert "is not a name" in run("namespace", "show", "a..b", code=2).err


def test_an_unknown_warehouse_is_refused(run: Run) -> None:
    assert "nowhere" in run("namespace", "list", "--warehouse", "nowhere", code=1).err
