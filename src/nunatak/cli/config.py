"""`nunatak config …`: the settings, where each came from, and what is wrong with them."""

import os

import click

from nunatak.cli.main import SuggestingGroup
from nunatak.cli.output import print_json, print_rows
from nunatak.secret import Secret
from nunatak.settings import SETTINGS, load, without_password


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Look at the settings."""


@config.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def check(output: str) -> None:
    """Print every setting, its value and where it came from; fail if one cannot be used."""
    settings = load({}, os.environ)
    rows = [
        (setting.name, written(setting.name, getattr(settings, setting.name)), settings.origins[setting.name])
        for setting in SETTINGS
    ]
    if output == "json":
        print_json({name: {"value": value, "origin": origin} for name, value, origin in rows})
    else:
        print_rows(["setting", "value", "from"], rows)


def written(name: str, value: object) -> str:
    """A value as the operator would write it, without what is secret about it."""
    if isinstance(value, Secret):
        return "***" if value else ""
    if isinstance(value, tuple):
        return ",".join(without_password("=".join(item) if isinstance(item, tuple) else item) for item in value)
    if name == "namespace_separator":
        return f"%{ord(str(value)):02X}"
    return without_password(str(value))
