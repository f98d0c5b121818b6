"""What the other jobs decide before they ask Spark for anything."""

from typing import Any

import pytest

from nunatak.maintenance.job_spec import JobSpec, JobType
from nunatak_spark.maintenance import cutoffs, dispatch
from nunatak_spark.maintenance.job_context import JobContext, JobRefused
from nunatak_spark.maintenance.loaded_table import LoadedTable, Snapshot, options_sql
from nunatak_spark.maintenance.metadata_retention import wanted_properties
from nunatak_spark.maintenance.row_retention import delete_condition
from nunatak_spark.maintenance.snapshot_expiry import expirable
from nunatak_spark.maintenance.snapshot_pins import find_pinned_snapshot, pin_snapshot, unpin_snapshot
from nunatak_spark.maintenance.table_statistics import missing_statistics, requested_columns

HOUR_MS = 3_600_000
COLUMNS = [
    {"id": 1, "name": "id", "type": "long"},
    {"id": 2, "name": "day", "type": "date"},
    {"id": 3, "name": "at`", "type": "timestamptz"},
    {"id": 4, "name": "clock", "type": "timestamp"},
    {"id": 5, "name": "tags", "type": {"type": "list"}},
]


class Recorder:
    """Stands where the client does, and keeps what would be committed."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []

    def commit_table(self, _: Any, __: Any, updates: list[dict[str, Any]]) -> dict[str, Any]:
        self.updates += updates
        return {}


def a_job(kind: JobType = "data-compaction", now_ms: int = 0, **named: Any) -> JobContext:
    spec = JobSpec(
        type=kind,
        warehouse="w",
        namespace=["n"],
        table="t",
        table_uuid="u",
        options={name.replace("_", "-"): value for name, value in named.items()},
    )
    client: Any = Recorder()
    return JobContext(spark=None, client=client, catalog="lake", spec=spec, job="7", now_ms=lambda: now_ms)  # type: ignore[arg-type]


def a_table(
    snapshots: int = 0, *, refs: dict[str, Any] | None = None, parents: bool = True, **metadata: Any
) -> LoadedTable:
    """Snapshots 1, 2, … one hour apart from time zero, each the parent of the next."""
    made = {
        number: Snapshot(
            number, number - 1 if parents and number > 1 else None, (number - 1) * HOUR_MS, number, "append", {}
        )
        for number in range(1, snapshots + 1)
    }
    main = {"main": {"type": "branch", "snapshot-id": snapshots}} if snapshots else {}
    named = {name.replace("_", "-"): value for name, value in metadata.items()}
    found = {
        "current-snapshot-id": snapshots or None,
        "refs": {**main, **(refs or {})},
        "schemas": [{"schema-id": 0, "fields": COLUMNS}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        **named,
    }
    return LoadedTable("`lake`.`n`.`t`", found, made)


def test_every_type_of_job_is_done_by_somebody() -> None:
    assert set(dispatch.MAINTENANCE) == set(JobType.__args__)  # type: ignore[attr-defined]


# Expiry


def test_main_keeps_what_is_young_and_at_least_so_many() -> None:
    table = a_table(5)

    assert expirable(table, 2 * HOUR_MS, 1, 5 * HOUR_MS) == {1, 2}
    assert expirable(table, 2 * HOUR_MS, 4, 5 * HOUR_MS) == {1}
    assert expirable(table, 99 * HOUR_MS, 1, 99 * HOUR_MS) == {1, 2, 3, 4}
    assert expirable(a_table(), 99, 1, 99) == set()


def test_a_tag_keeps_its_snapshot_while_it_lives() -> None:
    pinned = {"nunatak-pin-7": {"type": "tag", "snapshot-id": 2, "max-ref-age-ms": 5 * HOUR_MS}}

    assert expirable(a_table(5, refs=pinned), 99 * HOUR_MS, 1, 6 * HOUR_MS) == {1, 3, 4}
    assert expirable(a_table(5, refs=pinned), 99 * HOUR_MS, 1, 6 * HOUR_MS + 1) == {1, 2, 3, 4}


def test_a_branch_goes_by_its_own_rules_if_it_has_some() -> None:
    branch = {"side": {"type": "branch", "snapshot-id": 4, "min-snapshots-to-keep": 2, "max-snapshot-age-ms": 1}}

    assert expirable(a_table(5, refs=branch), 99 * HOUR_MS, 1, 99 * HOUR_MS) == {1, 2}


def test_what_nothing_leads_to_is_kept_while_it_is_young() -> None:
    apart = a_table(5, parents=False)

    assert expirable(apart, 2 * HOUR_MS, 1, 9 * HOUR_MS) == {1, 2}


# Pins


def test_the_age_of_a_pin_counts_from_the_time_of_its_snapshot() -> None:
    work, table = a_job(now_ms=10 * HOUR_MS), a_table(3)

    pin_snapshot(work, table.snapshots[3])
    unpin_snapshot(work, a_table(3, refs={"nunatak-pin-7": {"type": "tag", "snapshot-id": 3}}))
    unpin_snapshot(work, table)

    set_ref, removed = work.client.updates  # type: ignore[attr-defined]
    assert (set_ref["ref-name"], set_ref["snapshot-id"]) == ("nunatak-pin-7", 3)
    assert set_ref["max-ref-age-ms"] == 8 * HOUR_MS + HOUR_MS
    assert removed == {"action": "remove-snapshot-ref", "ref-name": "nunatak-pin-7"}


def test_a_later_attempt_finds_the_pin_of_its_own_job_only() -> None:
    work = a_job()
    table = a_table(3, refs={"nunatak-pin-8": {"type": "tag", "snapshot-id": 1}})

    assert find_pinned_snapshot(work, table) is None
    mine = a_table(3, refs={"nunatak-pin-7": {"type": "tag", "snapshot-id": 2}})
    assert find_pinned_snapshot(work, mine) == mine.snapshots[2]


# Statistics, metadata and rows


def test_statistics_are_missing_until_the_current_snapshot_has_them_for_each_column() -> None:
    made = [{"snapshot-id": 2, "blob-metadata": [{"fields": [1]}, {"fields": [2]}]}]

    assert missing_statistics(a_table(), []) == []
    assert missing_statistics(a_table(2), []) == ["table"]
    assert missing_statistics(a_table(3, statistics=made), []) == ["table"]
    assert missing_statistics(a_table(2, statistics=made), ["id", "day"]) == []
    assert missing_statistics(a_table(2, statistics=made), ["clock"]) == ["table"]
    by_day = [{"spec-id": 0, "fields": [{"name": "day"}]}]
    assert missing_statistics(a_table(2, statistics=made, partition_specs=by_day), []) == ["partition"]
    whole = a_table(2, statistics=made, partition_specs=by_day, partition_statistics=[{"snapshot-id": 2}])
    assert missing_statistics(whole, []) == []


def test_statistics_are_made_of_plain_columns() -> None:
    assert requested_columns(a_job("statistics", columns=["id"]), a_table()) == ["id"]
    with pytest.raises(JobRefused, match="no plain column tags, size"):
        requested_columns(a_job("statistics", columns=["tags", "size"]), a_table())


def test_only_properties_that_differ_are_set() -> None:
    table = a_table(properties={"write.metadata.previous-versions-max": "20"})

    assert wanted_properties(a_job(), table) == {"write.metadata.delete-after-commit.enabled": "true"}
    assert wanted_properties(a_job(previous_versions_max=5, delete_after_commit=False), table) == {
        "write.metadata.previous-versions-max": "5",
        "write.metadata.delete-after-commit.enabled": "false",
    }


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        ("day", "`day` < DATE '1970-01-01'"),
        ("at`", "`at``` < TIMESTAMP '1970-01-01 23:59:59.999Z'"),
        ("clock", "`clock` < TIMESTAMP_NTZ '1970-01-01 23:59:59.999'"),
    ],
)
def test_old_rows_by_the_type_of_their_column(column: str, condition: str) -> None:
    work = a_job("row-retention", now_ms=2 * 86_400_000 - 1, column=column, max_age_seconds=86_400)

    assert delete_condition(work, a_table()) == condition


def test_what_was_planned_as_old_stays_so_however_late_the_job_begins() -> None:
    planned = a_job("snapshot-expiry", now_ms=10**9, older_than_ms=5, max_snapshot_age_seconds=1)

    assert cutoffs.cutoff_ms(planned, "max-snapshot-age-seconds") == 5
    assert cutoffs.cutoff_ms(a_job(now_ms=10**9, max_age_seconds=7), "max-age-seconds") == 10**9 - 7000
    with pytest.raises(JobRefused, match="max-age-seconds is missing"):
        cutoffs.cutoff_ms(a_job(), "max-age-seconds")


def test_the_options_of_a_procedure_are_quoted() -> None:
    assert options_sql({"a": 1, "it's": "b\\"}) == r"map('a', '1', 'it\'s', 'b\\')"
