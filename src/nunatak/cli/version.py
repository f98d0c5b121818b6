"""`nunatak version`: prints the versions of Nunatak, Python and SQLite."""

import platform

import apsw
import click

from nunatak import __version__
from nunatak.cli.output import echo


@click.command()
def version() -> None:
    """Print the version."""
    echo(f"nunatak {__version__} (Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()})")
