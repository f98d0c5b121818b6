"""`nunatak search`: finds tables and views by name."""

import click

from nunatak.cli.names import print_name
from nunatak.cli.options import CommandSession, talks_to_server
from nunatak.cli.output import print_json, print_rows


@click.command()
@click.argument("query")
@click.option("--type", "kind", type=click.Choice(["table", "view"]), help="Only these.")
@talks_to_server
def search(session: CommandSession, query: str, kind: str | None) -> None:
    """Find tables and views by part of their name."""
    found = list(session.client.search(query, kind))
    if session.output == "json":
        print_json({"results": found})
    else:
        print_rows(
            ["type", "name"],
            [
                (result["type"], print_name((*result["identifier"]["namespace"], result["identifier"]["name"])))
                for result in found
            ],
        )
