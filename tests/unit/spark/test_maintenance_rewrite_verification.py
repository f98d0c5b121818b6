"""What shows that a rewrite changed no row, and how a failure is told, without Spark."""

from typing import Any

import pytest

from nunatak.errors import CommitFailed
from nunatak.maintenance.job_spec import JobSpec
from nunatak_spark.maintenance.job_context import JobContext, JobRefused, JobStopped
from nunatak_spark.maintenance.job_failures import TRIES, JobFailed, is_conflict, retry_on_conflict, translate_failures
from nunatak_spark.maintenance.loaded_table import LoadedTable, Snapshot
from nunatak_spark.maintenance.rewrite_verification import metadata_differences, rewrites_since, verification_level
from nunatak_spark.maintenance.row_retention import own_deletes

TRACE = """An error occurred while calling o1.sql.
: java.lang.RuntimeException: Cannot commit rewrite because of a ValidationException or CommitFailedException. This
\tat org.apache.iceberg.spark.actions.RewriteDataFilesSparkAction.doExecute(RewriteDataFilesSparkAction.java:291)
Caused by: org.apache.iceberg.exceptions.ValidationException: Cannot commit, found new delete for replaced data file
\tat org.apache.iceberg.MergingSnapshotProducer.validate(MergingSnapshotProducer.java:12)
"""


def a_table(*line: tuple[int, str], current: int | None = None, **summaries: dict[str, str]) -> LoadedTable:
    """A table whose snapshots follow each other, by id and operation."""
    snapshots, parent = {}, None
    for snapshot_id, operation in line:
        summary = {"operation": operation, **summaries.get(f"s{snapshot_id}", {})}
        snapshots[snapshot_id] = Snapshot(snapshot_id, parent, snapshot_id * 1000, snapshot_id, operation, summary)
        parent = snapshot_id
    return LoadedTable("`lake`.`ns`.`t`", {"current-snapshot-id": current or parent}, snapshots)


def a_job(**options: Any) -> JobContext:
    spec = JobSpec(type="data-compaction", warehouse="w", namespace=["n"], table="t", table_uuid="u", options=options)
    return JobContext(spark=None, client=None, catalog="lake", spec=spec, job="1")  # type: ignore[arg-type]


def test_rewrites_in_a_row_are_one_and_others_commits_part_them() -> None:
    table = a_table((1, "append"), (2, "replace"), (3, "replace"), (4, "append"), (5, "replace"), (6, "overwrite"))

    found = rewrites_since(table, 1)

    assert [(each.parent_id, each.last_id) for each in found] == [(1, 3), (4, 5)]
    assert [(each.parent_id, each.last_id) for each in rewrites_since(table, 3)] == [(4, 5)]
    assert rewrites_since(table, 6) == []


def test_a_branch_that_was_put_elsewhere_holds_nothing_of_the_job() -> None:
    table = a_table((1, "append"), (2, "replace"), (3, "append"))

    assert rewrites_since(table, 99) == []


def test_facts_differ_only_where_both_sides_know_them() -> None:
    same = {"rows_before": 5, "rows_after": 5, "nulls_before0": 1, "nulls_after0": 1, "bounds0": None}

    assert list(metadata_differences(["a"], same)) == []
    assert list(metadata_differences(["a"], {**same, "nulls_after0": None})) == []
    assert list(metadata_differences(["a"], {**same, "nans_before0": 1, "nans_after0": None})) == []
    assert list(metadata_differences(["a"], {**same, "rows_after": 4, "nans_before0": 1, "nans_after0": 0})) == [
        "5 rows became 4",
        "1 NaNs in a became 0",
    ]
    assert list(metadata_differences(["a"], {**same, "nulls_after0": 0, "bounds0": "1 to 7"})) == [
        "1 nulls in a became 0",
        "a was from 1 to 7 and now has values outside of that",
    ]


def test_a_rewrite_of_any_size_is_looked_at_by_the_manifests_unless_somebody_says_how() -> None:
    assert verification_level(a_job()) == "metadata"
    assert verification_level(a_job(verify="full")) == "full"
    with pytest.raises(JobRefused, match="use one of rows, metadata, full, none"):
        verification_level(a_job(verify="some"))


def test_a_deletion_is_ours_by_its_mark_or_by_the_application() -> None:
    table = a_table(
        (1, "append"),
        (2, "delete"),
        (3, "overwrite"),
        (4, "delete"),
        (5, "append"),
        s2={"spark.app.id": "theirs"},
        s3={"nunatak-job": "7", "spark.app.id": "an earlier attempt"},
        s4={"spark.app.id": "ours"},
        s5={"spark.app.id": "ours"},
    )

    assert [each.snapshot_id for each in own_deletes(table, 1, "7", "ours")] == [3, 4]
    assert [each.snapshot_id for each in own_deletes(table, 1, "8", None)] == []


# Failures


def test_a_conflict_is_known_by_the_exceptions_of_the_chain() -> None:
    assert is_conflict(RuntimeError(TRACE))
    assert is_conflict(RuntimeError("(org.apache.iceberg.exceptions.CommitFailedException) Commit failed: late"))
    assert not is_conflict(RuntimeError("java.lang.IllegalStateException: no\n\tat x.ValidationException.of(x.java:1)"))


@pytest.mark.parametrize("error", [JobRefused("no"), JobStopped(), CommitFailed("late"), ConnectionError("gone")])
def test_what_speaks_for_itself_is_told_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)), translate_failures():
        raise error


def test_what_spark_says_becomes_one_line() -> None:
    with (
        pytest.raises(JobFailed, match=r"ValidationException: Cannot commit, found new delete for replaced data file$"),
        translate_failures(),
    ):
        raise RuntimeError(TRACE)


def test_a_conflict_is_tried_again_and_anything_else_is_not() -> None:
    errors: list[Exception] = [RuntimeError(TRACE), RuntimeError(TRACE)]

    def act() -> None:
        if errors:
            raise errors.pop()

    assert retry_on_conflict(a_job(), act) == 2
    errors = [RuntimeError("out of memory"), RuntimeError(TRACE)]
    with pytest.raises(RuntimeError, match="out of memory"):
        retry_on_conflict(a_job(), act)
    errors = [RuntimeError(TRACE)] * (TRIES + 1)
    with pytest.raises(RuntimeError, match="Cannot commit rewrite"):
        retry_on_conflict(a_job(), act)
    assert len(errors) == 1
