"""`nunatak health`: prints health scores of tables, and the command that would improve each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from nunatak.cli.names import NAMESPACE, print_name
from nunatak.cli.options import CommandSession, talks_to_server
from nunatak.cli.output import echo, print_facts, print_json, print_rows
from nunatak.cli.securable_names import name_of, place_of
from nunatak.client import Client, Json, Levels

PAGE, DEEP_PAGE = 50, 5  # tables per request, and so per step of the progress bar


@click.command()
@click.argument("name", type=NAMESPACE, required=False, metavar="[TABLE|NAMESPACE]")
@click.option("--deep", is_flag=True, help="Also read the manifests: slower, and exact for every partition.")
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@click.option("--below", type=click.IntRange(1, 101), default=101, help="Only tables with a lower score.")
@talks_to_server
def health(session: CommandSession, name: Levels | None, deep: bool, as_json: bool, below: int) -> None:
    """Print the health scores of tables, and how to improve them.

    The best score is 100.

    \b
    nunatak health sales.orders        one table, check by check
    nunatak health sales               the tables of a namespace, worst first
    nunatak health                     all tables of the warehouse
    """
    tables, one = _find_tables(session.client, name, deep)
    shown = sorted((each for each in tables if each.get("score", 0) < below), key=lambda each: each.get("score", -1))
    if as_json or session.output == "json":
        print_json({"tables": shown})
    elif one:
        _print_table(shown[0] if shown else tables[0])
    else:
        _print_tables(shown, len(tables))


def _find_tables(client: Client, name: Levels | None, deep: bool) -> tuple[list[Json], bool]:
    """Returns the tables, and whether the name is that of a table."""
    securable, is_table = place_of(client, name)
    query = {"securable": securable, "deep": str(deep).lower()}
    if is_table:
        return client.manage("GET", ("health",), query=query)["tables"], True
    found: list[Json] = []
    with _progress(client, name) as advance:
        for page in _pages(client, query, DEEP_PAGE if deep else PAGE):
            found += page
            advance(len(page))
    return found, False


def _pages(client: Client, query: Json, size: int) -> Iterator[list[Json]]:
    token: str | None = ""
    while token is not None:
        page = client.manage("GET", ("health",), query={**query, "pageToken": token, "pageSize": str(size)})
        yield page["tables"]
        token = page.get("next-page-token")


@contextmanager
def _progress(client: Client, name: Levels | None) -> Iterator[Any]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        total = None if name is None or not console.is_terminal else sum(1 for _ in client.list_tables(name))
        bar = progress.add_task("Scoring tables", total=total)
        yield lambda count: progress.advance(bar, count)


def _print_table(table: Json) -> None:
    facts = table["facts"]
    print_facts(
        {
            "table": print_name(name_of(table["securable"])),
            "score": f"{table['score']} of 100",
            "data files": _count(facts["data-files"], facts["data-bytes"]),
            "delete files": _count(facts["delete-files"]),
            "snapshots": facts["snapshots"],
            "metadata": size_of(facts["metadata-bytes"]),
        }
    )
    rows = [
        (
            f"-{each['points']}" if each["points"] else "ok" if each["value"] is not None else "?",
            each["check"],
            _value(each),
            each["reason"],
            each["fix"] or "",
        )
        for each in table["checks"]
    ]
    print_rows(["points", "check", "value (limit)", "why", "what helps"], rows)


def _print_tables(tables: list[Json], total: int) -> None:
    rows = [_row(each) for each in tables]
    print_rows(["score", "table", "files", "size", "costs most", "what helps"], rows)
    echo(f"{len(tables)} of {total} tables.")


def _row(table: Json) -> tuple[object, ...]:
    name = print_name(name_of(table["securable"]))
    if "error" in table:
        return "?", name, "", "", table["error"], ""
    worst, facts = table["checks"][0], table["facts"]
    penalty = f"{worst['check']} -{worst['points']}" if worst["points"] else ""
    size = "?" if facts["data-bytes"] is None else size_of(facts["data-bytes"])
    files = "?" if facts["data-files"] is None else facts["data-files"]
    return table["score"], name, files, size, penalty, worst["fix"] if worst["points"] else ""


def _value(check: Json) -> str:
    if check["value"] is None:
        return f"unknown ({check['limit']:g} {check['unit']})"
    if check["unit"] == "bytes":
        return f"{size_of(check['value'])} ({size_of(check['limit'])})"
    about = "" if check["exact"] else "~"
    return f"{about}{check['value']:g} ({check['limit']:g}) {check['unit']}"


def _count(files: int | None, size: int | None = None) -> str:
    if files is None:
        return "unknown"
    return str(files) if size is None else f"{files}, {size_of(size)}"


def size_of(count: float) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:g} B"
