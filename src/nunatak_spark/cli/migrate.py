"""`nunatak migrate …`: migrates tables from another catalog, verifies them, and rolls back."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from nunatak.cli.main import SuggestingGroup
from nunatak.cli.names import NAMESPACE, print_name
from nunatak.cli.options import uri_option
from nunatak.cli.output import count_text, echo, print_json, print_rows, time_of
from nunatak.client import Levels
from nunatak_spark.cli.migrate_run import (
    CUTOVER,
    RETIRE,
    ROLLBACK,
    SHADOW,
    VERIFY,
    Choice,
    Step,
    chooses,
    kind_of,
    name_of,
    open_state,
    pairs,
    require_some,
    runs,
    state_option,
)
from nunatak_spark.cli.run_jobs import refusals
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.cutover import cut_over, late_writes
from nunatak_spark.migration.inventory import take_inventory
from nunatak_spark.migration.migration_report import as_json, render
from nunatak_spark.migration.migration_run import MigrationRun
from nunatak_spark.migration.model import LEVELS, STATES, LevelName, MigrationSource, MigrationTable, table_title
from nunatak_spark.migration.parallel_verification import verify_tables
from nunatak_spark.migration.permissions import map_permissions
from nunatak_spark.migration.planning_rules import PlanOptions
from nunatak_spark.migration.rollback import retire as retire_tables
from nunatak_spark.migration.rollback import roll_back
from nunatak_spark.migration.shadow import shadow as make_shadow
from nunatak_spark.migration.sources.folder import folder_source
from nunatak_spark.migration.sources.glue import glue_source
from nunatak_spark.migration.sources.hadoop import hadoop_source
from nunatak_spark.migration.sources.hive import hive_source
from nunatak_spark.migration.sources.jdbc import jdbc_catalogs, jdbc_source
from nunatak_spark.migration.sources.rest import rest_source
from nunatak_spark.migration.sources.source_catalog import require_catalog_name
from nunatak_spark.migration.table_plans import plan_tables
from nunatak_spark.migration.target_checks import SETTING, allowed_locations_value
from nunatak_spark.migration.verification import verify as verify_pair

STUCK = 1  # the exit code: a table failed

EXIT_CODES = "Exit codes: 0 done, 1 refused, or a table failed, 2 wrong usage, 3 server not reachable."


@click.group(cls=SuggestingGroup, epilog=EXIT_CODES)
def migrate() -> None:
    """Migrate tables from another catalog, and verify them.

    \b
    nunatak migrate inventory --hive thrift://metastore:9083
    nunatak migrate plan --include 'sales.*'
    nunatak migrate shadow
    nunatak migrate verify
    nunatak migrate cutover
    nunatak migrate retire
    nunatak migrate report --to report.html

    Every command can be run again, also after an interruption: it continues. Nothing here deletes a
    file of a table.
    """


Choose = Callable[[Step], Choice]


# Phase 0


@migrate.command()
@click.option("--hive", metavar="THRIFT-URI", help="A Hive metastore, such as thrift://host:9083.")
@click.option("--glue", is_flag=True, help="AWS Glue; logs in as AWS tools do.")
@click.option("--jdbc", metavar="URI", help="A JDBC catalog or SqlCatalog, such as jdbc:sqlite:/srv/catalog.db.")
@click.option("--hadoop", metavar="PATH", help="A Hadoop catalog: the folder that holds it.")
@click.option("--rest", metavar="URI", help="Any Iceberg REST catalog. [NUNATAK_SOURCE_TOKEN, …_CREDENTIAL]")
@click.option("--folder", "files", metavar="PATH", help="Plain Parquet, ORC, Avro, CSV or JSON files in folders.")
@click.option("--as", "name", help="Name of the source, also in Spark; for a JDBC catalog, the catalog's own name.")
@click.option("--user", help="For JDBC. [NUNATAK_SOURCE_PASSWORD]")
@click.option("--source-warehouse", help="For REST: the warehouse of the source.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="For REST: sent with each request.")
@click.option("--endpoint", help="For Glue: endpoint other than Amazon's.")
@click.option("--region", help="For Glue.")
@click.option("--catalog-id", help="For Glue: the catalog of another account.")
@click.option("--format", "kind", help="For folders: the format of all files, if their names do not show it.")
@click.option("--read", multiple=True, metavar="KEY=VALUE", help="For folders: an option of Spark's reader.")
@click.option(
    "--infer-types", is_flag=True, help="For folders: infer types from text; otherwise all columns are strings."
)
@click.option("--property", "more", multiple=True, metavar="KEY=VALUE", help="Property of the source's Spark catalog.")
@runs
def inventory(run: MigrationRun, output: str, **given: Any) -> None:
    """List the tables of a source and save the list. Nothing is changed. Repeat it for each source."""
    source = _source(run, given)
    _show(take_inventory(run, source), output)


def _source(run: MigrationRun, given: Mapping[str, Any]) -> MigrationSource:
    kind = kind_of(given)
    address, more = given[kind], pairs(given["more"], "--property")
    headers = pairs(given["headers"], "--header")
    name = require_catalog_name(given["name"] or ("folder" if kind == "files" else kind))
    match kind:
        case "hive":
            return hive_source(name, address, more)
        case "glue":
            return glue_source(name, given["endpoint"], given["region"], given["catalog_id"], more)
        case "jdbc":
            return _jdbc_source(run, address, given["name"], given["user"], more)
        case "hadoop":
            return hadoop_source(name, str(address), more)
        case "rest":
            return rest_source(name, address, given["source_warehouse"], headers, more)
        case _:
            options = pairs(given["read"], "--read")
            return folder_source(name, str(address), given["kind"], options, infer_types=given["infer_types"])


def _jdbc_source(
    run: MigrationRun, address: str, name: str | None, user: str | None, more: Mapping[str, str]
) -> MigrationSource:
    """The name is part of every row; where the database holds one catalog, it is that one's."""
    if name is None:
        names = jdbc_catalogs(jdbc_source("unknown", address, user, more), run.spark, run.environment)
        if len(names) != 1:
            found = ", ".join(names) or "none"
            raise CannotRun(f"{address} holds several catalogs, or none: {found}", fix="Choose one with --as.")
        (name,) = names
    return jdbc_source(require_catalog_name(name), address, user, more)


