"""`nunatak job …`: lists, shows and cancels maintenance jobs."""

from typing import Any

import click

from nunatak.cli.main import SuggestingGroup
from nunatak.cli.names import print_name
from nunatak.cli.options import CommandSession, administers, talks_to_server
from nunatak.cli.output import echo, print_facts, print_json, print_rows, time_of
from nunatak.cli.plans import gains_of
from nunatak.cli.securable_names import name_of, securable_of
from nunatak.client import Json


@click.group(cls=SuggestingGroup)
def job() -> None:
    """List, show and cancel maintenance jobs."""


@job.command("list")
@click.argument("securable", metavar="[OBJECT]", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of jobs.")
@talks_to_server
def list_jobs(session: CommandSession, securable: str | None, limit: int) -> None:
    """List the jobs on OBJECT and inside it, newest first; default: all jobs of the warehouse."""
    query = {"securable": securable or securable_of(session.client, ()), "pageSize": str(limit)}
    found = session.client.manage("GET", ("maintenance", "jobs"), query=query)["jobs"]
    if session.output == "json":
        print_json({"jobs": found})
        return
    rows = [
        (
            each["job-id"],
            each["state"],
            each["type"],
            print_name(name_of(each["securable"])),
            time_of(each["created-ms"]),
            _about(each),
        )
        for each in found
    ]
    print_rows(["job", "state", "type", "table", "since", ""], rows)


@job.command()
@click.argument("job_id", metavar="JOB", type=click.IntRange(min=1))
@administers
def show(session: CommandSession, job_id: int) -> None:
    """Show a job: its reason, progress and result."""
    found = session.client.manage("GET", ("maintenance", "jobs", str(job_id)))
    if session.output == "json":
        print_json(found)
    else:
        print_facts(_facts(found))


@job.command()
@click.argument("job_id", metavar="JOB", type=click.IntRange(min=1))
@administers
def cancel(session: CommandSession, job_id: int) -> None:
    """Cancel a job; its worker stops within 30 seconds."""
    session.client.manage("POST", ("maintenance", "jobs", str(job_id), "cancel"))
    if session.output == "json":
        print_json({"cancelled": job_id})
    else:
        echo(f"cancelled job {job_id}")


def _facts(found: Json) -> Json:
    spec = found["job"]
    return {
        "job": found["job-id"],
        "type": found["type"],
        "table": print_name(name_of(found["securable"])),
        "state": f"{found['state']}{', to be stopped' if found['cancelled'] and found['state'] == 'running' else ''}",
        "because": "; ".join(spec.get("reasons", ())),
        "policy on": found["policy-on"] or "none",
        "expected": gains_of(spec.get("expected", ())) or "not known",
        "added": f"{time_of(found['created-ms'])} by {found['created-by']}",
        "worker": found["worker"] or "none",
        "attempts": found["attempts"],
        "progress": _progress(found["progress"]),
        "finished": "no" if found["finished-ms"] is None else time_of(found["finished-ms"]),
        "result": _result(found["result"]) or "none",
        "error": found["error"] or "none",
    }


def _about(found: Json) -> str:
    """Returns the most useful line about a job: its progress, error or result, or the expected gains."""
    if found["state"] == "running" and found["progress"] is not None:
        return _progress(found["progress"])
    return str(found["error"] or _result(found["result"]) or gains_of(found["job"].get("expected", ())))


def _progress(progress: Any) -> str:
    """Formats the progress reported by workers; an unknown format is printed as it is."""
    match progress:
        case None:
            return "none"
        case {"text": text, "done": done, "total": total}:
            return f"[{done}/{total}] {text}"
        case _:
            return str(progress)


def _result(result: Any) -> str:
    """Formats the result of a job: its gains or, without any, whether it changed the table."""
    if not isinstance(result, dict):
        return "" if result is None else str(result)
    return gains_of(result.get("gains", ())) or ("changed" if result.get("changed") else "nothing to change")
