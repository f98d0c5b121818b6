"""`nunatak serve`: start the catalog and say how to reach it."""

import click

from nunatak import server
from nunatak.cli.options import setting_options
from nunatak.connect import wiring
from nunatak.settings import Settings

SHOWN_ENGINES = {"PyIceberg": "pyiceberg", "Spark": "spark", "DuckDB": "duckdb", "curl": "curl"}


@click.command()
@setting_options("host", "port", "data", "database_url", "workers")
def serve(settings: Settings) -> None:
    """Start the catalog."""
    server.run(settings, announce)


def announce(uri: str) -> None:
    """Print where we listen, alone on the first line for programs that wait for it, then how to connect."""
    click.echo(f"listening on {uri}")
    click.echo(f"\nThe catalog is ready at {uri} - Ctrl-C stops it. Copy what you need:\n")
    for title, engine in SHOWN_ENGINES.items():
        click.echo(f"--- {title}\n{wiring(engine, uri)}")
