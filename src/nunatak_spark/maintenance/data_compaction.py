"""Data compaction: small files are joined, too large ones split, rows sorted if the policy says so."""

from collections.abc import Mapping, Sequence
from typing import Any

from nunatak.iceberg.conventions import TARGET_FILE_BYTES
from nunatak.maintenance.job_spec import Gain
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.maintenance import compaction_plan as planning
from nunatak_spark.maintenance.compaction_plan import Partition, Sizes
from nunatak_spark.maintenance.job_context import Outcome, Refused, Work
from nunatak_spark.maintenance.job_failures import Failed, is_conflict
from nunatak_spark.maintenance.loaded_table import Snapshot, Table, call, load, options
from nunatak_spark.maintenance.partition_filters import Values, named_columns, value_texts, where
from nunatak_spark.maintenance.rewrite_verification import guarded, totals
from nunatak_spark.maintenance.snapshot_pins import find_pinned, pin
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import literal, quote_identifier

FEW_FILES = 20_000  # up to which it is quicker to count them here than to have Spark plan an aggregation
MOST_PARTITIONS = 10_000  # that are told apart; more are rewritten all the same
GAINS = totals("data files", "delete files")
MOST_PASSES = 50  # a budget is used up in few; this ends what no budget ends


def compact(work: Work) -> Outcome:
    table = load(work)
    return compact_table(work, table, sizes_of(work, table))


def compact_table(work: Work, table: Table, sizes: Sizes) -> Outcome:
    """Rewrite what is worth it at these sizes; Outcome.changed is False if nothing is."""
    _strategy(work, table)
    todo = survey(work, table, sizes)
    resumed = find_pinned(work, table) is not None
    if not todo and not resumed:
        return Outcome(detail={"text": "no files to rewrite"})
    if work.dry_run:
        return _foretold(table, sizes, todo)
    return guarded(work, table, lambda start: _Compaction(work, table, sizes, start).run(todo), GAINS)


def sizes_of(work: Work, table: Table) -> Sizes:
    asked = work.spec.options
    current = table.current
    has_deletes = current is not None and current.count("total-delete-files") > 0
    by_policy = work.spec.policy is not None
    # Whoever asks for a compaction wants the deletes gone; a policy says by its triggers whether they are why.
    because = any(reason.startswith("delete-file") for reason in work.spec.reasons)
    return Sizes(
        target=int(asked.get("target-file-size-bytes") or TARGET_FILE_BYTES),
        min_input_files=int(asked.get("min-input-files") or planning.MIN_INPUT_FILES),
        group=int(asked.get("max-file-group-size-bytes") or planning.LARGEST_GROUP_BYTES),
        deletes_count=has_deletes and (because or not by_policy),
    )


def survey(work: Work, table: Table, sizes: Sizes, until: int | None = None) -> list[Partition]:
    """What is worth rewriting, from the manifests alone; of files that were there at the sequence number `until`."""
    current = table.current
    if current is None:
        return []
    files = _live_files(table, until)
    if current.count("total-data-files") + current.count("total-delete-files") <= FEW_FILES:
        found = work.spark.sql(f"{files} LIMIT {2 * FEW_FILES}").collect()  # a summary is only what a writer said
        listed = (planning.File(_values(place), *counts) for place, *counts in found)
        return planning.worth_it(planning.grouped(listed, sizes), sizes)
    taken = f"is_data AND (size_bytes < {sizes.small} OR size_bytes > {sizes.large})"
    # At most so many partitions reach the driver, the longest unchanged first; the next pass sees further ones.
    rows = work.spark.sql(
        f"SELECT place, count_if({taken}) AS files, sum(if({taken}, size_bytes, 0)) AS size, "
        f"count_if(NOT is_data) AS deletes, max(changed) AS changed FROM ({files}) GROUP BY place "
        f"HAVING files > 0 OR deletes > 0 ORDER BY changed, size LIMIT {MOST_PARTITIONS}"
    ).collect()
    return planning.worth_it([Partition(_values(place), *counts) for place, *counts in rows], sizes)


def _live_files(table: Table, until: int | None) -> str:
    """A query of the files of the current snapshot; of those that were there at the sequence number `until`."""
    there = "" if until is None else f"AND coalesce(file_sequence_number, 0) <= {until}"
    return (
        f"SELECT {_place(table)} AS place, data_file.content = 0 AS is_data, "
        "data_file.file_size_in_bytes AS size_bytes, coalesce(sequence_number, 0) AS changed "
        f"FROM {table.metadata_table('entries')} WHERE status < 2 {there}"
    )


