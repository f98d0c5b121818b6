"""Plans, written down: what planning decides about the tables of the folder, with the target asked for its names."""

import msgspec

from nunatak_spark.migration.planning import Wishes, plan
from nunatak_spark.migration.run import Run
from nunatak_spark.migration.values import Table, printed_name, title


def plan_tables(run: Run, wishes: Wishes) -> list[Table]:
    """All tables that are wished for and not at the target yet, as they are planned now."""
    tables = run.folder.list_tables()
    taken = {name for namespace in run.client.walk_namespaces() for name in run.client.list_tables(namespace)}
    planned = plan(tables, run.folder.list_sources(), taken, wishes)
    for table in tables:
        decided = planned.get(title(table.found))
        if decided is not None and (decided != table.planned or table.state != "planned"):
            changed = msgspec.structs.replace(table, planned=decided, state="planned", problem="", failed_at="")
            run.folder.save_table(changed, f"{decided.method} as {printed_name(decided.target)}: {decided.because}")
    return [table for table in run.folder.list_tables() if title(table.found) in planned]
