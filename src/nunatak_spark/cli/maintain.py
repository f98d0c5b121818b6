"""`nunatak maintain`: plans maintenance jobs, and queues them for workers or runs them in this process."""

import click

from nunatak.cli.names import NAMESPACE, print_name
from nunatak.cli.options import CommandSession, talks_to_server
from nunatak.cli.output import count_text, echo, print_json, print_rows
from nunatak.cli.plans import because, gains_of
from nunatak.cli.securable_names import name_of, place_of
from nunatak.client import Json, Levels
from nunatak.errors import Conflict
from nunatak.maintenance.commands import WORDS
from nunatak_spark.cli.run_jobs import EXIT_CODES, Where, run_due, run_job, runs_spark, try_jobs

TYPES = {word: kind for kind, word in WORDS.items()}
EVERYTHING = "all"
LATEST = 100  # jobs of a table among which one that waits is looked for


@click.command(epilog=EXIT_CODES)
@click.argument("job", type=click.Choice([EVERYTHING, *TYPES]), default=EVERYTHING)
@click.argument("name", type=NAMESPACE, required=False, metavar="[TABLE|NAMESPACE]")
@click.option("--dry-run", is_flag=True, help="Print the plan with its reasons; queue and run nothing.")
@click.option(
    "--run", is_flag=True, help="Run the jobs now in this process on Spark instead of queueing them for workers."
)
@runs_spark
@talks_to_server
def maintain(session: CommandSession, job: str, name: Levels | None, dry_run: bool, run: bool, where: Where) -> None:
    """Run maintenance jobs: those due by policy, or one by name.

    Jobs are queued for workers; `nunatak job list` shows their state. With --run this process runs them.
    A dry run reads metadata only; together with --run, Spark also reads manifests, and changes nothing.

    \b
    nunatak maintain --dry-run               the plan for all tables of the warehouse
    nunatak maintain all sales --dry-run     for those of a namespace
    nunatak maintain all sales               have done what is due
    nunatak maintain compact sales.orders    have this done, whatever the policies say
    nunatak maintain compact sales.orders --run --master 'local[4]'
    """
    if run and dry_run:
        raise click.exceptions.Exit(try_jobs(session, where, _asked(session, job, name, dry_run=True)))
    if run:
        raise click.exceptions.Exit(_run(session, where, job, name))
    if dry_run:
        _show(session, job, name)
    else:
        _add(session, job, name)


def _show(session: CommandSession, job: str, name: Levels | None) -> None:
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
    echo(f"{count_text(due, 'job')} due in {count_text(len(tables), 'table')}.")


def _add(session: CommandSession, job: str, name: Levels | None) -> None:
    added = _asked(session, job, name)
    if session.output == "json":
        print_json({"jobs": added})
        return
    for each in added:
        spec = each["job"]
        echo(f"job {each['job-id']}: {spec['type']} of {print_name((*spec['namespace'], spec['table']))}")
    echo(f"{count_text(len(added), 'job')} added.")


def _asked(session: CommandSession, job: str, name: Levels | None, *, dry_run: bool = False) -> list[Json]:
    """Returns the jobs due in a namespace or table, or the requested one; queues them unless it is a dry run."""
    client = session.client
    securable, is_table = place_of(client, name)
    body: Json = {"securable": securable, "dry-run": dry_run}
    if job != EVERYTHING:
        if not is_table:
            raise click.UsageError(f"{job} needs the name of a table; write `all` for the jobs due in a namespace")
        body["type"] = TYPES[job]
    added: list[Json] = []
    while True:
        page = client.manage("POST", ("maintenance", "jobs"), body)
        added += page["jobs"]
        if not page.get("next-page-token"):
            return added
        body["page-token"] = page["next-page-token"]


def _run(session: CommandSession, where: Where, job: str, name: Levels | None) -> int:
    """Runs the due jobs as a worker would, or one job; a job that is already queued is leased."""
    securable, _ = place_of(session.client, name)
    if job == EVERYTHING:
        return run_due(session, where, securable)
    return run_job(session, where, securable, _number_of(session, job, name, securable))


def _number_of(session: CommandSession, job: str, name: Levels | None, securable: str) -> int:
    try:
        (added,) = _asked(session, job, name)
        return int(added["job-id"])
    except Conflict:
        query = {"securable": securable, "pageSize": str(LATEST)}
        for each in session.client.manage("GET", ("maintenance", "jobs"), query=query)["jobs"]:
            if each["type"] == TYPES[job] and each["state"] in ("waiting", "running"):
                return int(each["job-id"])
        raise


def _rows(table: Json) -> list[tuple[str, str, str, str]]:
    """Returns rows for the jobs that are due or held back."""
    if "error" in table:
        return [("", "?", table["error"], "")]
    spoken = (each for each in table["decisions"] if each["state"] in ("due", "held"))
    return [(each["type"], each["state"], because(each), gains_of(each["expected"])) for each in spoken]
