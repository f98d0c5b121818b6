"""`nunatak namespace …`: lists, shows, creates and drops namespaces."""

import click

from nunatak.cli.columns import properties_option
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.names import NAMESPACE, print_name
from nunatak.cli.options import CommandSession, talks_to_server
from nunatak.cli.output import echo, print_facts, print_json, print_rows, properties_of
from nunatak.client import Levels


@click.group(cls=SuggestingGroup)
def namespace() -> None:
    """List, show, create and drop namespaces."""


@namespace.command("list")
@click.argument("parent", type=NAMESPACE, required=False)
@click.option("--recursive", "-r", is_flag=True, help="Also list nested namespaces.")
@talks_to_server
def list_namespaces(session: CommandSession, parent: Levels | None, recursive: bool) -> None:
    """List the namespaces in PARENT, or at the top."""
    listing = session.client.walk_namespaces if recursive else session.client.list_namespaces
    found = list(listing(parent or ()))
    if session.output == "json":
        print_json({"namespaces": found})
    else:
        print_rows(["namespace"], [[print_name(levels)] for levels in found])


@namespace.command()
@click.argument("name", type=NAMESPACE)
@talks_to_server
def show(session: CommandSession, name: Levels) -> None:
    """Show a namespace and its properties."""
    loaded = session.client.load_namespace(name)
    if session.output == "json":
        print_json(loaded)
    else:
        print_facts({"namespace": print_name(name), "properties": properties_of(loaded.get("properties") or {})})


@namespace.command()
@click.argument("name", type=NAMESPACE)
@properties_option
@talks_to_server
def create(session: CommandSession, name: Levels, properties: dict[str, str]) -> None:
    """Create a namespace."""
    created = session.client.create_namespace(name, properties)
    if session.output == "json":
        print_json(created)
    else:
        echo(f"created namespace {print_name(name)}")


@namespace.command()
@click.argument("name", type=NAMESPACE)
@talks_to_server
def drop(session: CommandSession, name: Levels) -> None:
    """Drop an empty namespace."""
    session.client.drop_namespace(name)
    if session.output == "json":
        print_json({"dropped": name})
    else:
        echo(f"dropped namespace {print_name(name)}")
