"""`nunatak maintain`: what is to be done to tables now, shown or handed to the workers."""

import click

from nunatak.cli.names import NAMESPACE, print_name
from nunatak.cli.options import Session, talks_to_server
from nunatak.cli.output import print_json, print_rows
from nunatak.cli.plans import because, gains_of
from nunatak.cli.securables import name_of, place_of
from nunatak.client import Json, Levels
from nunatak.maintenance.commands import WORDS

TYPES = {word: kind for kind, word in WORDS.items()}
EVERYTHING = "all"


@click.command()
@click.argument("job", type=click.Choice([EVERYTHING, *TYPES]), default=EVERYTHING)
@click.argument("name", type=NAMESPACE, required=False, metavar="[TABLE|NAMESPACE]")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and why, and do nothing.")
@talks_to_server
def maintain(session: Session, job: str, name: Levels | None, dry_run: bool) -> None:
    """Have done to tables what policies ask for, or you.

    The jobs are left to the workers; `nunatak job list` shows what becomes of them.

    \b
    nunatak maintain --dry-run               the plan for all tables of the warehouse
    nunatak maintain all sales --dry-run     for those of a namespace
    nunatak maintain all sales               have done what is due
    nunatak maintain compact sales.orders    have this done, whatever the policies say
    """
    if dry_run:
        _show(session, job, name)
    else:
        _add(session, job, name)


def _show(session: Session, job: str, name: Levels | None) -> None:
    wanted = set(TYPES.values()) if job == EVERYTHING else {TYPES[job]}
    securable, _ = place_of(session.client, name)
    tables = list(session.client.manage_pages(("maintenance", "plan"), "tables", {"securable": securable}))
    for table in tables:
        table["decisions"] = [each for each in table.get("decisions", ()) if each["type"] in wanted]
    if session.output == "json":
        print_json({"tables": tables})
        return
    rows = [(print_name(name_of(table["securable"])), *row) for table in tables for row in _rows(table)]
    print_rows(["table", "job", "state", "because", "expected"], rows)
    due = sum(each["state"] == "due" for table in tables for each in table["decisions"])
    click.echo(f"{due} jobs are due in {len(tables)} tables.")


def _add(session: Session, job: str, name: Levels | None) -> None:
    client = session.client
    securable, is_table = place_of(client, name)
    body: Json = {"securable": securable}
    if job != EVERYTHING:
        if not is_table:
            raise click.UsageError(f"{job} is asked for on a table; write `all` for what is due in a namespace")
        body["type"] = TYPES[job]
    added: list[Json] = []
    while True:
        page = client.manage("POST", ("maintenance", "jobs"), body)
        added += page["jobs"]
        if not page.get("next-page-token"):
            break
        body["page-token"] = page["next-page-token"]
    if session.output == "json":
        print_json({"jobs": added})
        return
    for each in added:
        spec = each["job"]
        click.echo(f"job {each['job-id']}: {spec['type']} of {print_name((*spec['namespace'], spec['table']))}")
    click.echo(f"{len(added)} jobs were added.")


def _rows(table: Json) -> list[tuple[str, str, str, str]]:
    """What is due or held; the rest has nothing to say."""
    if "error" in table:
        return [("", "?", table["error"], "")]
    spoken = (each for each in table["decisions"] if each["state"] in ("due", "held"))
    return [(each["type"], each["state"], because(each), gains_of(each["expected"])) for each in spoken]