# Phases 1 and 2


@migrate.command()
@click.option("--include", multiple=True, metavar="PATTERN", help="Only these, such as 'sales.*' or 'hive:sales.*'.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Not these.")
@click.option(
    "--copy", multiple=True, metavar="PATTERN", help="Rewrite the data of these tables, whatever their format."
)
@click.option("--adopt", is_flag=True, help="The target server uses the database of the JDBC source.")
@click.option("--into", type=NAMESPACE, default=None, help="Parent namespace of all namespaces at the target.")
@click.option(
    "--map", "renamed", multiple=True, metavar="NAMESPACE=NAMESPACE", help="Name of a namespace at the target."
)
@click.option("--wave", type=int, default=1, show_default=True, help="Assign tables to a wave, by number.")
@runs
def plan(
    run: MigrationRun,
    output: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    copy: tuple[str, ...],
    adopt: bool,
    into: Levels | None,
    renamed: tuple[str, ...],
    wave: int,
) -> None:
    """Choose the migration method and target of each table. Neither catalog is changed."""
    names = pairs(renamed, "--map")
    spaces = {NAMESPACE.convert(old, None, None): NAMESPACE.convert(new, None, None) for old, new in names.items()}
    wishes = PlanOptions(include, exclude, copy, adopt, into or (), spaces, wave)
    require_some(run.state.list_tables(), include, exclude)
    tables = plan_tables(run, wishes)
    _show(tables, output)
    outside = [table.found for table in tables if table.planned and SETTING in table.planned.because]
    if outside and output != "json":
        count = count_text(len(outside), "table")
        echo(
            f"To migrate {count} outside the allowed locations, start the target with: "
            f"{SETTING}={allowed_locations_value(outside)}"
        )


@migrate.command()
@runs
@chooses
def shadow(run: MigrationRun, output: str, choose: Choose) -> None:
    """Create the planned tables at the target; writers keep using the source."""
    chosen = choose(SHADOW)
    _done(make_shadow(run, chosen.ready), chosen, output)


@migrate.command()
@click.option(
    "--level", "levels", multiple=True, type=click.Choice(LEVELS), help="Only these levels; all four unless given."
)
@runs
@chooses
def verify(run: MigrationRun, output: str, choose: Choose, levels: tuple[LevelName, ...]) -> None:
    """Synchronize the target with the source, and verify that they are equal.

    \b
    L0  the same identity: uuid, schemas, partition specs, snapshots, refs, properties
    L1  every live file can be reached through the target
    L2  fingerprints of all rows and of each column, with all data read
    L3  two engines return the same results for the same queries
    """
    chosen = choose(VERIFY)
    _done(verify_tables(run, verify_pair, chosen.ready, levels or LEVELS), chosen, output)


# Phase 3


@migrate.command()
@click.option("--no-freeze", is_flag=True, help="Do not freeze the source; stop its writers yourself.")
@runs
@chooses
def cutover(run: MigrationRun, output: str, choose: Choose, no_freeze: bool) -> None:
    """Freeze the source, synchronize a last time and verify L0 to L2 again; then the target is the source of truth.

    \b
    hive, glue, jdbc, rest  the table is renamed to …__moved at the source, where it can still be read
    hadoop                  a file takes the name of the next version, so that no commit can follow
    folder, managed tables  cannot be frozen: stop the writers and use --no-freeze
    """
    chosen = choose(CUTOVER)
    _done(cut_over(run, verify_pair, chosen.ready, freeze=not no_freeze), chosen, output)


