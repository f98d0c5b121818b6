"""`nunatak warehouse …`: lists, creates and drops warehouses."""

import click

from nunatak.cli.main import SuggestingGroup
from nunatak.cli.options import CommandSession, administers
from nunatak.cli.output import echo, print_json, print_rows


@click.group(cls=SuggestingGroup)
def warehouse() -> None:
    """List, create and drop warehouses."""


@warehouse.command("list")
@administers
def list_warehouses(session: CommandSession) -> None:
    """List the warehouses that you may see."""
    found = list(session.client.manage_pages(("warehouses",), "warehouses"))
    if session.output == "json":
        print_json({"warehouses": found})
    else:
        print_rows(["warehouse", "location", ""], [(each["name"], each["location"], _remark(each)) for each in found])


@warehouse.command()
@click.argument("name")
@click.option("--location", help="Where its tables lie, inside one of warehouse_roots; chosen unless given.")
@administers
def create(session: CommandSession, name: str, location: str | None) -> None:
    """Create a warehouse; every server of the catalog serves it at once."""
    made = session.client.manage("POST", ("warehouses",), {"name": name, "location": location})
    if session.output == "json":
        print_json(made)
    else:
        echo(f"created warehouse {name} at {made['location']}")


@warehouse.command()
@click.argument("name")
@administers
def drop(session: CommandSession, name: str) -> None:
    """Drop an empty warehouse; files stay where they are."""
    session.client.manage("DELETE", ("warehouses", name))
    if session.output == "json":
        print_json({"dropped": name})
    else:
        echo(f"dropped warehouse {name}")


def _remark(each: dict[str, object]) -> str:
    if each["default"]:
        return "default"
    return "from the settings" if each["configured"] else ""
