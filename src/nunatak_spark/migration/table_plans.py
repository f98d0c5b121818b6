"""The plan step: plans the tables of a migration, checks the plans with the target, and saves them."""

import msgspec

from nunatak_spark.jobs import ProgressStep
from nunatak_spark.migration.migration_run import MigrationRun
from nunatak_spark.migration.model import MigrationTable, TablePlan, display_name, table_title
from nunatak_spark.migration.planning_rules import PlanOptions, plan_migration
from nunatak_spark.migration.target_checks import TargetChecks, find_duplicate_tables


def plan_tables(run: MigrationRun, wishes: PlanOptions) -> list[MigrationTable]:
    """Plans all selected tables that are not at the target; returns them with their plans."""
    tables = run.state.list_tables()
    planned = _check_with_target(
        run, tables, plan_migration(tables, run.state.list_sources(), _target_names(run), wishes)
    )
    for table in tables:
        decided = planned.get(table_title(table.found))
        if decided is not None and (decided != table.planned or table.state != "planned"):
            changed = msgspec.structs.replace(table, planned=decided, state="planned", problem="", failed_at="")
            run.state.save_table(changed, f"{decided.method} as {display_name(decided.target)}: {decided.because}")
    return [table for table in run.state.list_tables() if table_title(table.found) in planned]


def _target_names(run: MigrationRun) -> set[tuple[str, ...]]:
    """Returns the names of all tables and views of the target."""
    client = run.client
    return {
        name
        for namespace in client.walk_namespaces()
        for names in (client.list_tables(namespace), client.list_views(namespace))
        for name in names
    }


def _check_with_target(
    run: MigrationRun, tables: list[MigrationTable], planned: dict[str, TablePlan]
) -> dict[str, TablePlan]:
    """Returns the plans, with `refused` and the reason for tables that the target would refuse at `shadow`."""
    target = TargetChecks(run.client)
    before = [
        (table.found, table.planned) for table in tables if table.planned and table_title(table.found) not in planned
    ]
    now = [(table.found, planned[table_title(table.found)]) for table in tables if table_title(table.found) in planned]
    twins = find_duplicate_tables([*before, *now])
    sources = {source.name: source for source in run.state.list_sources()}
    checked = {}
    for done, (found, each) in enumerate(now, 1):
        name = table_title(found)
        reasons = target.refusal_reasons(found, each, sources[found.source])
        if name in twins:
            reasons.append(f"it is the same table as {twins[name]}, which goes over already; exclude one of them")
        checked[name] = TablePlan("refused", each.target, each.wave, reasons[0]) if reasons else each
        run.progress(ProgressStep("plan", done, len(now)))
    return checked
