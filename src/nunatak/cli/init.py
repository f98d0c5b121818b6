"""`nunatak init`: creates the first administrator, before authentication is switched on."""

import asyncio
import time
from pathlib import Path

import click

from nunatak import checks, server
from nunatak.access.bootstrap import ADMIN_FILE, AdministratorExists, bootstrap, look
from nunatak.access.vault import open_vault
from nunatak.cli.main import CommandRefused
from nunatak.cli.options import setting_options
from nunatak.cli.output import echo
from nunatak.settings import Settings, SettingsError

NEXT = """\
Start the catalog with NUNATAK_AUTH=embedded. Commands that use this data folder log in to its server with that file.
Elsewhere set NUNATAK_CREDENTIAL to CLIENT-ID:CLIENT-SECRET; engines call it
`credential`."""


@click.command()
@click.option("--new-secret", is_flag=True, help="Give the administrator a new secret; the old one becomes invalid.")
@setting_options("data", "database_url", "key_file")
def init(settings: Settings, new_secret: bool) -> None:
    """Create the first administrator.

    Its client id and secret are written to admin.json in the data folder, readable by you only, and are not
    printed. If the catalog has an administrator, nothing is changed.
    """
    server.make_folder(settings.data)
    file = settings.data / ADMIN_FILE
    try:
        if not new_secret and asyncio.run(_is_administered(settings)):
            raise AdministratorExists
        asyncio.run(_bootstrap(settings, file, new_secret=new_secret))
    except AdministratorExists:  # from before, or created by a concurrent `init`
        if new_secret:
            raise
        echo("the catalog already has an administrator")
        echo(_where(file))
        return
    echo(f"created the administrator admin; its client id and secret are in {file}")
    echo(NEXT)


async def _is_administered(settings: Settings) -> bool:
    async with server.open_database_read_only(settings, exclusive=False) as store:
        return (await look(store)).administered


async def _bootstrap(settings: Settings, file: Path, *, new_secret: bool) -> None:
    vault = open_vault(settings)
    try:
        async with server.open_database_read_only(settings, exclusive=True) as store:
            await vault.unlock(store)
            now_ms = time.time_ns() // 1_000_000
            await bootstrap(store, vault, file, checks.catalog_name(settings), now_ms, new_secret=new_secret)
    except SettingsError as error:
        if not checks.on_sqlite(settings) or isinstance(error, AdministratorExists):
            raise
        raise CommandRefused(
            str(error),
            hint="While a server runs, use instead: `nunatak principal create`, `nunatak credential create "
            "--kind client` and `nunatak grant add principal:NAME SERVER_ADMIN server`.",
        ) from error


def _where(file: Path) -> str:
    if file.exists():
        return f"its client id and secret are in {file}"
    return f"{file} does not exist: ask an administrator for a credential, or run `nunatak init --new-secret`"
