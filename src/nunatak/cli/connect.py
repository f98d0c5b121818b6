"""`nunatak connect`: the lines that wire an engine to the catalog."""

import click

from nunatak.cli.options import DEFAULT_URI
from nunatak.connect import ENGINES, wiring


@click.command()
@click.argument("engine", type=click.Choice(list(ENGINES)))
@click.option("--uri", envvar="NUNATAK_URI", default=DEFAULT_URI, show_default=True, help="The catalog. [NUNATAK_URI]")
@click.option("--warehouse", help="Warehouse by name; the server's default one unless given.")
def connect(engine: str, uri: str, warehouse: str | None) -> None:
    """Print how to wire an engine to the catalog."""
    click.echo(wiring(engine, uri, warehouse), nl=False)
