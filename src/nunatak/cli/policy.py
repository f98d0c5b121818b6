"""`nunatak policy …`: sets, shows, drops and explains maintenance policies."""

import json
import re
from pathlib import Path
from typing import Any

import click

from nunatak.cli.main import SuggestingGroup
from nunatak.cli.names import NAME, print_name
from nunatak.cli.options import CommandSession, administers, talks_to_server
from nunatak.cli.output import echo, print_json, print_rows, time_of
from nunatak.cli.plans import print_decisions
from nunatak.cli.securable_names import securable_of
from nunatak.client import Json, Levels
from nunatak.maintenance.policies import TYPES

UNITS = {"seconds": {"s": 1, "m": 60, "h": 3600, "d": 86_400}, "bytes": {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}}
_AMOUNT = re.compile(r"(\d+) ?([a-z])(?:ib)?", re.IGNORECASE)

MEANINGS = f"""\
    \b
    TYPE    {", ".join(TYPES[:4])},
            {", ".join(TYPES[4:])}
    OBJECT  warehouse:WH, namespace:WH/A/B or table:WH/A/T
"""


@click.group(cls=SuggestingGroup)
def policy() -> None:
    """Set, show, drop and explain maintenance policies."""


@policy.command(
    "set",
    help=f"""Set a policy on an object, for it and everything inside it. The nearest policy of each type applies.

    \b
    nunatak policy set snapshot-expiry namespace:default/sales max-snapshot-age-seconds=7d min-snapshots-to-keep=10
    nunatak policy set data-compaction table:default/sales/orders strategy=sort columns=day,id \\
        trigger.small-file-percent=40 budget.window.start=22:00 budget.window.end=06:00

{MEANINGS}
    FIELD is the path of a field, joined by dots. Seconds may be written 90s, 15m, 6h or 7d, bytes 64MiB or
    2GiB, and lists with commas.
    """,
)
@click.argument("kind", metavar="TYPE")
@click.argument("securable", metavar="OBJECT")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The policy as JSON.")
@click.option("--disabled", is_flag=True, help="Disable this type of job here, overriding inherited policies.")
@administers
def set_policy(
    session: CommandSession, kind: str, securable: str, fields: tuple[str, ...], file: Path | None, disabled: bool
) -> None:
    body: Json = json.loads(file.read_text("utf-8")) if file is not None else {}
    for text in fields:
        _put_policy(body, text)
    body["type"] = kind
    if disabled:
        body["enabled"] = False
    session.client.manage("POST", ("policies",), {"securable": securable, "policy": body})
    if session.output == "json":
        print_json({"securable": securable, "policy": body})
    else:
        echo(f"set {kind} on {securable}")


def _put_policy(body: Json, text: str) -> None:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is not FIELD=VALUE")
    *outer, last = name.split(".")
    for part in outer:
        body = body.setdefault(part, {})
        if not isinstance(body, dict):
            raise click.UsageError(f"{name!r} is both a value and a group of values")
    body[last] = value_of(last, value)


def value_of(field: str, text: str) -> Any:
    """Parses the value of a field by the type that its name implies."""
    if field in ("columns", "days"):
        return [each.strip() for each in text.split(",") if each.strip()]
    if field in ("column", "note", "start", "end", "strategy"):
        return text
    found = _AMOUNT.fullmatch(text)
    units = next((UNITS[word] for word in field.split("-") if word in UNITS), {})
    if found is not None and found[2].lower() in units:
        return int(found[1]) * units[found[2].lower()]
    try:
        return json.loads(text)
    except ValueError:
        if units:
            examples = ", ".join(f"7{unit}" for unit in units)
            raise click.UsageError(f"{field} is {text!r}: write a number, or one with a unit: {examples}") from None
        return text


@policy.command()
@click.argument("securable", metavar="OBJECT")
@click.option("--inside", is_flag=True, help="List policies set on it and inside it instead of those that apply to it.")
@administers
def show(session: CommandSession, securable: str, inside: bool) -> None:
    """Show the policies that apply to an object, and where they are set."""
    if inside:
        found = list(session.client.manage_pages(("policies",), "policies", {"securable": securable}))
    else:
        found = session.client.manage("GET", ("policies", "effective"), query={"securable": securable})["policies"]
    if session.output == "json":
        print_json({"policies": found})
        return
    rows = [
        (each["policy"]["type"], each["securable"], _fields(each["policy"]), each["changed-by"], _when(each))
        for each in found
    ]
    print_rows(["type", "set on", "fields", "by", "at"], rows)


def _fields(body: Json) -> str:
    return ", ".join(_flat({name: value for name, value in body.items() if name != "type"})) or "as usual"


def _flat(body: Json, prefix: str = "") -> list[str]:
    """Returns every field as FIELD=VALUE, as a user would type it."""
    found = []
    for name, value in body.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found.append(f"{prefix}{name}={','.join(map(str, value))}")
        else:
            found.append(f"{prefix}{name}={json.dumps(value) if isinstance(value, bool) else value}")
    return found


def _when(attached: Json) -> str:
    return time_of(attached["changed-ms"])


@policy.command()
@click.argument("kind", metavar="TYPE")
@click.argument("securable", metavar="OBJECT")
@administers
def drop(session: CommandSession, kind: str, securable: str) -> None:
    """Drop a policy from an object; then the inherited policy applies, if there is one."""
    session.client.manage("DELETE", ("policies",), query={"securable": securable, "type": kind})
    if session.output == "json":
        print_json({"dropped": kind, "securable": securable})
    else:
        echo(f"dropped {kind} from {securable}")


@policy.command()
@click.argument("name", type=NAME, metavar="TABLE")
@talks_to_server
def explain(session: CommandSession, name: Levels) -> None:
    """Show for each type of job whether it is due, which policy decides, and the reason.

    \b
    nunatak policy explain sales.orders
    """
    query = {"securable": securable_of(session.client, name, table=True)}
    found = session.client.manage("GET", ("maintenance", "plan"), query=query)
    if session.output == "json":
        print_json(found["tables"][0])
        return
    echo(print_name(name))
    print_decisions(found["tables"][0]["decisions"])
