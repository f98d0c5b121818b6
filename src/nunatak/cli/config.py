"""`nunatak config …`: prints and checks the settings and the source of each."""

import os

import click

from nunatak import checks
from nunatak.access.key_file import open_key_file
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.output import print_json, print_rows
from nunatak.secret import Secret
from nunatak.settings import SETTINGS, Settings, load, without_password


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Print and check the settings."""


@config.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def check(output: str) -> None:
    """Print every setting, its value and its source; fail if the server would not start with them.

    Nothing is opened or written: whether the database is reachable and the port is free is not checked.
    """
    settings = load({}, os.environ)
    derived = _derived_values(settings)
    rows = [
        (
            setting.name,
            format_setting(setting.name, getattr(settings, setting.name)) or derived.get(setting.name, ""),
            settings.origins[setting.name],
        )
        for setting in SETTINGS
    ]
    if output == "json":
        print_json({name: {"value": value, "origin": origin} for name, value, origin in rows})
    else:
        print_rows(["setting", "value", "from"], rows)
    checks.check(settings)


def _derived_values(settings: Settings) -> dict[str, str]:
    """Returns the values that are used for settings left empty."""
    return {
        "database_url": f"sqlite:///{settings.data / checks.DATABASE_FILE}",
        "warehouse": settings.all_warehouses()[0].location,
        "warehouse_roots": ",".join(settings.all_warehouse_roots()),
        "key_file": str(open_key_file(settings).path),
        "spool_location": "" if settings.spool_location else str(settings.spool_folder()),
    }


def format_setting(name: str, value: object) -> str:
    """Formats a value as the operator would write it, with secrets masked."""
    if isinstance(value, Secret):
        return "***" if value else ""
    if isinstance(value, tuple):
        return ",".join(without_password("=".join(item) if isinstance(item, tuple) else item) for item in value)
    if name == "namespace_separator":
        return f"%{ord(str(value)):02X}"
    return without_password(str(value))
