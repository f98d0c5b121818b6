"""Copies namespace properties from the source to the target, and compares them for L0.

A property that the target's namespace had before is not overwritten, which is recorded. A location is not copied: the
target decides where new tables lie.
"""

from collections.abc import Iterator, Sequence

from nunatak.client import Client, Levels
from nunatak_spark.migration.migration_run import NOT_CARRIED, MigrationRun, ensure_namespaces
from nunatak_spark.migration.model import (
    CopiedNamespace,
    InventoryTable,
    LevelResult,
    MigrationFinding,
    MigrationTable,
    NamespacePair,
    display_name,
)


def match_namespaces(found: InventoryTable, target: Levels) -> list[tuple[Levels, Levels]]:
    """Returns pairs of source and target namespaces, parents first, as far up as their names match."""
    before, after = found.name[:-1], target[:-1]
    pairs: list[tuple[Levels, Levels]] = []
    while before and after:
        pairs.insert(0, (before, after))
        if before[-1] != after[-1]:  # renamed by --map, or moved below another namespace by --into
            break
        before, after = before[:-1], after[:-1]
    return pairs


def copy_namespaces(run: MigrationRun, table: MigrationTable) -> None:
    """Creates the namespaces of a planned table, with the properties that they have at the source."""
    planned = table.planned
    if planned is None or planned.method == "adopt":
        return
    ensure_namespaces(run.client, planned.target[:-1])
    for before, after in match_namespaces(table.found, planned.target):
        key = (table.found.source, before, after)
        if key not in run.carried:
            _copy_properties(run, table.found, before, after)
            run.carried.add(key)


def _copy_properties(run: MigrationRun, found: InventoryTable, before: Levels, after: Levels) -> None:
    wanted = run.namespace_properties(found, before)
    known = run.state.find_namespace(found.source, before, after)
    carried = known.properties if known else {}
    there = _properties(run.client, after)
    # Set a property if it is absent, or still has the value that an earlier attempt set.
    ours = {key: value for key, value in wanted.items() if there.get(key) in {None, value, carried.get(key)}}
    updates = {key: value for key, value in ours.items() if there.get(key) != value}
    gone = [key for key, value in carried.items() if key not in wanted and there.get(key) == value]
    if updates or gone:
        run.client.update_namespace(after, updates, gone)
    kept = tuple(sorted(wanted.keys() - ours.keys()))
    now = CopiedNamespace(source=found.source, name=before, target=after, properties=ours, kept=kept)
    if now != known:
        run.state.save_namespace(now, _log_text(now))


def _log_text(carried: CopiedNamespace) -> str:
    names = ", ".join(sorted(carried.properties)) or "no properties"
    kept = f"; the target keeps its own {', '.join(carried.kept)}" if carried.kept else ""
    return f"namespace {display_name(carried.name)} as {display_name(carried.target)}: carried {names}{kept}"


def _properties(client: Client, namespace: Levels) -> dict[str, str]:
    return dict(client.load_namespace(namespace).get("properties") or {})


# L0


def namespace_pairs(run: MigrationRun, table: MigrationTable) -> Iterator[NamespacePair]:
    """Yields the current namespaces of a table at both ends."""
    planned = table.planned
    if planned is None or planned.method == "adopt":
        return  # both catalogs serve the same database rows
    for before, after in match_namespaces(table.found, planned.target):
        known = run.state.find_namespace(table.found.source, before, after)
        yield NamespacePair(
            name=before,
            target=after,
            before=run.namespace_properties(table.found, before),
            after=_properties(run.client, after),
            kept=known.kept if known else (),
        )


def compare_namespaces(pairs: Sequence[NamespacePair]) -> LevelResult:
    """Returns a finding per property that the target lacks or has with another value, except kept ones."""
    findings = []
    for pair in pairs:
        for key, value in sorted(pair.before.items()):
            there = pair.after.get(key)
            if there == value or (there is not None and key in pair.kept):
                continue
            name = display_name(pair.target)
            what = "is missing" if there is None else f"is {there!r} instead of {value!r}"
            findings.append(
                MigrationFinding("namespace-property", f"property {key} of the namespace {name} {what}", key)
            )
    facts = [
        {
            "source": display_name(pair.name),
            "target": display_name(pair.target),
            "properties": len(pair.before),
            "kept-at-target": list(pair.kept),
            "not-compared": sorted(NOT_CARRIED),
        }
        for pair in pairs
    ]
    return LevelResult(tuple(findings), {"namespaces": facts} if facts else {})


def add_namespace_findings(looked: LevelResult, pairs: Sequence[NamespacePair]) -> LevelResult:
    """Returns the L0 result of a table together with that of its namespaces."""
    spaces = compare_namespaces(pairs)
    return LevelResult((*looked.findings, *spaces.findings), {**looked.facts, **spaces.facts}, looked.statements)