def _place(table: Table) -> str:
    """The partition of a file as SQL; null for one of an earlier layout."""
    if not table.is_partitioned:
        return "CAST(NULL AS ARRAY<STRING>)"
    texts = value_texts(table.spec, named_columns(table.columns), "data_file.partition")
    return f"if(data_file.spec_id = {table.spec['spec-id']}, {texts}, NULL)"


def _values(place: Sequence[str | None] | None) -> Values | None:
    return None if place is None else tuple(place)


def _strategy(work: Work, table: Table) -> dict[str, str]:
    """The arguments that say how to order rows."""
    strategy, columns = work.spec.options.get("strategy", "binpack"), work.spec.options.get("columns") or []
    unknown = [name for name in columns if name not in {each["name"] for each in table.columns}]
    if unknown:
        raise Refused(f"There is no column {', '.join(unknown)} to order by; change the policy's columns")
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
                raise Refused("The table has no sort order; name columns, or ALTER TABLE … WRITE ORDERED BY")
            return {"strategy": literal("sort")}
        case _:
            raise Refused(f"There is no strategy {strategy}")


def _foretold(table: Table, sizes: Sizes, todo: Sequence[Partition]) -> Outcome:
    files = table.current.count("total-data-files") if table.current else 0
    saved = sum(max(0, each.files - each.files_after(sizes)) for each in todo)
    return Outcome(
        gains=[Gain(of="data files", before=files, after=files - saved)],
        detail={
            "text": "nothing was changed",
            "partitions": len(todo),
            "files": sum(each.files for each in todo),
            "bytes": sum(each.size_bytes for each in todo),
        },
    )


