"""`nunatak config …`: the settings, where each came from, and what is wrong with them."""

import os

import click

from nunatak.cli.main import SuggestingGroup
from nunatak.cli.output import print_json, print_rows
from nunatak.settings import SETTINGS, load


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
    """A value as the operator would write it, without the password an address may hold."""
    if isinstance(value, tuple):
        return ",".join("=".join(item) if isinstance(item, tuple) else item for item in value)
    if name == "namespace_separator":
        return f"%{ord(str(value)):02X}"
    return without_password(str(value))


def without_password(address: str) -> str:
    scheme, separator, rest = address.partition("://")
    account, at, host = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    return f"{scheme}{separator}{user}:***@{host}" if separator and at and colon else address