@migrate.command()
@click.option("--discard", is_flag=True, help="Even if commits made at the target are lost.")
@click.option("--accept-loss", is_flag=True, help="Even if the source or files of it are missing.")
@runs
@chooses
def rollback(run: MigrationRun, output: str, choose: Choose, discard: bool, accept_loss: bool) -> None:
    """Unfreeze the source, and drop the table at the target without deleting files.

    First checks that the files of the source exist, and names missing ones.
    """
    chosen = choose(ROLLBACK)
    _done(roll_back(run, chosen.ready, discard=discard, accept_loss=accept_loss), chosen, output)


# Phase 4


@migrate.command()
@runs
@chooses
def retire(run: MigrationRun, output: str, choose: Choose) -> None:
    """Mark the source as retired: from now on maintenance at the target may delete its files.

    A retired table cannot be rolled back.
    """
    chosen = choose(RETIRE)
    _done(retire_tables(run, chosen.ready), chosen, output)


# At any time


@migrate.command()
@click.option("--watch-source", is_flag=True, help="Also check the sources for commits after the cut-over.")
@runs
def status(run: MigrationRun, output: str, watch_source: bool) -> None:
    """Show the state of each table."""
    tables = run.state.list_tables()
    late = {
        table_title(table.found): late_writes(run, table) for table in tables if watch_source and table.state == "done"
    }
    if output == "json":
        print_json(
            {
                "tables": [msgspec.to_builtins(table) for table in tables],
                "late-writes": {name: msgspec.to_builtins(found) for name, found in late.items() if found},
            }
        )
    else:
        _show(tables, output)
        counts = [f"{sum(table.state == state for table in tables)} {state}" for state in STATES]
        troubled = sum(bool(table.problem) for table in tables)
        counts += [f"{troubled} with a problem"] if troubled else []
        echo(", ".join(count for count in counts if not count.startswith("0 ")) or "no tables")
        for table in tables:
            for finding in late.get(table_title(table.found), []):
                echo(f"{name_of(table.found)}: {finding.text}")
    if any(late.values()):
        raise click.exceptions.Exit(STUCK)


@migrate.command()
@runs
def permissions(run: MigrationRun, output: str) -> None:
    """Print grants equivalent to the permissions at the source, and permissions without equivalent."""
    mapped = map_permissions(run.state.list_tables(), run.client.warehouse or "")
    if output == "json":
        print_json({"grants": mapped.grants, "unmapped": [msgspec.to_builtins(one) for one in mapped.unmapped]})
        return
    for line in mapped.grants:
        echo(line)
    for finding in mapped.unmapped:
        echo(f"# {finding.where}: {finding.text}")


@migrate.command()
@click.option(
    "--to",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("migration.html"),
    show_default=True,
    help="File to write.",
)
@state_option
@uri_option
def report(state: str, uri: str, file: Path) -> None:
    """Write the evidence to one HTML page, or as JSON if the file name ends in .json."""
    with refusals():
        with open_state(state, uri, "report") as memory:
            whole = memory.whole()
        file.write_bytes(as_json(whole) if file.suffix == ".json" else render(whole).encode())
    echo(f"Wrote {file}.", err=True)


# Printing


def _show(tables: Sequence[MigrationTable], output: str) -> None:
    if output == "json":
        print_json({"tables": [msgspec.to_builtins(table) for table in tables]})
        return
    columns = ["table", "state", "kind", "rows", "files", "bytes", "last write", "method", "target", "to know"]
    print_rows(columns, [_row(table) for table in tables])


def _row(table: MigrationTable) -> Sequence[object]:
    found, planned = table.found, table.planned
    notes = [risk.kind for risk in found.risks]
    if planned is not None and planned.method == "refused":
        notes.append(planned.because)
    if table.problem:
        notes.append(table.problem)
    return (
        name_of(found),
        table.state,
        f"{found.kind} v{found.format_version}" if found.format_version else f"{found.kind} {found.format}".strip(),
        _text(found.rows),
        _text(found.files),
        _text(found.size_bytes),
        "" if found.last_write_ms is None else time_of(found.last_write_ms),
        "" if planned is None else planned.method,
        "" if planned is None else print_name(planned.target),
        "; ".join(notes),
    )


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _done(tables: Sequence[MigrationTable], chosen: Choice, output: str) -> None:
    """What became of them; one that is stuck, or was asked for too early, makes the command fail."""
    stuck = [table for table in tables if table.problem]
    if output == "json":
        waiting = [{"table": name_of(table.found), "because": because} for table, because in chosen.waiting]
        print_json({"tables": [msgspec.to_builtins(table) for table in tables], "not-ready": waiting})
    else:
        _show(tables, output)
        for table, because in chosen.waiting:
            echo(f"{name_of(table.found)} is not ready: {because}")
        failed = len(stuck) + len(chosen.waiting)
        echo(f"{count_text(len(tables) - len(stuck), 'table')} done, {failed} failed.")
    if stuck or chosen.waiting:
        raise click.exceptions.Exit(STUCK)
