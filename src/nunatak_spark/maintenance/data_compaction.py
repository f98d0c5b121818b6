"""Data compaction: joins small files, splits large ones, and sorts rows if the policy says so."""

from collections.abc import Mapping, Sequence
from typing import Any

from nunatak.iceberg.conventions import TARGET_FILE_BYTES
from nunatak.maintenance.job_spec import Gain
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.maintenance import compaction_plan as planning
from nunatak_spark.maintenance.compaction_plan import FileSizes, Partition
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused
from nunatak_spark.maintenance.job_failures import JobFailed, is_conflict
from nunatak_spark.maintenance.loaded_table import LoadedTable, Snapshot, call_procedure, load_table, options_sql
from nunatak_spark.maintenance.partition_filters import Values, columns_by_id, partition_condition, partition_values_sql
from nunatak_spark.maintenance.rewrite_verification import run_verified_rewrite, summary_totals
from nunatak_spark.maintenance.snapshot_pins import find_pinned_snapshot, pin_snapshot
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import literal, quote_identifier

FEW_FILES = 20_000  # up to this, counting on the driver is faster than planning an aggregation
MAX_PARTITIONS = 10_000  # considered per pass; the rest is rewritten by later passes
GAINS = summary_totals("data files", "delete files")
MAX_PASSES = 50  # a byte budget ends after a few passes; this bounds jobs without one


def compact(context: JobContext) -> JobOutcome:
    table = load_table(context)
    return compact_table(context, table, file_sizes(context, table))


def compact_table(context: JobContext, table: LoadedTable, sizes: FileSizes) -> JobOutcome:
    """Rewrites the partitions that need it at these sizes; JobOutcome.changed is False if none does."""
    _strategy(context, table)
    todo = find_partitions_to_rewrite(context, table, sizes)
    resumed = find_pinned_snapshot(context, table) is not None
    if not todo and not resumed:
        return JobOutcome(detail={"text": "no files to rewrite"})
    if context.dry_run:
        return _dry_run_outcome(table, sizes, todo)
    return run_verified_rewrite(
        context, table, lambda start: _Compaction(context, table, sizes, start).run(todo), GAINS
    )


def file_sizes(context: JobContext, table: LoadedTable) -> FileSizes:
    asked = context.spec.options
    current = table.current
    has_deletes = current is not None and current.count("total-delete-files") > 0
    by_policy = context.spec.policy is not None
    # A requested compaction always applies deletes; one by policy only if its delete-file trigger fired.
    because = any(reason.startswith("delete-file") for reason in context.spec.reasons)
    return FileSizes(
        target=int(asked.get("target-file-size-bytes") or TARGET_FILE_BYTES),
        min_input_files=int(asked.get("min-input-files") or planning.MIN_INPUT_FILES),
        group=int(asked.get("max-file-group-size-bytes") or planning.MAX_GROUP_BYTES),
        rewrite_for_deletes=has_deletes and (because or not by_policy),
    )


def find_partitions_to_rewrite(
    context: JobContext, table: LoadedTable, sizes: FileSizes, until: int | None = None
) -> list[Partition]:
    """Returns the partitions to rewrite, from manifests alone; only files up to sequence number `until` count."""
    current = table.current
    if current is None:
        return []
    files = _live_files(table, until)
    if current.count("total-data-files") + current.count("total-delete-files") <= FEW_FILES:
        found = context.spark.sql(
            f"{files} LIMIT {2 * FEW_FILES}"
        ).collect()  # LIMIT: the summary's counts come from the writer and may be wrong
        listed = (planning.CompactionFile(_values(place), *counts) for place, *counts in found)
        return planning.select_partitions(planning.group_by_partition(listed, sizes), sizes)
    taken = f"is_data AND (size_bytes < {sizes.small} OR size_bytes > {sizes.large})"
    # Limits what reaches the driver, least recently changed first; the next pass sees further partitions.
    rows = context.spark.sql(
        f"SELECT place, count_if({taken}) AS files, sum(if({taken}, size_bytes, 0)) AS size, "
        f"count_if(NOT is_data) AS deletes, max(changed) AS changed FROM ({files}) GROUP BY place "
        f"HAVING files > 0 OR deletes > 0 ORDER BY changed, size LIMIT {MAX_PARTITIONS}"
    ).collect()
    return planning.select_partitions([Partition(_values(place), *counts) for place, *counts in rows], sizes)


def _live_files(table: LoadedTable, until: int | None) -> str:
    """Returns a query of the files of the current snapshot, up to the sequence number `until`."""
    there = "" if until is None else f"AND coalesce(file_sequence_number, 0) <= {until}"
    return (
        f"SELECT {_partition_sql(table)} AS place, data_file.content = 0 AS is_data, "
        "data_file.file_size_in_bytes AS size_bytes, coalesce(sequence_number, 0) AS changed "
        f"FROM {table.metadata_table('entries')} WHERE status < 2 {there}"
    )


