"""`nunatak fsck`: checks that the database and the warehouse agree, and repairs what can be repaired safely."""

import asyncio
from dataclasses import dataclass

import click
from rich.console import Console
from rich.progress import Progress

from nunatak import checks, server
from nunatak.catalog.catalog import Catalog
from nunatak.catalog.fsck import Finding, check, summarize
from nunatak.catalog.fsck_repair import repair
from nunatak.cli.options import output_option, setting_options
from nunatak.cli.output import count_text, echo, print_json, print_rows
from nunatak.errors import CatalogError
from nunatak.settings import Settings, SettingsError

FOUND = 1  # the exit code: something is damaged and was not repaired


@dataclass(frozen=True)
class Outcome:
    """A finding and its repair; `done` is None if it was not repaired."""

    finding: Finding
    done: str | None = None

    @property
    def is_damage(self) -> bool:
        return self.finding.severity != "notice" and self.done is None

    def as_json(self) -> dict[str, object]:
        finding = self.finding
        return {
            "kind": finding.kind,
            "severity": finding.severity,
            "object": finding.object,
            "text": finding.text,
            "repairable": finding.repairable,
            "hint": finding.hint,
            "done": self.done,
        }


@click.command()
@click.option("--repair", "repair_findings", is_flag=True, help="Repair findings whose repair loses no data.")
@output_option
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@setting_options("data", "database_url", "sweep_age_seconds")
def fsck(settings: Settings, *, repair_findings: bool, output: str, as_json: bool) -> None:
    """Check that pointers, files and logs agree, and repair them.

    The check may run beside a server. --repair needs the server stopped on SQLite; on PostgreSQL and MariaDB it may
    run beside servers. Exit codes: 0 no damage, 1 damage, 2 the check could not run.
    """
    checks.require_database(settings)
    try:
        outcomes = asyncio.run(_run(settings, repair_findings=repair_findings))
    except CatalogError as error:
        raise SettingsError(f"fsck could not run: {error.message}") from error
    if as_json or output == "json":
        print_json([outcome.as_json() for outcome in outcomes])
    else:
        _print(outcomes)
    if any(outcome.is_damage for outcome in outcomes):
        raise click.exceptions.Exit(FOUND)


async def _run(settings: Settings, *, repair_findings: bool) -> list[Outcome]:
    age_ms = settings.sweep_age_seconds * 1000
    app = await server.build_app(settings, exclusive=repair_findings)
    try:
        found = await _check(app.catalog, age_ms or None)
        return [
            await _repair(app.catalog, finding, age_ms) if repair_findings and finding.repairable else Outcome(finding)
            for finding in found
        ]
    finally:
        await server.close_app(app)


async def _check(catalog: Catalog, age_ms: int | None) -> list[Finding]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("Checking", total=(await summarize(catalog)).pointers)
        return [finding async for finding in check(catalog, age_ms, lambda count: progress.advance(bar, count))]


async def _repair(catalog: Catalog, finding: Finding, age_ms: int) -> Outcome:
    try:
        return Outcome(finding, await repair(catalog, finding, age_ms))
    except CatalogError as error:
        echo(f"{finding.object}: could not be repaired: {error.message}", err=True)
        return Outcome(finding)


def _print(outcomes: list[Outcome]) -> None:
    if not outcomes:
        echo("Everything agrees.")
        return
    columns = ("severity", "kind", "object", "finding", "repair")
    rows = []
    for outcome in outcomes:
        finding = outcome.finding
        advice = f"repaired: {outcome.done}" if outcome.done else finding.hint
        rows.append((finding.severity, finding.kind, finding.object, finding.text, advice))
    print_rows(columns, rows)
    repaired = sum(outcome.done is not None for outcome in outcomes)
    damage = sum(outcome.is_damage for outcome in outcomes)
    echo(f"{count_text(len(outcomes), 'finding')}: {repaired} repaired, {damage} damaged and not repaired.")
