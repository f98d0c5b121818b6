"""`nunatak connect`: prints the configuration of an engine for the catalog."""

import os
from collections.abc import Mapping

import click

from nunatak.cli.login import has_admin_file
from nunatak.cli.options import uri_option
from nunatak.cli.output import echo
from nunatak.connect import CLIENT_LOGIN, ENGINES, KEY_LOGIN, NO_LOGIN, Login, wiring_lines
from nunatak.settings import SettingsError

LOGINS = {"none": NO_LOGIN, "client": CLIENT_LOGIN, "key": KEY_LOGIN}


@click.command()
@click.argument("engine", type=click.Choice(list(ENGINES)))
@uri_option
@click.option("--warehouse", help="Warehouse by name; the server's default one unless given.")
@click.option(
    "--login",
    type=click.Choice(list(LOGINS)),
    help="Client id and secret, API key or no login; default: the login of this command.",
)
@click.option(
    "--with-secret",
    is_flag=True,
    help="Print the secret of NUNATAK_CREDENTIAL or NUNATAK_TOKEN instead of a placeholder.",
)
def connect(engine: str, uri: str, warehouse: str | None, login: str | None, with_secret: bool) -> None:
    """Print the configuration of an engine for the catalog."""
    kind = login or _own_kind(os.environ)
    chosen = _from(os.environ, kind) if with_secret else LOGINS[kind]
    echo(wiring_lines(engine, uri, warehouse, chosen), nl=False)


def _own_kind(environment: Mapping[str, str]) -> str:
    """Guesses how the engine logs in from how commands here do."""
    if environment.get("NUNATAK_TOKEN"):
        return "key"
    return "client" if environment.get("NUNATAK_CREDENTIAL") or has_admin_file(environment) else "none"


def _from(environment: Mapping[str, str], kind: str) -> Login:
    """Returns the login in the environment; never the administrator's, as engines should have one of their own."""
    credential, token = environment.get("NUNATAK_CREDENTIAL"), environment.get("NUNATAK_TOKEN")
    if kind == "client" and credential:
        return Login(credential=credential)
    if kind == "key" and token:
        return Login(token=token)
    raise SettingsError(
        "--with-secret found no secret: set NUNATAK_CREDENTIAL to CLIENT-ID:CLIENT-SECRET (--login client), or "
        "NUNATAK_TOKEN to an API key (--login key); `nunatak credential create` makes either"
    )
