"""Verifies many tables in parallel: L1 of small tables in one Spark job, the other levels in several threads.

Only the main thread asks sources for pointers and writes the state. The other threads read both ends.
"""

import contextlib
import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import msgspec

from nunatak.client import Client
from nunatak_spark.fingerprint import fingerprint_settings
from nunatak_spark.installation import import_pyspark
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.migration.cutover import TRIES, Verify, is_outdated, require_green, table_pair
from nunatak_spark.migration.migration_run import MigrationRun
from nunatak_spark.migration.model import Evidence, LevelName, MigrationTable, TablePair
from nunatak_spark.migration.shadow import refresh_shadow
from nunatak_spark.migration.verification import check_files_of_many
from nunatak_spark.session_settings import temporary_settings

THREADS = 4  # small tables mostly wait for catalogs, planning and scheduling
SMALL_BYTES = 64 << 20
# For small tables planning and code generation cost more than reading.
SMALL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
TOGETHER = 25  # tables per batch


def verify_tables(
    run: MigrationRun, verify: Verify, tables: Sequence[MigrationTable], levels: Sequence[LevelName]
) -> list[MigrationTable]:
    """Refreshes and verifies every table; repeats a table if its source changed meanwhile.

    A source whose snapshots can be read by id may change: verified is the state from which the target was made.
    """
    if not tables:
        return []  # Spark is not started for nothing
    results: dict[int, MigrationTable] = {}
    small = [(number, table) for number, table in enumerate(tables) if is_small(table)]
    large = [(number, table) for number, table in enumerate(tables) if not is_small(table)]
    with _start_workers(run) as workers:
        for alike, settings in ((small, SMALL_SETTINGS), (large, {})):
            with temporary_settings(run.spark(), settings):
                waiting = alike
                for attempt in range(TRIES):
                    batch = _Batch(run, verify, levels, attempt == TRIES - 1, None if alike is large else large)
                    outdated: list[tuple[int, MigrationTable]] = []
                    for start in range(0, len(waiting), TOGETHER):
                        outdated += batch.verify(waiting[start : start + TOGETHER], results, workers)
                        run.progress(ProgressStep("verify", len(results), len(tables)))
                    waiting = outdated
    return [results[number] for number in range(len(tables))]


def is_small(table: MigrationTable) -> bool:
    """Returns whether the inventory says that the table is small; this only affects speed."""
    size = table.found.size_bytes
    return size is not None and size <= SMALL_BYTES


@dataclass(frozen=True)
class _Batch:
    """Tables that are verified together; if Spark fails with the settings for small tables, `others` get a
    second try.
    """

    run: MigrationRun
    verify_pair: Verify
    levels: Sequence[LevelName]
    is_last: bool
    others: list[tuple[int, MigrationTable]] | None

    def verify(
        self, tables: Sequence[tuple[int, MigrationTable]], results: dict[int, MigrationTable], workers: "_Workers"
    ) -> list[tuple[int, MigrationTable]]:
        """Puts the result of each table into `results`; returns the tables to repeat."""
        pairs: list[tuple[int, TablePair]] = []
        for number, table in tables:
            try:
                fresh = refresh_shadow(self.run, table)
                pairs.append((number, table_pair(self.run, fresh, may_move=True)))
            except Exception as error:
                results[number] = self.run.mark_failed(table, "verify", error)
        if "L1" in self.levels and len(pairs) > 1:
            numbers = [number for number, _ in pairs]
            pairs = list(zip(numbers, check_files_of_many([pair for _, pair in pairs]), strict=True))
        outdated = []
        looked = workers.each(self.verify_pair, [pair for _, pair in pairs], self.levels)
        for (number, pair), evidence in zip(pairs, looked, strict=True):
            if not isinstance(evidence, Exception) and is_outdated(evidence) and not self.is_last:
                self.run.state.save_evidence(pair.table, evidence)
                outdated.append((number, pair.table))
            elif self.others is not None and not isinstance(evidence, Exception) and _is_unfinished(evidence):
                self.others.append((number, pair.table))
            else:
                results[number] = self.run.attempt(
                    pair.table,
                    "verify",
                    lambda table: self._settle(table, evidence),  # noqa: B023 – called at once
                )
        return outdated

    def _settle(self, table: MigrationTable, evidence: list[Evidence] | Exception) -> MigrationTable:
        if isinstance(evidence, Exception):
            raise evidence
        self.run.state.save_evidence(table, evidence)
        require_green(evidence)
        state = table.state if table.state in {"cutover", "done"} else "verified"
        green = msgspec.structs.replace(table, state=state, problem="", failed_at="")
        return self.run.state.save_table(green, f"{' '.join(self.levels)} green")


def _is_unfinished(evidence: Sequence[Evidence]) -> bool:
    """Returns whether Spark failed, perhaps because of the settings for small tables."""
    kinds = {finding.kind for each in evidence for finding in each.findings}
    answers = [each.facts.get("engines", {}).get("spark", "answered") for each in evidence]
    return "not-carried-out" in kinds or any(answer != "answered" for answer in answers)


@dataclass(frozen=True)
class _Workers:
    """Threads, each with its own client of the target and its own scheduler pool."""

    pool: ThreadPoolExecutor
    clients: "queue.SimpleQueue[tuple[int, Client]]"

    def each(
        self, verify: Verify, pairs: Sequence[TablePair], levels: Sequence[LevelName]
    ) -> list[list[Evidence] | Exception]:
        def look(pair: TablePair) -> list[Evidence] | Exception:
            number, client = self.clients.get()
            try:
                with _scheduler_pool(pair, f"verify-{number}"):
                    return verify(replace(pair, client=client), levels)
            except Exception as error:  # a failure concerns only this table
                return error
            finally:
                self.clients.put((number, client))

        return list(self.pool.map(look, pairs))


@contextlib.contextmanager
def _start_workers(run: MigrationRun) -> Iterator[_Workers]:
    """Starts the threads and sets the fingerprint settings of the session, which all threads share."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(fingerprint_settings(run.spark()))
        clients: queue.SimpleQueue[tuple[int, Client]] = queue.SimpleQueue()
        for number in range(THREADS):
            clients.put((number, stack.enter_context(run.connect())))
        yield _Workers(stack.enter_context(ThreadPoolExecutor(THREADS)), clients)


@contextlib.contextmanager
def _scheduler_pool(pair: TablePair, name: str) -> Iterator[None]:
    """Runs the thread's Spark jobs in their own scheduler pool, so that a fair scheduler shares the cores."""
    if import_pyspark("pyspark.sql.utils").is_remote():  # over Connect the server decides
        yield
        return
    context = pair.spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", name)
    try:
        yield
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
