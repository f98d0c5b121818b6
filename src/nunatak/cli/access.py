"""`nunatak access …`: explains the privileges of principals and the grants behind them."""

from typing import Any

import click

from nunatak.cli.bundles import in_bundles
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.options import CommandSession, administers
from nunatak.cli.output import print_facts, print_json, print_rows

Json = dict[str, Any]


@click.group(cls=SuggestingGroup)
def access() -> None:
    """Explain the privileges of principals."""


@access.command()
@click.argument("principal")
@click.argument("privilege")
@click.argument("securable", metavar="OBJECT")
@click.option(
    "--role", "roles", multiple=True, help="Evaluate with this role as if a token carried it; may be repeated."
)
@administers
def explain(session: CommandSession, principal: str, privilege: str, securable: str, roles: tuple[str, ...]) -> None:
    """Show whether a principal holds a privilege, through which grant, and who can grant it.

    Every principal may query its own privileges; those of others need GRANT on OBJECT.

    \b
    nunatak access explain alice TABLE_WRITE table:default/sales/orders
    """
    query = {"principal": principal, "privilege": privilege, "securable": securable}
    if roles:
        query["roles"] = ",".join(roles)
    found = session.client.manage("GET", ("access", "explain"), query=query)
    if session.output == "json":
        print_json(found)
        return
    print_facts(
        {
            "answer": "allowed" if found["allowed"] else "denied",
            "because": found["reason"],
            "roles": ", ".join(found["roles"]) or "none",
            "decided by": found["decided-by"],
            "who can grant it": ", ".join(found["granted-by"]) or _granted_by_others(found["decided-by"]),
        }
    )
    print_rows(["", "object", "grantee", "privileges"], [_step(found, grant) for grant in found["grants"]])


def _granted_by_others(decided_by: str) -> str:
    """Returns who can help if no grant gives the privilege."""
    return (
        "no principal" if decided_by in ("grants", "nobody") else f"the administrators of the policies of {decided_by}"
    )


def _step(found: Json, grant: Json) -> tuple[str, str, str, str]:
    mark = "decides" if grant == found["deciding-grant"] else ""
    return mark, grant["securable"], grant["grantee"], in_bundles(grant["privileges"])


@access.command()
@click.argument("securable", metavar="[OBJECT]", default="server")
@administers
def matrix(session: CommandSession, securable: str) -> None:
    """Print the privileges of every principal and role on OBJECT and on the objects inside it.

    OBJECT itself is listed with every holder of a privilege, an object inside it only with holders of further grants.
    """
    found = session.client.manage("GET", ("access", "matrix"), query={"securable": securable})
    if session.output == "json":
        print_json(found)
        return
    rows = [
        (each["securable"], each["holder"], in_bundles(each["privileges"]), _granting_sources(each))
        for each in found["holdings"]
    ]
    print_rows(["object", "who", "may", "through"], rows)


def _granting_sources(holding: Json) -> str:
    """Returns the grants behind a privilege, except the holder's own on the object itself."""
    return ", ".join(
        f"{each['grantee']} on {each['securable']}"
        for each in holding["through"]
        if (each["grantee"], each["securable"]) != (holding["holder"], holding["securable"])
    )
