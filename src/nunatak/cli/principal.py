"""`nunatak principal …`: lists, shows, creates, disables and drops principals."""

import click

from nunatak.cli.bundles import in_bundles
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.options import CommandSession, administers
from nunatak.cli.output import echo, print_facts, print_json, print_rows, time_of

note_option = click.option("--note", help="Description.")


@click.group(cls=SuggestingGroup)
def principal() -> None:
    """List, show, create, disable and drop principals."""


@principal.command("list")
@administers
def list_principals(session: CommandSession) -> None:
    """List the principals stored in this catalog."""
    found = list(session.client.manage_pages(("principals",), "principals"))
    if session.output == "json":
        print_json({"principals": found})
    else:
        rows = [
            (each["name"], "disabled" if each["disabled"] else "", time_of(each["created-ms"]), each["note"] or "")
            for each in found
        ]
        print_rows(["principal", "", "created", "note"], rows)


@principal.command()
@click.argument("name")
@administers
def show(session: CommandSession, name: str) -> None:
    """Show a principal, its roles and its grants."""
    loaded = session.client.manage("GET", ("principals", name))
    grants = list(session.client.manage_pages(("grants",), "grants", {"grantee": f"principal:{name}"}))
    if session.output == "json":
        print_json({**loaded, "grants": grants})
        return
    print_facts(
        {
            "principal": loaded["name"],
            "disabled": "yes" if loaded["disabled"] else "no",
            "created": time_of(loaded["created-ms"]),
            "note": loaded["note"] or "",
            "roles": ", ".join(loaded["roles"]) or "none",
            "grants": "\n".join(f"{each['securable']}: {in_bundles(each['privileges'])}" for each in grants) or "none",
        }
    )


@principal.command()
@click.argument("name")
@note_option
@click.option("--role", "roles", multiple=True, help="Make it a member of this role; may be repeated.")
@administers
def create(session: CommandSession, name: str, note: str | None, roles: tuple[str, ...]) -> None:
    """Create a principal; `nunatak credential create` creates a credential for it."""
    created = session.client.manage("POST", ("principals",), {"name": name, "note": note})
    for role in roles:
        session.client.manage("POST", ("roles", role, "members"), {"principal": name})
    if session.output == "json":
        print_json({**created, "roles": list(roles)})
    else:
        echo(f"created principal {name}")


@principal.command()
@click.argument("name")
@administers
def disable(session: CommandSession, name: str) -> None:
    """Disable a principal: all its requests are refused until it is enabled again."""
    _set_disabled(session, name, "disabled", disabled=True)


@principal.command()
@click.argument("name")
@administers
def enable(session: CommandSession, name: str) -> None:
    """Enable a principal that was disabled."""
    _set_disabled(session, name, "enabled", disabled=False)


def _set_disabled(session: CommandSession, name: str, word: str, *, disabled: bool) -> None:
    session.client.manage("PATCH", ("principals", name), {"disabled": disabled})
    if session.output == "json":
        print_json({"name": name, "disabled": disabled})
    else:
        echo(f"{word} principal {name}")


@principal.command()
@click.argument("name")
@administers
def drop(session: CommandSession, name: str) -> None:
    """Drop a principal with its keys, its memberships and its grants."""
    session.client.manage("DELETE", ("principals", name))
    if session.output == "json":
        print_json({"dropped": name})
    else:
        echo(f"dropped principal {name}")
