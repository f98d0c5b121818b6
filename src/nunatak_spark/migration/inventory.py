"""Takes the inventory of a source and saves it in the migration's state. Changes nothing at the source."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from nunatak_spark.jobs import ProgressStep
from nunatak_spark.migration.metadata_facts import with_document
from nunatak_spark.migration.migration_run import MigrationRun, translate_source_errors
from nunatak_spark.migration.model import InventoryTable, MigrationFinding, MigrationSource, MigrationTable, table_title
from nunatak_spark.migration.planning_rules import is_at_target
from nunatak_spark.migration.risks import name_risks, with_overlaps
from nunatak_spark.migration.source_files import MetadataDocument, UnreadableFile, read_document
from nunatak_spark.migration.sources.source_kinds import open_source_catalog

TOLD_EVERY = 10  # tables per progress report; the total is unknown
THREADS = 8  # reading metadata files waits for the storage


def take_inventory(run: MigrationRun, source: MigrationSource) -> list[MigrationTable]:
    """Lists all tables of the source and saves them. Tables that are at the target already stay as they are."""
    run.state.save_source(source)
    origin = open_source_catalog(source, run.spark, run.environment)
    try:
        with translate_source_errors(source):
            found = list(_complete_all(run, origin.list_tables()))
    finally:
        origin.close()
    _forget_missing_tables(run, source, {table_title(each) for each in found})
    known = {table_title(table.found): table for table in run.state.list_tables()}
    for each in found:
        table = known.get(table_title(each))
        if table is None or not is_at_target(table):
            known[table_title(each)] = (
                msgspec.structs.replace(table, found=each) if table else MigrationTable(found=each)
            )
    _save_with_overlaps(run, known.values())
    run.state.say(f"{source.name}: {len(found)} tables and views at {source.address}")
    return [table for table in run.state.list_tables() if table.found.source == source.name]


def _complete_all(
    run: MigrationRun, listed: Iterator[tuple[InventoryTable, MetadataDocument | None]]
) -> Iterator[InventoryTable]:
    def complete(one: tuple[InventoryTable, MetadataDocument | None]) -> InventoryTable:
        found, document = one
        return _with_metadata(run, found, document)

    done = 0
    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(complete, listed):
            done += 1
            if done % TOLD_EVERY == 0:
                run.progress(ProgressStep("inventory", done, done))
            yield msgspec.structs.replace(found, risks=(*found.risks, *name_risks(found)))


def _with_metadata(run: MigrationRun, found: InventoryTable, document: MetadataDocument | None) -> InventoryTable:
    if found.kind != "iceberg":
        return found
    try:
        if document is None:
            document = read_document(run.spark, found.pointer)
        return with_document(found, document)
    except UnreadableFile as error:
        return msgspec.structs.replace(
            found, risks=(*found.risks, MigrationFinding("unreadable", str(error), found.pointer))
        )


def _forget_missing_tables(run: MigrationRun, source: MigrationSource, there: set[str]) -> None:
    for table in run.state.list_tables():
        gone = table.found.source == source.name and table_title(table.found) not in there
        if gone and not is_at_target(table):
            run.state.forget_table(table, "is no longer at the source")


def _save_with_overlaps(run: MigrationRun, tables: Iterable[MigrationTable]) -> None:
    """Saves changed tables. All sources are checked together, because two may share a folder."""
    wanted = list(tables)
    stored = {table_title(table.found): table for table in run.state.list_tables()}
    for table, found in zip(wanted, with_overlaps([table.found for table in wanted]), strict=True):
        if (
            stored.get(table_title(found), MigrationTable(found=found)).found != found
            or table_title(found) not in stored
        ):
            run.state.save_table(msgspec.structs.replace(table, found=found))
