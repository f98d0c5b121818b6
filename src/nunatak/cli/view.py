"""`nunatak view …`: lists, shows, creates, drops and renames views."""

import time
from itertools import chain

import click

from nunatak.cli.columns import column_rows, properties_option, schema_of
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.names import NAME, NAMESPACE, beside, print_name
from nunatak.cli.options import CommandSession, talks_to_server
from nunatak.cli.output import echo, print_facts, print_json, print_rows, properties_of, time_of
from nunatak.client import Json, Levels


@click.group(cls=SuggestingGroup)
def view() -> None:
    """List, show, create, drop and rename views."""


@view.command("list")
@click.argument("namespace", type=NAMESPACE, required=False)
@talks_to_server
def list_views(session: CommandSession, namespace: Levels | None) -> None:
    """List the views of NAMESPACE, or of the whole warehouse."""
    namespaces = [namespace] if namespace else session.client.walk_namespaces()
    found = list(chain.from_iterable(map(session.client.list_views, namespaces)))
    if session.output == "json":
        print_json({"identifiers": [{"namespace": name[:-1], "name": name[-1]} for name in found]})
    else:
        print_rows(["view"], [[print_name(name)] for name in found])


@view.command()
@click.argument("name", type=NAME)
@talks_to_server
def show(session: CommandSession, name: Levels) -> None:
    """Show a view: its SQL, columns and properties."""
    loaded = session.client.load_view(name)
    if session.output == "json":
        print_json(loaded)
        return
    metadata = loaded["metadata"]
    current = next(item for item in metadata["versions"] if item["version-id"] == metadata["current-version-id"])
    schema = next(item for item in metadata["schemas"] if item["schema-id"] == current["schema-id"])
    print_facts(
        {
            "view": print_name(name),
            "uuid": metadata["view-uuid"],
            "location": metadata["location"],
            "version": f"{current['version-id']} of {time_of(current['timestamp-ms'])}",
            **{f"sql ({item['dialect']})": item["sql"] for item in current["representations"]},
            "properties": properties_of(metadata.get("properties", {})),
        }
    )
    print_rows(["id", "column", "type", ""], column_rows(schema))


@view.command()
@click.argument("name", type=NAME)
@click.option("--sql", required=True, help="The query.")
@click.option("--dialect", default="spark", show_default=True, help="SQL dialect.")
@click.option("--column", "columns", multiple=True, metavar="NAME:TYPE[!]", help="A column of the result.")
@click.option("--schema", metavar="JSON", help="The schema as Iceberg JSON, for nested types.")
@properties_option
@talks_to_server
def create(
    session: CommandSession,
    name: Levels,
    *,
    sql: str,
    dialect: str,
    columns: tuple[str, ...],
    schema: str | None,
    properties: dict[str, str],
) -> None:
    """Create a view.

    \b
    nunatak view create shop.big --sql "SELECT id FROM orders WHERE total > 100" --column id:long
    """
    request: Json = {
        "schema": schema_of(columns, schema),
        "view-version": {
            "version-id": 1,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "schema-id": 0,
            "summary": {"engine-name": "nunatak"},
            "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
            "default-namespace": list(name[:-1]),
        },
        "properties": properties,
    }
    created = session.client.create_view(name, request)
    if session.output == "json":
        print_json(created)
    else:
        echo(f"created view {print_name(name)}")


@view.command()
@click.argument("name", type=NAME)
@talks_to_server
def drop(session: CommandSession, name: Levels) -> None:
    """Drop a view."""
    session.client.drop_view(name)
    if session.output == "json":
        print_json({"dropped": name})
    else:
        echo(f"dropped view {print_name(name)}")


@view.command()
@click.argument("name", type=NAME)
@click.argument("new_name", type=NAMESPACE, metavar="NEW_NAME")
@talks_to_server
def rename(session: CommandSession, name: Levels, new_name: Levels) -> None:
    """Rename a view; NEW_NAME without a namespace keeps the namespace."""
    destination = beside(name, new_name)
    session.client.rename_view(name, destination)
    if session.output == "json":
        print_json({"source": name, "destination": destination})
    else:
        echo(f"renamed view {print_name(name)} to {print_name(destination)}")
