"""`nunatak serve`: start the catalog and say how to reach it."""

from dataclasses import replace
from functools import partial

import click

from nunatak import server
from nunatak.cli.options import setting_options
from nunatak.cli.output import echo
from nunatak.connect import CLIENT_LOGIN, NO_LOGIN, Login, wiring
from nunatak.database_url import MEMORY_URL
from nunatak.settings import Settings, SettingsError

SHOWN_ENGINES = {"PyIceberg": "pyiceberg", "Spark": "spark", "DuckDB": "duckdb", "curl": "curl"}


@click.command()
@click.option("--memory", is_flag=True, help="Keep the catalog in memory, for tests: nothing is left when it stops.")
@setting_options("host", "port", "data", "database_url", "workers")
def serve(settings: Settings, memory: bool) -> None:
    """Start the catalog."""
    if memory:
        settings = _in_memory(settings)
    server.run(settings, partial(announce, login=_login(settings)))


def _in_memory(settings: Settings) -> Settings:
    if settings.origins["database_url"] == "command line":
        raise SettingsError("--memory and --database-url exclude each other")
    return replace(settings, database_url=MEMORY_URL, origins={**settings.origins, "database_url": "command line"})


def announce(uri: str, *, login: Login = NO_LOGIN) -> None:
    """Print where we listen, alone on the first line for programs that wait for it, then how to connect."""
    echo(f"listening on {uri}")
    echo(f"\nThe catalog is ready at {uri} - Ctrl-C stops it. Copy what you need:\n")
    for title, engine in SHOWN_ENGINES.items():
        echo(f"--- {title}\n{wiring(engine, uri, login=login)}")


def _login(settings: Settings) -> Login:
    """How engines log in, as far as this server decides it."""
    if "embedded" in settings.auth:
        return CLIENT_LOGIN
    return NO_LOGIN if settings.auth == ("none",) else Login(token="TOKEN")
