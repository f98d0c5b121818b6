"""`nunatak serve`: starts the server and prints how to connect."""

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from nunatak import server
from nunatak.cli.login import export_line, reachable
from nunatak.cli.options import DEFAULT_URI, setting_options
from nunatak.cli.output import echo
from nunatak.connect import CLIENT_LOGIN, NO_LOGIN, Login, wiring_lines
from nunatak.database_url import MEMORY_URL
from nunatak.settings import BY_NAME, Settings, SettingsError

SHOWN_ENGINES = {"PyIceberg": "pyiceberg", "Spark": "spark", "DuckDB": "duckdb", "curl": "curl"}


@click.command()
@click.option("--memory", is_flag=True, help="Keep the catalog in memory, for tests; it is lost when the server stops.")
@setting_options("host", "port", "data", "database_url", "workers")
def serve(settings: Settings, memory: bool) -> None:
    """Start the catalog."""
    if memory:
        settings = _in_memory(settings)
    server.run(settings, partial(announce, settings=settings))


def _in_memory(settings: Settings) -> Settings:
    if settings.origins["database_url"] == "command line":
        raise SettingsError("--memory and --database-url exclude each other")
    return replace(settings, database_url=MEMORY_URL, origins={**settings.origins, "database_url": "command line"})


def announce(uri: str, *, settings: Settings) -> None:
    """Prints the address, alone on the first line for programs that wait for it, then how to connect."""
    login = _login(settings)
    echo(f"listening on {uri}")
    echo(f"\nThe catalog is ready at {uri} - Ctrl-C stops it. Configuration of clients:\n")
    exports = exports_for_commands(uri, settings)
    if exports:
        echo("--- nunatak commands in another terminal\n" + "".join(f"{line}\n" for line in exports))
    for title, engine in SHOWN_ENGINES.items():
        echo(f"--- {title}\n{wiring_lines(engine, uri, login=login)}")


def exports_for_commands(uri: str, settings: Settings) -> list[str]:
    """Returns the export lines with which commands reach this server and log in; none if the defaults suffice."""
    lines = []
    if reachable(uri) != DEFAULT_URI:
        lines.append(export_line(uri))
    if "embedded" in settings.auth and settings.data != BY_NAME["data"].default:
        # Commands log in with the administrator's file in the data folder.
        lines.append(f"export NUNATAK_DATA={shlex.quote(str(Path(settings.data).absolute()))}")
    return lines


def _login(settings: Settings) -> Login:
    """Returns the login of engines, as far as the settings of this server determine it."""
    if "embedded" in settings.auth:
        return CLIENT_LOGIN
    return NO_LOGIN if settings.auth == ("none",) else Login(token="TOKEN")
