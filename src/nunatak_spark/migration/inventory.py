"""What a source holds, written into the migration's folder; nothing is changed anywhere else."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from nunatak_spark.jobs import ProgressStep
from nunatak_spark.migration.metadata_facts import with_document
from nunatak_spark.migration.migration_run import Run, asking
from nunatak_spark.migration.model import Finding, Found, Source, Table, title
from nunatak_spark.migration.planning_rules import is_decided
from nunatak_spark.migration.risks import name_risks, with_overlaps
from nunatak_spark.migration.source_files import Document, Unreadable, read_document
from nunatak_spark.migration.sources.source_kinds import open_origin

TOLD_EVERY = 10  # tables; nobody knows beforehand how many there are
THREADS = 8  # reading a metadata file is waiting for the storage


def take_inventory(run: Run, source: Source) -> list[Table]:
    """Look at all of it, and remember it. A table that has been moved since keeps what is known about it."""
    run.folder.save_source(source)
    origin = open_origin(source, run.spark, run.environment)
    try:
        with asking(source):
            found = list(_completed(run, origin.list_tables()))
    finally:
        origin.close()
    _forget_gone(run, source, {title(each) for each in found})
    known = {title(table.found): table for table in run.folder.list_tables()}
    for each in found:
        table = known.get(title(each))
        if table is None or not is_decided(table):
            known[title(each)] = msgspec.structs.replace(table, found=each) if table else Table(found=each)
    _save_with_overlaps(run, known.values())
    run.folder.say(f"{source.name}: {len(found)} tables and views at {source.address}")
    return [table for table in run.folder.list_tables() if table.found.source == source.name]


def _completed(run: Run, listed: Iterator[tuple[Found, Document | None]]) -> Iterator[Found]:
    def complete(one: tuple[Found, Document | None]) -> Found:
        found, document = one
        return _with_metadata(run, found, document)

    done = 0
    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(complete, listed):
            done += 1
            if done % TOLD_EVERY == 0:
                run.progress(ProgressStep("inventory", done, done))
            yield msgspec.structs.replace(found, risks=(*found.risks, *name_risks(found)))


def _with_metadata(run: Run, found: Found, document: Document | None) -> Found:
    if found.kind != "iceberg":
        return found
    try:
        if document is None:
            document = read_document(run.spark, found.pointer)
        return with_document(found, document)
    except Unreadable as error:
        return msgspec.structs.replace(found, risks=(*found.risks, Finding("unreadable", str(error), found.pointer)))


def _forget_gone(run: Run, source: Source, there: set[str]) -> None:
    for table in run.folder.list_tables():
        gone = table.found.source == source.name and title(table.found) not in there
        if gone and not is_decided(table):
            run.folder.forget_table(table, "is no longer at the source")


def _save_with_overlaps(run: Run, tables: Iterable[Table]) -> None:
    """Two sources may hold the same folder, so all are looked at together; what did not change is not written."""
    wanted = list(tables)
    stored = {title(table.found): table for table in run.folder.list_tables()}
    for table, found in zip(wanted, with_overlaps([table.found for table in wanted]), strict=True):
        if stored.get(title(found), Table(found=found)).found != found or title(found) not in stored:
            run.folder.save_table(msgspec.structs.replace(table, found=found))
