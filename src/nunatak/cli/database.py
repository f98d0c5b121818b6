"""`nunatak database …`: operations on the catalog's database while no server runs."""

import click

from nunatak import server
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.options import setting_options
from nunatak.cli.output import echo
from nunatak.settings import Settings


@click.group(cls=SuggestingGroup)
def database() -> None:
    """Migrate the catalog's database."""


@database.command()
@setting_options("data", "database_url")
def migrate(settings: Settings) -> None:
    """Migrate the database to this version's schema."""
    applied = server.migrate(settings)
    for name in applied:
        echo(f"applied {name}")
    if not applied:
        echo("the database schema is up to date")
