"""`nunatak get`: answers one request in this process, without a socket or a running server."""

import sys

import click

from nunatak import checks, server
from nunatak.cli.main import EXIT_REFUSED
from nunatak.cli.options import setting_options
from nunatak.cli.output import echo
from nunatak.settings import Settings


@click.command()
@click.argument("path")
@setting_options("data", "database_url")
def get(path: str, settings: Settings) -> None:
    """Answer one GET request without a running server.

    \b
    nunatak get /v1/config
    """
    checks.require_database(settings)
    status, _, body = server.answer(settings, "GET", path if path.startswith("/") else f"/{path}", {}, b"")
    refused = status >= 400
    echo(body, err=refused)
    if refused:
        sys.exit(EXIT_REFUSED)
