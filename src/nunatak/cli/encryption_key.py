"""`nunatak encryption-key …`: the keys that encrypt secrets in the catalog's database."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from nunatak import checks, server
from nunatak.access import rotation
from nunatak.access.key_file import new_key
from nunatak.access.vault import Vault, open_vault
from nunatak.api.encryption_keys import list_response, rotate_response
from nunatak.cli.main import CommandRefused, SuggestingGroup
from nunatak.cli.options import connect, output_option, setting_options
from nunatak.cli.output import echo, print_json, print_rows
from nunatak.database.store import Store
from nunatak.settings import Settings, SettingsError

T = TypeVar("T")
Json = dict[str, Any]
BACKUPS = "Older backups of the database need the removed keys: keep the keys with the backups."

through_server = click.option(
    "--uri",
    envvar="NUNATAK_URI",
    help="Call the server at this address; required while a server runs on SQLite. [NUNATAK_URI]",
)


@click.group(cls=SuggestingGroup)
def encryption_key() -> None:
    """List, rotate and retire the keys that encrypt secrets."""


@encryption_key.command(name="list")
@through_server
@output_option
@setting_options("data", "database_url", "key_file")
def list_keys(settings: Settings, uri: str | None, output: str) -> None:
    """Print the ids of the keys and how many secrets each encrypts, without the keys."""

    async def run_directly(store: Store, vault: Vault) -> Json:
        return _as_json(list_response(await rotation.list_keys(store, vault)))

    found = (_ask(uri, "GET") if uri else _run(settings, run_directly, exclusive=False))["encryption-keys"]
    if output == "json":
        print_json(found)
    else:
        print_rows(["key", "secrets", ""], [(key["key-id"], key["values"], _remark(key)) for key in found])


def _remark(key: Json) -> str:
    if not key["in-key-file"]:
        return "missing in the key file"
    return "encrypts" if key["encrypts"] else ("" if key["values"] else "can be retired")


@encryption_key.command()
@through_server
@setting_options("data", "database_url", "key_file")
def rotate(settings: Settings, uri: str | None) -> None:
    """Put a new key first in the key file and re-encrypt every secret with it.

    Running servers read the new key without a restart. Clients keep their secrets, API keys and access keys. After an
    interruption, run it again: it continues. Then `nunatak encryption-key retire` removes the old
    key.
    """

    async def run_directly(store: Store, vault: Vault) -> Json:
        return _as_json(rotate_response(await rotation.rotate(store, vault)))

    done = _ask(uri, "POST", "rotate") if uri else _run(settings, run_directly, exclusive=True)
    echo(f"{done['encrypted-anew']} secrets were re-encrypted with key {done['key-id']}")
    if not done["new"]:
        echo("This completed an interrupted rotation; run it again for a new key.")


@encryption_key.command()
@through_server
@setting_options("data", "database_url", "key_file")
def retire(settings: Settings, uri: str | None) -> None:
    """Remove keys from the key file that encrypt no secret in this database."""

    async def run_directly(store: Store, vault: Vault) -> Json:
        return {"retired": await rotation.retire(store, vault, time.time_ns() // 1_000_000)}

    retired = (_ask(uri, "POST", "retire") if uri else _run(settings, run_directly, exclusive=True))["retired"]
    for key_id in retired:
        echo(f"removed {key_id}")
    echo(BACKUPS if retired else "every key is needed; none was removed")


@encryption_key.command()
def generate() -> None:
    """Print a line for a key file kept elsewhere, such as a Kubernetes secret; nothing is changed.

    The first line of a key file encrypts. Where servers have copies of it, add the new line at the end of every copy
    first, then move it to the top, then call `nunatak encryption-key rotate`.
    """
    echo(new_key().line())


def _run(settings: Settings, work: Callable[[Store, Vault], Awaitable[T]], *, exclusive: bool) -> T:
    """Runs `work` directly on the database."""
    checks.require_database(settings)

    async def once() -> T:
        async with server.open_database_read_only(settings, exclusive=exclusive) as store:
            return await work(store, open_vault(settings))

    try:
        return asyncio.run(once())
    except SettingsError as error:
        if exclusive and checks.on_sqlite(settings) and "already works on" in str(error):
            raise CommandRefused("a server uses this database", hint="Give its address with --uri.") from error
        raise


def _as_json(answer: object) -> Json:
    """Returns a response as the JSON that the server would send."""
    body: Json = msgspec.to_builtins(answer)
    return body


def _ask(uri: str, method: str, *action: str) -> Json:
    with connect(uri) as client:
        return client.manage(method, ("encryption-keys", *action))