def _partition_sql(table: LoadedTable) -> str:
    """Returns SQL for the partition of a file; null for a file of an earlier partition spec."""
    if not table.is_partitioned:
        return "CAST(NULL AS ARRAY<STRING>)"
    texts = partition_values_sql(table.spec, columns_by_id(table.columns), "data_file.partition")
    return f"if(data_file.spec_id = {table.spec['spec-id']}, {texts}, NULL)"


def _values(place: Sequence[str | None] | None) -> Values | None:
    return None if place is None else tuple(place)


def _strategy(context: JobContext, table: LoadedTable) -> dict[str, str]:
    """Returns the procedure arguments for the row order; raises JobRefused if the policy's columns do not exist."""
    strategy, columns = context.spec.options.get("strategy", "binpack"), context.spec.options.get("columns") or []
    unknown = [name for name in columns if name not in {each["name"] for each in table.columns}]
    if unknown:
        raise JobRefused(f"There is no column {', '.join(unknown)} to order by; change the policy's columns")
    names = ", ".join(map(quote_identifier, columns))
    match strategy:
        case "binpack":
            return {"strategy": literal("binpack")}
        case "zorder":
            return {"strategy": literal("sort"), "sort_order": literal(f"zorder({names})")}
        case "sort" if columns:
            return {"strategy": literal("sort"), "sort_order": literal(names)}
        case "sort":
            if not table.metadata.get("default-sort-order-id"):
                raise JobRefused("The table has no sort order; name columns, or ALTER TABLE … WRITE ORDERED BY")
            return {"strategy": literal("sort")}
        case _:
            raise JobRefused(f"There is no strategy {strategy}")


def _dry_run_outcome(table: LoadedTable, sizes: FileSizes, todo: Sequence[Partition]) -> JobOutcome:
    files = table.current.count("total-data-files") if table.current else 0
    saved = sum(max(0, each.files - each.files_after(sizes)) for each in todo)
    return JobOutcome(
        gains=[Gain(of="data files", before=files, after=files - saved)],
        detail={
            "text": "nothing was changed",
            "partitions": len(todo),
            "files": sum(each.files for each in todo),
            "bytes": sum(each.size_bytes for each in todo),
        },
    )