class _Compaction:
    """One job's passes over the table; what is written while it runs is left for the next one."""

    def __init__(self, work: Work, table: Table, sizes: Sizes, start: Snapshot) -> None:
        self._work, self._table, self._sizes, self._start = work, table, sizes, start
        self._arguments = _strategy(work, table)
        current = table.current or start
        self._until = current.sequence_number
        self._has_deletes = current.count("total-delete-files") > 0
        self._has_equality_deletes = current.count("total-equality-deletes") > 0
        self._calls = 0
        self._conflicts: list[Exception] = []

    def run(self, todo: Sequence[Partition]) -> dict[str, Any]:
        """Until nothing is left, the budget is used up, or writers were quicker in every attempt."""
        attempt, text = 1, None
        for _ in range(MOST_PASSES):
            if not todo:
                break
            if attempt > planning.TRIES or (attempt > 1 and not planning.can_shrink(todo, self._sizes)):
                todo = self._in_small_pieces(todo)
                text = self._given_up(todo) if todo else None
                break
            conflicts, rewritten = len(self._conflicts), self._rewritten_bytes()
            limited, in_parts = self._pass(todo, attempt)
            if not (limited or in_parts or len(self._conflicts) > conflicts):
                break  # all of it was committed at once
            self._table = load(self._work)
            todo = survey(self._work, self._table, self._sizes, self._until)
            # Of what is committed in parts Iceberg does not say which parts failed: it is what is still there.
            if len(self._conflicts) > conflicts or (in_parts and not limited):
                attempt += 1
            elif self._rewritten_bytes() == rewritten:
                text = f"{sum(each.files for each in todo)} files are left: the budget of bytes is used up"
                break
        told = {"calls": self._calls, "conflicts": len(self._conflicts)}
        return told if text is None else {**told, "text": text}

    def _given_up(self, left: Sequence[Partition]) -> str:
        if self._conflicts and not self._rewritten_bytes():
            raise Failed(
                f"other writers were quicker in {self._calls} attempts, and nothing was rewritten: "
                f"{failure_reason(self._conflicts[-1])}"
            ) from self._conflicts[-1]
        files = sum(each.files for each in left)
        return f"{files} files are left after {self._calls} attempts beside other writers"

    def _pass(self, todo: Sequence[Partition], attempt: int) -> tuple[bool, bool]:
        """Rewrite once, in as many pieces as the attempt asks for; whether a budget counted, and if in many commits."""
        limited = in_parts = False
        for condition in planning.pieces(todo, attempt, self._table.spec, *self._names()):
            self._work.check()
            max_bytes = self._bytes_left()
            max_files = None if max_bytes is None else self._files_within(max_bytes)
            limited = max_files is not None
            if max_files is not None and max_files < 2:
                break
            if self._calls:
                pin(self._work, self._start)  # anew: each call may take long
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
        """The columns, and where Iceberg's functions are."""
        return named_columns(self._table.columns), f"{quote_identifier(self._work.catalog)}.system"

    # Beside writers that are in the way of everything else

    def _in_small_pieces(self, todo: Sequence[Partition]) -> list[Partition]:
        """Rewrite few files by each call, the smallest first; what is left then.

        Each call plans anew, so its files must stay unchanged only for as long as it takes. In one call of many groups
        the last ones would have to stay unchanged from the first on.
        """
        calls = planning.MOST_PIECES
        for partition in todo:
            condition = where(partition.values, self._table.spec, *self._names())
            size = max(planning.SMALLEST_PIECE, min(planning.LARGEST_PIECE, partition.files // 4))
            in_vain = 0
            while calls and in_vain < planning.TRIES and (wanted := self._piece(partition, size)) is not None:
                calls -= 1
                pin(self._work, self._start)  # anew: all of them together may take long
                conflicts = len(self._conflicts)
                rewritten = self._call(condition, wanted)
                got_through = len(self._conflicts) == conflicts
                if got_through and not rewritten:
                    break
                in_vain = 0 if got_through or size > planning.SMALLEST_PIECE else in_vain + 1
                size = planning.next_piece(size, got_through=got_through)
        self._table = load(self._work)
        return survey(self._work, self._table, self._sizes, self._until)

    def _piece(self, partition: Partition, files: int) -> Mapping[str, object] | None:
        """The options to rewrite so many of the smallest files; None if there are not even two."""
        self._work.check()
        self._table = load(self._work)
        texts = ["NULL" if text is None else literal(text) for text in partition.values or ()]
        place = "NULL" if partition.values is None else f"CAST(array({', '.join(texts)}) AS ARRAY<STRING>)"
        taken = "true" if self._sizes.deletes_count else f"size_bytes < {self._sizes.small}"
        rows = self._work.spark.sql(
            f"SELECT size_bytes FROM ({_live_files(self._table, self._until)}) "
            f"WHERE is_data AND place <=> {place} AND {taken} ORDER BY size_bytes LIMIT {files}"
        ).collect()
        smallest, budget = [int(row["size_bytes"]) for row in rows], self._bytes_left()
        while budget is not None and sum(smallest) > budget:
            smallest.pop()
        if len(smallest) < planning.SMALLEST_PIECE:
            return None
        return planning.piece_options(self._sizes, smallest, has_deletes=self._has_deletes)

    # One call of the procedure

    def _call(self, condition: str | None, wanted: Mapping[str, object]) -> int:
        """How many files were rewritten; a conflict is noted."""
        arguments = {"table": self._table.argument, **self._arguments, "options": options(wanted)}
        if condition is not None:
            arguments["where"] = literal(condition)
        self._calls += 1
        try:
            with report_task_progress(self._work.spark, "rewriting files", self._work.progress):
                row = call(self._work, "rewrite_data_files", arguments)
                return int(row["rewritten_data_files_count"])
        except Exception as error:
            if not is_conflict(error):
                raise
            self._conflicts.append(error)
            return 0

    def _rewritten_bytes(self) -> int:
        line = self._table.line(self._start.snapshot_id)
        return sum(each.count("removed-files-size") for each in line if each.operation == "replace")

    def _bytes_left(self) -> int | None:
        """What the budget still allows; None without one."""
        most = self._work.spec.max_bytes
        if most is None:
            return None
        self._table = load(self._work)
        return max(0, most - self._rewritten_bytes())

    def _files_within(self, max_bytes: int) -> int:
        """How many files may be taken without going over, whichever of those Iceberg may choose they are."""
        taken = "true" if self._sizes.deletes_count else f"size < {self._sizes.small} OR size > {self._sizes.large}"
        files = f"SELECT file_size_in_bytes AS size FROM {self._table.metadata_table('data_files')}"
        sums = (
            "SELECT sum(size) OVER (ORDER BY size DESC ROWS UNBOUNDED PRECEDING) AS together "
            f"FROM ({files}) WHERE {taken}"
        )
        (row,) = self._work.spark.sql(f"SELECT count_if(together <= {max_bytes}) FROM ({sums})").collect()
        return int(row[0])
