"""`nunatak grant …`: lists, adds and removes the grants of principals and roles."""

import click

from nunatak.cli.bundles import in_bundles
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.options import CommandSession, administers
from nunatak.cli.output import echo, print_json, print_rows, time_of

# The arguments that the help texts of several commands explain.
MEANINGS = """\
    \b
    GRANTEE     principal:NAME or role:NAME
    PRIVILEGES  READ, WRITE, ADMIN or single ones such as TABLE_DROP, separated by commas
    OBJECT      server, warehouse:WH, namespace:WH/A/B, table:WH/A/T or view:WH/A/V
"""


@click.group(cls=SuggestingGroup)
def grant() -> None:
    """List, add and remove grants."""


@grant.command("list")
@click.option("--grantee", help="Only grants to principal:NAME or role:NAME.")
@click.option("--object", "securable", help="Only grants on this object itself.")
@administers
def list_grants(session: CommandSession, grantee: str | None, securable: str | None) -> None:
    """List grants."""
    query = {"grantee": grantee, "securable": securable}
    asked = {name: value for name, value in query.items() if value is not None}
    found = list(session.client.manage_pages(("grants",), "grants", asked))
    if session.output == "json":
        print_json({"grants": found})
    else:
        rows = [
            (
                each["grantee"],
                each["securable"],
                in_bundles(each["privileges"]),
                each["granted-by"],
                time_of(each["granted-ms"]),
            )
            for each in found
        ]
        print_rows(["grantee", "object", "privileges", "granted by", "at"], rows)


@grant.command(
    help=f"""Grant privileges on an object and everything inside it.

    \b
    nunatak grant add role:analyst READ namespace:default/sales

{MEANINGS}
    A principal can grant only privileges that it holds.
    """
)
@click.argument("grantee")
@click.argument("privileges")
@click.argument("securable", metavar="OBJECT")
@administers
def add(session: CommandSession, grantee: str, privileges: str, securable: str) -> None:
    names = privileges.split(",")
    session.client.manage("POST", ("grants",), {"grantee": grantee, "securable": securable, "privileges": names})
    if session.output == "json":
        print_json({"grantee": grantee, "securable": securable, "granted": names})
    else:
        echo(f"granted {privileges} on {securable} to {grantee}")


@grant.command(
    help=f"""Remove privileges granted on the object itself.

    \b
    nunatak grant remove role:analyst READ namespace:default/sales

{MEANINGS}
    Remove an inherited privilege from the object it was granted on; `nunatak access explain` shows which one.
    """
)
@click.argument("grantee")
@click.argument("privileges")
@click.argument("securable", metavar="OBJECT")
@administers
def remove(session: CommandSession, grantee: str, privileges: str, securable: str) -> None:
    query = {"grantee": grantee, "securable": securable, "privileges": privileges}
    session.client.manage("DELETE", ("grants",), query=query)
    if session.output == "json":
        print_json({"grantee": grantee, "securable": securable, "revoked": privileges.split(",")})
    else:
        echo(f"revoked {privileges} on {securable} from {grantee}")
