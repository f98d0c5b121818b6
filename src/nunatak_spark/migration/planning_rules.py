"""Plans each table: method, target name and wave, or why it is refused. Pure."""

import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nunatak_spark.migration.model import (
    InventoryTable,
    Method,
    MigrationSource,
    MigrationTable,
    TablePlan,
    display_name,
    table_title,
)

ADDED_AS_THEY_ARE = {"parquet", "orc", "avro"}  # file formats of Iceberg tables
COPIED = {"csv", "json", "text"}
FATAL = {"unreadable"}
# add_files takes partition values from folder names, and matches columns by the exact names in the files.
NOT_ADDED = {"partition-elsewhere", "timestamp-partition", "name-case", "mixed-types"}


@dataclass(frozen=True)
class PlanOptions:
    """What the operator asked for. Patterns match names such as `sales.*`, or those of one source as `old:sales.*`."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    copy: tuple[str, ...] = ()
    adopt: bool = False
    into: tuple[str, ...] = ()
    renamed: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    wave: int = 1


def plan_migration(
    tables: Sequence[MigrationTable],
    sources: Iterable[MigrationSource],
    taken: Collection[tuple[str, ...]],
    wishes: PlanOptions,
) -> dict[str, TablePlan]:
    """Returns plans by title for all selected tables that are not at the target. `taken` are the target's names."""
    kinds = {source.name: source for source in sources}
    used = {
        _fold_case(table.planned.target): table_title(table.found)
        for table in tables
        if table.planned is not None and is_at_target(table)
    }
    there = {_fold_case(name) for name in taken}
    plans: dict[str, TablePlan] = {}
    for table in tables:
        name = table_title(table.found)
        if is_at_target(table) or not is_wanted(table.found, wishes.include, wishes.exclude):
            continue
        planned = _plan_table(table.found, kinds[table.found.source], wishes)
        # A table that was planned before may exist at the target already: its own name is not taken.
        others = there if table.planned is None else there - {_fold_case(table.planned.target)}
        plans[name] = _without_collision(planned, name, used, others)
        if plans[name].method != "refused":
            used[_fold_case(planned.target)] = name
    return plans


def is_at_target(table: MigrationTable) -> bool:
    """Returns whether the table is at the target: then no plan changes its method and name."""
    return bool(table.target_pointer)


def is_wanted(found: InventoryTable, include: Sequence[str], exclude: Sequence[str]) -> bool:
    return (not include or matches(found, include)) and not matches(found, exclude)


def matches(found: InventoryTable, patterns: Sequence[str]) -> bool:
    """Returns whether a pattern matches the quoted or the plain name, with or without the source."""
    names = {display_name(found.name), ".".join(found.name)}
    names |= {f"{found.source}:{name}" for name in names}
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _plan_table(found: InventoryTable, source: MigrationSource, wishes: PlanOptions) -> TablePlan:
    method, because = _method(found, source, wishes)
    target = found.name if method == "adopt" else target_name(found, wishes)
    return TablePlan(method, target, wishes.wave, because)


def target_name(found: InventoryTable, wishes: PlanOptions) -> tuple[str, ...]:
    """Returns the target name: the longest renamed namespace wins; a table without a namespace gets its
    source's name.
    """
    namespace, name = found.name[:-1] or (found.source,), found.name[-1]
    for size in range(len(namespace), 0, -1):
        if namespace[:size] in wishes.renamed:
            namespace = (*wishes.renamed[namespace[:size]], *namespace[size:])
            break
    return (*wishes.into, *namespace, name)


def _method(found: InventoryTable, source: MigrationSource, wishes: PlanOptions) -> tuple[Method, str]:
    fatal = [risk.text for risk in found.risks if risk.kind in FATAL]
    if fatal:
        return "refused", fatal[0]
    if found.kind == "view":
        return "refused", "views are not moved: their SQL names the catalogs of the source; create the view again"
    if wishes.adopt and source.kind == "jdbc":
        return "adopt", "the target serves the very database of the source"
    if matches(found, wishes.copy):
        return "copy", "a copy was requested: every row is rewritten"
    if found.kind == "iceberg":
        return "register", "an Iceberg table: the target gets its metadata file, no data are copied"
    return _method_for_files(found)


def _method_for_files(found: InventoryTable) -> tuple[Method, str]:
    if not found.columns:
        return "refused", "its columns are unknown"
    if found.format in ADDED_AS_THEY_ARE:
        not_added = [risk for risk in found.risks if risk.kind in NOT_ADDED]
        if not_added:
            return "refused", f"{not_added[0].text}; ask for a copy with --copy"
        return "add_files", f"{found.format} files stay where they are and become files of an Iceberg table"
    if found.format in COPIED:
        return "copy", f"Iceberg has no {found.format} files: every row is rewritten"
    return "refused", f"files of the format {found.format or 'unknown'} cannot be read"


def _without_collision(planned: TablePlan, name: str, used: Mapping[str, str], there: Collection[str]) -> TablePlan:
    folded = _fold_case(planned.target)
    if planned.method in {"refused", "adopt"}:
        return planned
    printed = display_name(planned.target)
    if folded in used and used[folded] != name:
        because = f"{used[folded]} goes to {printed} already; choose another namespace with --into or --map"
    elif folded in there:
        because = f"the target has {printed} already; choose another namespace with --into or --map"
    else:
        return planned
    return TablePlan("refused", planned.target, planned.wave, because)


def _fold_case(name: tuple[str, ...]) -> str:
    """Folds the case: many engines treat names that differ in case alone as equal."""
    return "\0".join(name).lower()
