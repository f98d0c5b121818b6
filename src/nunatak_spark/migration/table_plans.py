"""Plans, written down: what planning decides about the tables of the folder, with the target asked what it takes."""

import msgspec

from nunatak_spark.jobs import ProgressStep
from nunatak_spark.migration.migration_run import Run
from nunatak_spark.migration.model import Planned, Table, printed_name, title
from nunatak_spark.migration.planning_rules import Wishes, plan
from nunatak_spark.migration.target_checks import Target, same_tables


def plan_tables(run: Run, wishes: Wishes) -> list[Table]:
    """All tables that are wished for and not at the target yet, as they are planned now."""
    tables = run.folder.list_tables()
    planned = _without_refusals(run, tables, plan(tables, run.folder.list_sources(), _taken(run), wishes))
    for table in tables:
        decided = planned.get(title(table.found))
        if decided is not None and (decided != table.planned or table.state != "planned"):
            changed = msgspec.structs.replace(table, planned=decided, state="planned", problem="", failed_at="")
            run.folder.save_table(changed, f"{decided.method} as {printed_name(decided.target)}: {decided.because}")
    return [table for table in run.folder.list_tables() if title(table.found) in planned]


def _taken(run: Run) -> set[tuple[str, ...]]:
    """The names of all tables and views of the target."""
    client = run.client
    return {
        name
        for namespace in client.walk_namespaces()
        for names in (client.list_tables(namespace), client.list_views(namespace))
        for name in names
    }


def _without_refusals(run: Run, tables: list[Table], planned: dict[str, Planned]) -> dict[str, Planned]:
    """The same plans, with `refused` for what the target would refuse at `shadow`, and why."""
    target = Target(run.client)
    before = [(table.found, table.planned) for table in tables if table.planned and title(table.found) not in planned]
    now = [(table.found, planned[title(table.found)]) for table in tables if title(table.found) in planned]
    twins = same_tables([*before, *now])
    sources = {source.name: source for source in run.folder.list_sources()}
    checked = {}
    for done, (found, each) in enumerate(now, 1):
        name = title(found)
        reasons = target.obstacles(found, each, sources[found.source])
        if name in twins:
            reasons.append(f"it is the same table as {twins[name]}, which goes over already; exclude one of them")
        checked[name] = Planned("refused", each.target, each.wave, reasons[0]) if reasons else each
        run.progress(ProgressStep("plan", done, len(now)))
    return checked