class _Compaction:
    """The passes of one job over the table. Files that are written meanwhile are left for the next job."""

    def __init__(self, context: JobContext, table: LoadedTable, sizes: FileSizes, start: Snapshot) -> None:
        self._context, self._table, self._sizes, self._start = context, table, sizes, start
        self._arguments = _strategy(context, table)
        current = table.current or start
        self._until = current.sequence_number
        self._has_deletes = current.count("total-delete-files") > 0
        self._has_equality_deletes = current.count("total-equality-deletes") > 0
        self._calls = 0
        self._conflicts: list[Exception] = []

    def run(self, todo: Sequence[Partition]) -> dict[str, Any]:
        """Rewrites until nothing is left, the byte budget is used up, or every attempt conflicted with writers."""
        attempt, text = 1, None
        for _ in range(MAX_PASSES):
            if not todo:
                break
            if attempt > planning.TRIES or (attempt > 1 and not planning.can_shrink(todo, self._sizes)):
                todo = self._rewrite_small_pieces(todo)
                text = self._leftover_text(todo) if todo else None
                break
            conflicts, rewritten = len(self._conflicts), self._rewritten_bytes()
            limited, in_parts = self._run_pass(todo, attempt)
            if not (limited or in_parts or len(self._conflicts) > conflicts):
                break  # everything was committed at once
            self._table = load_table(self._context)
            todo = find_partitions_to_rewrite(self._context, self._table, self._sizes, self._until)
            # With partial progress Iceberg does not say which groups failed: they are the files that are still small.
            if len(self._conflicts) > conflicts or (in_parts and not limited):
                attempt += 1
            elif self._rewritten_bytes() == rewritten:
                text = f"{sum(each.files for each in todo)} files are left: the budget of bytes is used up"
                break
        told = {"calls": self._calls, "conflicts": len(self._conflicts)}
        return told if text is None else {**told, "text": text}

    def _leftover_text(self, left: Sequence[Partition]) -> str:
        """Returns a text about the files that are left; raises JobFailed if nothing was rewritten at all."""
        if self._conflicts and not self._rewritten_bytes():
            raise JobFailed(
                f"other writers were quicker in {self._calls} attempts, and nothing was rewritten: "
                f"{failure_reason(self._conflicts[-1])}"
            ) from self._conflicts[-1]
        files = sum(each.files for each in left)
        return f"{files} files are left after {self._calls} attempts beside other writers"

    def _run_pass(self, todo: Sequence[Partition], attempt: int) -> tuple[bool, bool]:
        """Rewrites once, in the pieces of this attempt; returns whether a budget applied and whether
        commits were partial.
        """
        limited = in_parts = False
        for condition in planning.rewrite_conditions(todo, attempt, self._table.spec, *self._names()):
            self._context.check()
            max_bytes = self._bytes_left()
            max_files = None if max_bytes is None else self._files_within(max_bytes)
            limited = max_files is not None
            if max_files is not None and max_files < 2:
                break
            if self._calls:
                pin_snapshot(self._context, self._start)  # renew the pin: each call may take long
            wanted = planning.rewrite_options(
                self._sizes,
                todo,
                attempt,
                has_deletes=self._has_deletes,
                has_equality_deletes=self._has_equality_deletes,
                max_files=max_files,
                max_bytes=max_bytes,
            )
            in_parts = planning.PARTIAL in wanted
            self._call(condition, wanted)
        return limited, in_parts

    def _names(self) -> tuple[Mapping[int, tuple[str, Any]], str]:
        """Returns the columns, and the namespace of Iceberg's SQL functions."""
        return columns_by_id(self._table.columns), f"{quote_identifier(self._context.catalog)}.system"

    # Small pieces, if conflicts with writers prevent larger ones

    def _rewrite_small_pieces(self, todo: Sequence[Partition]) -> list[Partition]:
        """Rewrites few files per call, the smallest first; returns what is left.

        Each call plans again, so its files must stay unchanged only while that call runs. In one call with many groups,
        the files of the last group would have to stay unchanged from the start.
        """
        calls = planning.MAX_PIECES
        for partition in todo:
            condition = partition_condition(partition.values, self._table.spec, *self._names())
            size = max(planning.MIN_PIECE_FILES, min(planning.MAX_PIECE_FILES, partition.files // 4))
            in_vain = 0
            while calls and in_vain < planning.TRIES and (wanted := self._piece_options(partition, size)) is not None:
                calls -= 1
                pin_snapshot(self._context, self._start)  # renew the pin: all calls together may take long
                conflicts = len(self._conflicts)
                rewritten = self._call(condition, wanted)
                got_through = len(self._conflicts) == conflicts
                if got_through and not rewritten:
                    break
                in_vain = 0 if got_through or size > planning.MIN_PIECE_FILES else in_vain + 1
                size = planning.next_piece_size(size, got_through=got_through)
        self._table = load_table(self._context)
        return find_partitions_to_rewrite(self._context, self._table, self._sizes, self._until)

    def _piece_options(self, partition: Partition, files: int) -> Mapping[str, object] | None:
        """Returns the options to rewrite so many of the smallest files; None if there are fewer than two."""
        self._context.check()
        self._table = load_table(self._context)
        texts = ["NULL" if text is None else literal(text) for text in partition.values or ()]
        place = "NULL" if partition.values is None else f"CAST(array({', '.join(texts)}) AS ARRAY<STRING>)"
        taken = "true" if self._sizes.rewrite_for_deletes else f"size_bytes < {self._sizes.small}"
        rows = self._context.spark.sql(
            f"SELECT size_bytes FROM ({_live_files(self._table, self._until)}) "
            f"WHERE is_data AND place <=> {place} AND {taken} ORDER BY size_bytes LIMIT {files}"
        ).collect()
        smallest, budget = [int(row["size_bytes"]) for row in rows], self._bytes_left()
        while budget is not None and sum(smallest) > budget:
            smallest.pop()
        if len(smallest) < planning.MIN_PIECE_FILES:
            return None
        return planning.piece_options(self._sizes, smallest, has_deletes=self._has_deletes)

    # One call of the procedure

    def _call(self, condition: str | None, wanted: Mapping[str, object]) -> int:
        """Calls the procedure; returns how many files were rewritten, and records a conflict."""
        arguments = {"table": self._table.argument, **self._arguments, "options": options_sql(wanted)}
        if condition is not None:
            arguments["where"] = literal(condition)
        self._calls += 1
        try:
            with report_task_progress(self._context.spark, "rewriting files", self._context.progress):
                row = call_procedure(self._context, "rewrite_data_files", arguments)
                return int(row["rewritten_data_files_count"])
        except Exception as error:
            if not is_conflict(error):
                raise
            self._conflicts.append(error)
            return 0

    def _rewritten_bytes(self) -> int:
        line = self._table.ancestors(self._start.snapshot_id)
        return sum(each.count("removed-files-size") for each in line if each.operation == "replace")

    def _bytes_left(self) -> int | None:
        """Returns what is left of the byte budget; None without a budget."""
        most = self._context.spec.max_bytes
        if most is None:
            return None
        self._table = load_table(self._context)
        return max(0, most - self._rewritten_bytes())

    def _files_within(self, max_bytes: int) -> int:
        """Returns how many files may be rewritten within the budget, whichever files Iceberg picks."""
        taken = (
            "true" if self._sizes.rewrite_for_deletes else f"size < {self._sizes.small} OR size > {self._sizes.large}"
        )
        files = f"SELECT file_size_in_bytes AS size FROM {self._table.metadata_table('data_files')}"
        sums = (
            "SELECT sum(size) OVER (ORDER BY size DESC ROWS UNBOUNDED PRECEDING) AS together "
            f"FROM ({files}) WHERE {taken}"
        )
        (row,) = self._context.spark.sql(f"SELECT count_if(together <= {max_bytes}) FROM ({sums})").collect()
        return int(row[0])
