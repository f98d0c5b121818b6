"""`nunatak register`: adds a table or view to the catalog by its metadata file."""

import click

from nunatak.cli.names import NAME, print_name
from nunatak.cli.options import CommandSession, talks_to_server
from nunatak.cli.output import echo, print_json
from nunatak.client import Levels


@click.command()
@click.argument("name", type=NAME)
@click.argument("metadata_location")
@click.option("--overwrite", is_flag=True, help="Point an existing table of that name to this metadata file.")
@click.option("--view", "is_view", is_flag=True, help="The file describes a view.")
@talks_to_server
def register(session: CommandSession, name: Levels, metadata_location: str, overwrite: bool, is_view: bool) -> None:
    """Register an existing table or view by its metadata file."""
    if is_view and overwrite:
        raise click.UsageError("--overwrite is for tables; drop the view first.")
    if is_view:
        registered = session.client.register_view(name, metadata_location)
    else:
        registered = session.client.register_table(name, metadata_location, overwrite=overwrite)
    if session.output == "json":
        print_json(registered)
    else:
        echo(f"registered {'view' if is_view else 'table'} {print_name(name)}")
