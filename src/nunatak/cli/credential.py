"""`nunatak credential …`: the credentials of principals; keys that encrypt secrets are `nunatak encryption-key`."""

import os
import re
from pathlib import Path
from typing import Any

import click

from nunatak.cli.main import CommandRefused, SuggestingGroup
from nunatak.cli.options import CommandSession, administers
from nunatak.cli.output import echo, print_facts, print_json, print_rows, time_of

KINDS = ("api-key", "client", "access-key")
UNITS = {"m": 60, "h": 3600, "d": 86_400}
HOW_TO_USE = {
    "api-key": "Send it as a bearer token: `token` of an engine, or NUNATAK_TOKEN.",
    "client": "Engines take ID:SECRET as `credential`, commands as NUNATAK_CREDENTIAL.",
    "access-key": "For clients that sign requests (rest.sigv4-enabled): access key id and secret access key.",
}


@click.group(cls=SuggestingGroup)
def credential() -> None:
    """List, create and drop the credentials of principals."""


@credential.command("list")
@click.argument("principal")
@administers
def list_keys(session: CommandSession, principal: str) -> None:
    """List a principal's credentials, without secrets."""
    found = session.client.manage("GET", ("principals", principal, "credentials"))["credentials"]
    if session.output == "json":
        print_json({"credentials": found})
        return
    rows = [
        (
            each["credential-id"],
            each["kind"],
            "all" if each["roles"] is None else ", ".join(each["roles"]),
            time_of(each["created-ms"]),
            _when(each["expires-ms"], "never"),
            _when(each["last-used-ms"], "never"),
            each["note"] or "",
        )
        for each in found
    ]
    print_rows(["key", "kind", "roles", "created", "expires", "last used", "note"], rows)


class Duration(click.ParamType):  # type: ignore[type-arg]  # of what, it can say only from click 8.4 on
    """Seconds, written as 30m, 12h or 90d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,6})([mhd])", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration: write 30m, 12h or 90d", param, ctx)
        return int(found[1]) * UNITS[found[2]]


@credential.command()
@click.argument("principal")
@click.option("--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="Kind of the credential.")
@click.option("--role", "roles", multiple=True, help="Limit the credential to this role; may be repeated.")
@click.option("--expires", type=Duration(), help="Lifetime, such as 30m, 12h or 90d; unlimited unless given.")
@click.option("--note", help="Description.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the secret to this file instead of the terminal.",
)
@administers
def create(
    session: CommandSession,
    principal: str,
    kind: str,
    roles: tuple[str, ...],
    expires: int | None,
    note: str | None,
    file: Path | None,
) -> None:
    """Create a credential; its secret is shown only once."""
    request = {"kind": kind, "roles": list(roles) or None, "note": note, "expires-in-seconds": expires}
    out = None if file is None else _new_file(file)  # first: a secret that cannot be written would be lost
    made = session.client.manage("POST", ("principals", principal, "credentials"), request)
    if out is not None:
        with os.fdopen(out, "w", encoding="utf-8") as opened:
            opened.write(f"{made.pop('secret')}\n")
    if session.output == "json":
        print_json(made)
        return
    print_facts(
        {
            "principal": principal,
            "key": made["credential-id"],
            "secret": made.get("secret") or f"in {file}",
            "expires": _when(made["expires-ms"], "never"),
        }
    )
    echo(HOW_TO_USE[kind])


@credential.command()
@click.argument("principal")
@click.argument("key_id", metavar="KEY")
@administers
def drop(session: CommandSession, principal: str, key_id: str) -> None:
    """Drop a credential; logins with it are refused at once."""
    session.client.manage("DELETE", ("principals", principal, "credentials", key_id))
    if session.output == "json":
        print_json({"dropped": key_id})
    else:
        echo(f"dropped key {key_id} of {principal}")


@credential.command("rotate-signing")
@click.option("--forget-older", is_flag=True, help="Invalidate every token issued before.")
@administers
def rotate_signing(session: CommandSession, forget_older: bool) -> None:
    """Sign access tokens with a new key from now on."""
    made = session.client.manage("POST", ("keys", "rotate"), {"forget-older": forget_older})
    if session.output == "json":
        print_json(made)
    else:
        echo(f"tokens are signed with key {made['key-id']} from now on")


def _when(milliseconds: int | None, otherwise: str) -> str:
    return otherwise if milliseconds is None else time_of(milliseconds)


def _new_file(file: Path) -> int:
    """Creates a file readable by its owner only; refuses one that exists."""
    try:
        return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandRefused(f"cannot write {file}: {error.strerror}", hint="Nothing was created.") from error
