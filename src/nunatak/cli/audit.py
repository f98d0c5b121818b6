"""`nunatak audit …`: reads the audit trail directly from the database; works beside a running server."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from nunatak import checks, server
from nunatak.access.audit_rows import ALLOWED, DENIED
from nunatak.access.securables import format_securable, parse_securable
from nunatak.api.audit import time_of
from nunatak.cli.fsck import FOUND
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.options import setting_options
from nunatak.cli.output import echo, print_json, print_rows
from nunatak.database.store import Store
from nunatak.errors import NotFound
from nunatak.events.audit_trail import Filter, Position, TrailRecord, line_of, search, time_text
from nunatak.events.seals import Verified, count_strange, export, load_seal, newest_seal, verify, verify_export
from nunatak.settings import Settings

T = TypeVar("T")


@click.group(cls=SuggestingGroup)
def audit() -> None:
    """List, export and verify the audit trail."""


@audit.command(name="list")
@click.option("--principal", help="Only records of this principal.")
@click.option("--action", help="Only this action, such as create-table or loadTable.")
@click.option(
    "--securable", default="server", help="Only this object and objects inside it, such as namespace:default/sales."
)
@click.option("--outcome", type=click.Choice([ALLOWED, DENIED]), help="Only allowed, or only denied requests.")
@click.option("--request-id", help="Only the request with this X-Request-ID.")
@click.option("--since", help="Only from this time on, such as 2026-01-31 or 2026-01-31T12:00:00Z.")
@click.option("--until", help="Only before this time.")
@click.option("--oldest-first", is_flag=True, help="Oldest first.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Maximum number of records.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@setting_options("data", "database_url")
def list_records(
    settings: Settings,
    principal: str | None,
    action: str | None,
    securable: str,
    outcome: str | None,
    request_id: str | None,
    since: str | None,
    until: str | None,
    oldest_first: bool,
    limit: int,
    output: str,
) -> None:
    """Print audit records, newest first."""
    since_ms, until_ms = time_of("since", since), time_of("until", until)
    filters = Filter(principal, action, parse_securable(securable), outcome, request_id, since_ms, until_ms)

    async def found(store: Store) -> list[TrailRecord]:
        records: list[TrailRecord] = []
        position: Position | None = None
        while len(records) < limit:
            page, position = await search(
                store, filters, newest_first=not oldest_first, position=position, limit=limit - len(records)
            )
            records += page
            if position is None:
                break
        return records

    records = _with_store(settings, found)
    if output == "json":
        print_json([msgspec.json.decode(line_of(record)) for record in records])
    else:
        print_rows(["time", "principal", "action", "on", "outcome", "times", "request"], map(_row, records))


def _row(record: TrailRecord) -> tuple[object, ...]:
    what = format_securable(record.securable)
    at = time_text(record.at_ms)
    return at, record.principal, record.action, what, record.outcome, record.repeats, record.request_id or ""


@audit.command(name="export")
@click.argument("file", type=click.File("wb"), default="-")
@click.option("--after-seal", type=click.IntRange(min=0), default=0, help="Only records after this seal.")
@setting_options("data", "database_url")
def export_lines(settings: Settings, file: Any, after_seal: int) -> None:
    """Write every record as a line of JSON, and each seal after the records that it covers.

    Keep the file on another machine: `nunatak audit verify FILE` later detects changes of the audit trail.
    """

    async def write(store: Store) -> None:
        file.write(b"")  # click opens the file with the first write: a trail without records is an empty file
        async for line in export(store, after_seal):
            file.write(line + b"\n")

    _with_store(settings, write)


@audit.command(name="verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("--file-only", is_flag=True, help="Verify FILE only, without the database.")
@setting_options("data", "database_url")
def verify_trail(settings: Settings, file: Path | None, file_only: bool) -> None:
    """Verify every seal against its records, and an exported FILE against the database.

    Exit codes: 0 no change found, 1 a change found.
    """
    if file_only and file is None:
        raise click.UsageError("--file-only needs a FILE.")
    wrong: list[str] = []
    exported: Verified | None = None
    if file is not None:
        with file.open("rb") as lines:
            exported = verify_export(line.rstrip(b"\n") for line in lines)
        wrong += [f"{file}: seal {broken.seal}: {broken.text}" for broken in exported.broken]
        echo(f"{file}: up to seal {_number(exported)}, {len(exported.unsealed)} lines after it")
        if file_only and exported.last is None:
            wrong.append(f"{file}: the file has no seal, so changes cannot be detected")
    if not file_only:
        wrong += _with_store(settings, lambda store: _check(store, exported))
    for sentence in wrong:
        echo(sentence)
    if wrong:
        raise click.exceptions.Exit(FOUND)
    if file_only and exported is not None and exported.unsealed:
        echo(f"No change up to seal {_number(exported)}; the lines after it are not sealed.")
    else:
        echo("No change found.")


def _number(exported: Verified) -> int:
    """Returns the number of the last seal, or 0."""
    return exported.last.seal if exported.last else 0


async def _check(store: Store, exported: Verified | None) -> list[str]:
    wrong = [f"seal {broken.seal}: {broken.text}" async for broken in verify(store)]
    echo(f"database: up to seal {(await newest_seal(store)).number}")
    if exported is None:
        return wrong
    if exported.last is not None:
        number = exported.last.seal
        try:
            seal = await load_seal(store, number)
        except NotFound:
            return [*wrong, f"seal {number} of the file is missing in the database"]
        if seal.hash.hex() != exported.last.hash:
            return [*wrong, f"seal {number} differs between the database and the file"]
    strange = await count_strange(store, exported)
    if strange:
        wrong.append(f"{strange} of the file's lines after seal {_number(exported)} are not in the database")
    return wrong


def _with_store(settings: Settings, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    checks.require_database(settings)

    async def run() -> T:
        async with server.open_database_read_only(settings, exclusive=False) as store:
            return await work(store)

    return asyncio.run(run())
