"""`nunatak role …`: lists, creates and drops roles, and manages their members."""

import click

from nunatak.cli.main import SuggestingGroup
from nunatak.cli.options import CommandSession, administers
from nunatak.cli.output import echo, print_json, print_rows, time_of
from nunatak.cli.principal import note_option


@click.group(cls=SuggestingGroup)
def role() -> None:
    """List, create and drop roles, and manage their members."""


@role.command("list")
@administers
def list_roles(session: CommandSession) -> None:
    """List the roles."""
    found = list(session.client.manage_pages(("roles",), "roles"))
    if session.output == "json":
        print_json({"roles": found})
    else:
        rows = [(each["name"], time_of(each["created-ms"]), each["note"] or "") for each in found]
        print_rows(["role", "created", "note"], rows)


@role.command()
@click.argument("name")
@note_option
@administers
def create(session: CommandSession, name: str, note: str | None) -> None:
    """Create a role; `nunatak grant add role:NAME …` gives it privileges."""
    created = session.client.manage("POST", ("roles",), {"name": name, "note": note})
    if session.output == "json":
        print_json(created)
    else:
        echo(f"created role {name}")


@role.command()
@click.argument("name")
@administers
def drop(session: CommandSession, name: str) -> None:
    """Drop a role and its grants."""
    session.client.manage("DELETE", ("roles", name))
    if session.output == "json":
        print_json({"dropped": name})
    else:
        echo(f"dropped role {name}")


@role.command()
@click.argument("name")
@administers
def members(session: CommandSession, name: str) -> None:
    """List the members of a role."""
    found = list(session.client.manage_pages(("roles", name, "members"), "members"))
    if session.output == "json":
        print_json({"members": found})
    else:
        print_rows(["principal"], [[each] for each in found])


@role.command()
@click.argument("name")
@click.argument("principal")
@administers
def add(session: CommandSession, name: str, principal: str) -> None:
    """Add a principal to a role."""
    session.client.manage("POST", ("roles", name, "members"), {"principal": principal})
    if session.output == "json":
        print_json({"role": name, "added": principal})
    else:
        echo(f"added {principal} to role {name}")


@role.command()
@click.argument("name")
@click.argument("principal")
@administers
def remove(session: CommandSession, name: str, principal: str) -> None:
    """Remove a principal from a role."""
    session.client.manage("DELETE", ("roles", name, "members", principal))
    if session.output == "json":
        print_json({"role": name, "removed": principal})
    else:
        echo(f"removed {principal} from role {name}")
