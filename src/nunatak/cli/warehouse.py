"""`nunatak warehouse …`: lists, shows, creates, changes, checks and drops warehouses."""

from collections.abc import Mapping
from typing import Any

import click

from nunatak.cli.main import CommandRefused, SuggestingGroup
from nunatak.cli.options import CommandSession, administers
from nunatak.cli.output import echo, print_facts, print_json, print_rows
from nunatak.cli.storage_options import described_profile, profile_options, read_secret, rule_options, rules_given

Json = dict[str, Any]


@click.group(cls=SuggestingGroup)
def warehouse() -> None:
    """List, show, create, change, check and drop warehouses."""


@warehouse.command("list")
@administers
def list_warehouses(session: CommandSession) -> None:
    """List the warehouses visible to you."""
    found = list(session.client.manage_pages(("warehouses",), "warehouses"))
    if session.output == "json":
        print_json({"warehouses": found})
    else:
        rows = [(each["name"], each["storage"], each["location"], _remark(each)) for each in found]
        print_rows(["warehouse", "storage", "location", ""], rows)


@warehouse.command()
@click.argument("name")
@administers
def show(session: CommandSession, name: str) -> None:
    """Show a warehouse; its secret is never shown."""
    found = session.client.manage("GET", ("warehouses", name))
    if session.output == "json":
        print_json(found)
    else:
        print_facts(_facts(found))


@warehouse.command()
@click.argument("name")
@click.option("--location", help="Where its tables lie: a folder, or s3://, abfss:// or gs://; chosen unless given.")
@profile_options
@click.option("--secret-file", type=click.File("r"), help="JSON with the keys of the store; - reads standard input.")
@rule_options
@click.option(
    "--unscoped",
    is_flag=True,
    help="Accept a store that does not limit vended credentials: vend none, and sign requests instead.",
)
@administers
def create(
    session: CommandSession, name: str, location: str | None, secret_file: Any, unscoped: bool, **given: Any
) -> None:
    """Create a warehouse, after testing its store; every server of the catalog serves it soon."""
    profile = described_profile(given, None, location)
    wanted = {
        "name": name,
        "location": location,
        **({} if profile is None else {"profile": profile}),
        "secret": read_secret(secret_file, profile),
        "unscoped": unscoped,
        **rules_given(given),
    }
    made = session.client.manage("POST", ("warehouses",), wanted)
    _print_changed(session, made, f"created warehouse {name} at {made['location']}")


@warehouse.command()
@click.argument("name")
@profile_options
@click.option("--secret-file", type=click.File("r"), help="The keys again; needed with another endpoint.")
@rule_options
@click.option("--unscoped", is_flag=True, help="Vend no credentials from now on, and sign requests instead.")
@click.option("--if-version", type=int, help="Change it only if it is at this version; the current one unless given.")
@administers
def change(
    session: CommandSession, name: str, secret_file: Any, unscoped: bool, if_version: int | None, **given: Any
) -> None:
    """Change a warehouse; what is not given stays as it is. Its store is tested before."""
    before = session.client.manage("GET", ("warehouses", name))
    profile = described_profile(given, before["profile"], before["location"])
    wanted: Json = {"version": if_version or before["version"], "unscoped": unscoped, **rules_given(given)}
    if profile is not None:
        wanted["profile"] = profile
    if secret_file is not None:
        wanted["secret"] = read_secret(secret_file, before["profile"])
    made = session.client.manage("PATCH", ("warehouses", name), wanted)
    _print_changed(session, made, f"changed warehouse {name}: it is at version {made['version']}")


@warehouse.command("rotate-secret")
@click.argument("name")
@click.option(
    "--secret-file",
    type=click.File("r"),
    required=True,
    help="JSON with the new keys; - reads standard input.",
)
@administers
def rotate_secret(session: CommandSession, name: str, secret_file: Any) -> None:
    """Replace the keys of a warehouse, once they have passed the self-test.

    Other servers use the old keys for up to 30 seconds more: delete them from the store after that.
    """
    before = session.client.manage("GET", ("warehouses", name))
    wanted = {"secret": read_secret(secret_file, before["profile"]), "version": before["version"]}
    made = session.client.manage("POST", ("warehouses", name, "secret"), wanted)
    _print_changed(session, made, f"replaced the secret of warehouse {name}")


@warehouse.command()
@click.argument("name")
@administers
def check(session: CommandSession, name: str) -> None:
    """Test the store of a warehouse: files, clock, region, and the scope of vended credentials.

    Writes a few small files into a folder of its own in the warehouse and deletes them. Fails if a step fails.
    """
    found = session.client.manage("POST", ("warehouses", name, "check"))
    if session.output == "json":
        print_json(found)
    else:
        _print_steps(found["steps"])
    if not found["passed"]:
        raise CommandRefused(f"the store of warehouse {name} failed the self-test")


@warehouse.command()
@click.argument("name")
@administers
def drop(session: CommandSession, name: str) -> None:
    """Drop an empty warehouse; its files are kept."""
    session.client.manage("DELETE", ("warehouses", name))
    if session.output == "json":
        print_json({"dropped": name})
    else:
        echo(f"dropped warehouse {name}")


def _print_changed(session: CommandSession, made: Json, said: str) -> None:
    if session.output == "json":
        print_json(made)
        return
    if made["steps"]:
        _print_steps(made["steps"])
    echo(said)


def _print_steps(steps: list[Json]) -> None:
    print_rows(["step", "outcome", ""], [(step["name"], step["outcome"], step["detail"]) for step in steps])


def _remark(each: Mapping[str, Any]) -> str:
    words = ["default"] if each["default"] else ["from the settings"] if each["configured"] else []
    return ", ".join(words + (["read-only"] if each["read-only"] else []))


def _facts(found: Json) -> dict[str, object]:
    profile = found["profile"] or {}
    return {
        "warehouse": found["name"],
        "version": found["version"],
        "location": found["location"],
        "further locations": ", ".join(found["allowed-locations"][1:]) or "none",
        "storage": found["storage"],
        **{name: value for name, value in profile.items() if name != "type" and value is not None},
        "secret": "stored" if found["has-secret"] else "none",
        "read-only": "yes" if found["read-only"] else "no",
        "format versions": ", ".join(map(str, found["format-versions"])),
        "default format version": found["default-format-version"],
        "layout": found["layout"],
        "must lie in": found["region"] or "anywhere",
    }
