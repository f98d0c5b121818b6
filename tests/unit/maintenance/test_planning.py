"""Which jobs are due: a table of cases for every type, what holds one back, and what must be true of every plan."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.errors import BadRequest
from nunatak.maintenance import job_spec, windows
from nunatak.maintenance.facts import Facts, RefFact, SnapshotFact
from nunatak.maintenance.planning import Decision, JobHistory, JobRun, PolicyUse, history_of, plan, requested_job
from nunatak.maintenance.policies import TYPES, Window
from tests.unit.maintenance.builders import DAY_MS, HOUR_MS, MIB, NOW_MS, ORDERS, attached, decide, facts

CROWDED = facts(data_files=2000, data_bytes=200 * MIB, delete_files=0)
UNTOLD = facts(data_files=None, data_bytes=None, delete_files=None)
EMPTY = facts(snapshots=())


@pytest.mark.parametrize(
    ("table", "kind", "fields", "state"),
    [
        (CROWDED, "data-compaction", {}, "due"),
        (CROWDED, "data-compaction", {"enabled": False}, "off"),
        (facts(data_files=4, data_bytes=4), "data-compaction", {}, "idle"),  # too few to be worth it
        (facts(data_files=10, data_bytes=10 * 512 * MIB), "data-compaction", {}, "idle"),  # all large
        (facts(data_files=10, data_bytes=5120 * MIB, delete_files=9), "data-compaction", {}, "due"),
        (UNTOLD, "data-compaction", {}, "idle"),
        (UNTOLD, "data-compaction", {"trigger": {"commits-since-last": 1}}, "due"),
        (EMPTY, "data-compaction", {"trigger": {"commits-since-last": 1}}, "idle"),
        (facts(data_files=100, delete_files=30), "delete-compaction", {}, "due"),
        (facts(data_files=100, delete_files=30, format_version=3), "delete-compaction", {}, "idle"),
        (facts(data_files=1000, delete_files=1), "delete-compaction", {"trigger": {"delete-files": 1}}, "idle"),
        (facts(line=60), "manifest-rewrite", {}, "due"),
        (facts(line=10), "manifest-rewrite", {}, "idle"),
        (facts(line=200, every_ms=DAY_MS), "snapshot-expiry", {}, "due"),
        (facts(line=200, every_ms=1000), "snapshot-expiry", {}, "idle"),  # many, but none is old enough
        (facts(line=3, every_ms=10 * DAY_MS), "snapshot-expiry", {}, "due"),  # few, but long not looked after
        (facts(line=3, every_ms=10 * DAY_MS), "snapshot-expiry", {"min_snapshots_to_keep": 3}, "idle"),
        (facts(line=200, every_ms=DAY_MS, properties={"gc.enabled": "FALSE"}), "snapshot-expiry", {}, "idle"),
        (facts(metadata_bytes=9 * MIB, metadata_log=100), "metadata-retention", {}, "due"),
        (facts(metadata_bytes=9 * MIB, metadata_log=10), "metadata-retention", {}, "idle"),
        (facts(metadata_bytes=1 * MIB, metadata_log=100), "metadata-retention", {}, "idle"),
        (facts(line=2, every_ms=8 * DAY_MS), "orphan-removal", {}, "due"),
        (facts(line=2, every_ms=DAY_MS), "orphan-removal", {}, "idle"),
        (facts(line=2, every_ms=8 * DAY_MS, properties={"gc.enabled": "false"}), "orphan-removal", {}, "idle"),
        (facts(line=20), "statistics", {}, "due"),
        (facts(line=19), "statistics", {}, "idle"),
        (facts(line=2, every_ms=DAY_MS), "row-retention", {"column": "day", "max_age_seconds": 60}, "due"),
        (facts(line=2), "row-retention", {"column": "day", "max_age_seconds": 60}, "idle"),
    ],
)
def test_a_job_is_due_when_its_trigger_is_reached_and_something_is_gained(
    table: Facts, kind: str, fields: dict[str, Any], state: str
) -> None:
    decision = decide(table, kind, **fields)

    assert decision.state == state, decision.text
    assert (decision.spec is not None) == (state == "due")
    assert decision.text


def test_without_a_policy_nothing_is_done() -> None:
    decisions = plan(ORDERS, CROWDED, {}, {}, {}, NOW_MS)

    assert [each.type for each in decisions] == list(TYPES)
    assert {each.state for each in decisions} == {"none"}


def test_a_due_job_says_why_and_what_it_will_change() -> None:
    decision = decide(CROWDED, "data-compaction", strategy="zorder", columns=["a", "b"])

    assert decision.spec is not None
    assert decision.text == "small-file-percent is 100, the limit 30"
    assert decision.spec.reasons == [decision.text]
    assert decision.spec.expected == [job_spec.Gain(of="data files", before=2000, after=1)]
    assert decision.spec.options == {
        "strategy": "zorder",
        "columns": ["a", "b"],
        "target-file-size-bytes": 512 * MIB,
    }
    assert (decision.spec.namespace, decision.spec.table) == (["sales"], "orders")
    assert decision.spec.policy == "warehouse:default"


def test_a_specification_survives_its_way_to_the_worker() -> None:
    spec = decide(CROWDED, "data-compaction").spec

    assert spec is not None
    assert msgspec.json.decode(msgspec.json.encode(spec), type=job_spec.JobSpec) == spec


def test_the_policys_target_counts_unless_the_table_has_its_own() -> None:
    table = facts(data_files=100, data_bytes=100 * 64 * MIB)

    alone = decide(table, "data-compaction", target_file_size_bytes=64 * MIB)
    own = decide(
        facts(
            data_files=100,
            data_bytes=100 * 64 * MIB,
            target_bytes=128 * MIB,
            properties={"write.target-file-size-bytes": str(128 * MIB)},
        ),
        "data-compaction",
        target_file_size_bytes=64 * MIB,
    )

    assert alone.state == "idle"
    assert own.state == "due"
    assert own.gains[0].after == 50
    assert dict(own.overridden) == {"target-file-size-bytes": f"write.target-file-size-bytes={128 * MIB}"}


def test_the_tables_ages_count_in_place_of_the_policys() -> None:
    table = facts(
        line=20,
        every_ms=DAY_MS,
        properties={
            "history.expire.max-snapshot-age-ms": str(10 * DAY_MS),
            "history.expire.min-snapshots-to-keep": "15",
        },
    )

    decision = decide(table, "snapshot-expiry", max_snapshot_age_seconds=86_400)

    assert decision.spec is not None
    assert decision.gains[0].after == 15
    assert decision.spec.options["max-snapshot-age-seconds"] == 864_000
    assert decision.spec.options["older-than-ms"] == NOW_MS - 10 * DAY_MS


def test_a_property_that_is_no_number_overrides_nothing() -> None:
    table = facts(line=20, every_ms=DAY_MS, properties={"history.expire.max-snapshot-age-ms": "five days"})

    assert not decide(table, "snapshot-expiry").overridden


# What holds a job back


@pytest.mark.parametrize(
    ("fields", "history", "load", "because"),
    [
        ({}, JobHistory(open_job=7), PolicyUse(), "open-job"),
        ({}, JobHistory(succeeded_ms=NOW_MS - 60_000), PolicyUse(), "min-interval"),
        ({}, JobHistory(succeeded_ms=NOW_MS - 2 * HOUR_MS), PolicyUse(), None),
        ({}, JobHistory(failures=1, failed_ms=NOW_MS - 60_000), PolicyUse(), "backoff"),
        ({}, JobHistory(failures=1, failed_ms=NOW_MS - 901_000), PolicyUse(), None),
        ({}, JobHistory(failures=2, failed_ms=NOW_MS - 901_000), PolicyUse(), "backoff"),
        ({}, JobHistory(failures=99, failed_ms=NOW_MS - DAY_MS - 1), PolicyUse(), None),
        ({}, JobHistory(succeeded_ms=NOW_MS - 2 * HOUR_MS, unchanged=2), PolicyUse(), None),
        ({}, JobHistory(succeeded_ms=NOW_MS - 2 * HOUR_MS, unchanged=7), PolicyUse(), "backoff"),
        ({"budget": {"window": {"start": "22:00", "end": "06:00"}}}, JobHistory(), PolicyUse(), "window"),
        ({"budget": {"window": {"start": "07:00", "end": "09:00"}}}, JobHistory(), PolicyUse(), None),
        ({"budget": {"concurrent-jobs": 2}}, JobHistory(), PolicyUse(open_jobs=2), "budget"),
        ({"budget": {"concurrent-jobs": 2}}, JobHistory(), PolicyUse(open_jobs=1), None),
        ({"budget": {"bytes-per-hour": 100}}, JobHistory(), PolicyUse(bytes_last_hour=100), "budget"),
        ({"budget": {"bytes-per-hour": 100}}, JobHistory(), PolicyUse(bytes_last_hour=99), None),
    ],
)
def test_a_job_that_is_due_may_have_to_wait(
    fields: dict[str, Any], history: JobHistory, load: PolicyUse, because: str | None
) -> None:
    decision = decide(CROWDED, "data-compaction", history=history, load=load, **fields)

    assert decision.state == ("due" if because is None else "held"), decision.text
    assert [each.because for each in decision.holds] == ([] if because is None else [because])
    assert all(each.until_ms is None or each.until_ms > NOW_MS for each in decision.holds)


def test_all_reasons_to_wait_are_told_at_once() -> None:
    decision = decide(
        CROWDED,
        "data-compaction",
        history=JobHistory(succeeded_ms=NOW_MS - 1000, open_job=3),
        load=PolicyUse(open_jobs=1),
        budget={"concurrent-jobs": 1, "window": {"start": "22:00", "end": "06:00", "days": ["sat"]}},
    )

    assert [each.because for each in decision.holds] == ["open-job", "min-interval", "window", "budget"]


def test_a_job_is_cut_to_what_is_left_of_the_hour() -> None:
    decision = decide(CROWDED, "data-compaction", load=PolicyUse(bytes_last_hour=30), budget={"bytes-per-hour": 100})

    assert decision.spec is not None
    assert decision.spec.max_bytes == 70


def test_commits_are_counted_from_the_last_run_on() -> None:
    table = facts(line=60)
    history = JobHistory(succeeded_ms=NOW_MS - 10 * HOUR_MS)

    decision = decide(table, "manifest-rewrite", history=history, trigger={"commits-since-last": 10})

    assert decision.measures[0].value == 10
    assert decision.state == "due"


# What became of earlier jobs


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], JobHistory()),
        ([JobRun(9, "waiting")], JobHistory(open_job=9)),
        ([JobRun(9, "running"), JobRun(8, "done", 80)], JobHistory(open_job=9, succeeded_ms=80)),
        ([JobRun(9, "failed", 90), JobRun(8, "failed", 80), JobRun(7, "done", 70)], JobHistory(70, 2, 90)),
        ([JobRun(9, "done", 90), JobRun(8, "failed", 80)], JobHistory(90)),
        (
            [JobRun(9, "done", 90, False), JobRun(8, "done", 80, False), JobRun(7, "done", 70)],
            JobHistory(90, unchanged=2),
        ),
        ([JobRun(9, "cancelled", 90), JobRun(8, "done", 80)], JobHistory(80)),
    ],
)
def test_the_history_is_that_of_the_last_runs_in_a_row(runs: list[JobRun], expected: JobHistory) -> None:
    assert history_of(runs) == expected


# On request


def test_a_job_that_is_asked_for_needs_no_trigger_and_no_policy() -> None:
    spec = requested_job(ORDERS, facts(line=2), "snapshot-expiry", None, NOW_MS)

    assert spec.reasons == ["asked for"]
    assert spec.policy is None
    assert spec.options["min-snapshots-to-keep"] == 1


def test_a_job_that_is_asked_for_follows_the_policy_that_counts() -> None:
    spec = requested_job(ORDERS, facts(), "data-compaction", attached("data-compaction", min_input_files=2), NOW_MS)

    assert spec.options["min-input-files"] == 2


@pytest.mark.parametrize(
    ("table", "kind"),
    [(facts(), "row-retention"), (facts(properties={"gc.enabled": "false"}), "orphan-removal"), (EMPTY, "statistics")],
)
def test_what_makes_no_sense_is_refused_although_asked_for(table: Facts, kind: str) -> None:
    with pytest.raises(BadRequest):
        requested_job(ORDERS, table, kind, None, NOW_MS)


# Windows


@pytest.mark.parametrize(
    ("start", "end", "days", "hours_from_now", "is_open"),
    [
        ("07:00", "09:00", None, 0, True),
        ("08:00", "09:00", None, 0, True),
        ("09:00", "10:00", None, 0, False),
        ("07:00", "08:00", None, 0, False),  # it ends with that minute
        ("22:00", "06:00", None, 20, True),  # over midnight: 04:00
        ("22:00", "06:00", ["fri"], 20, True),  # Saturday 04:00 belongs to Friday's
        ("22:00", "06:00", ["sat"], 20, False),
        ("07:00", "09:00", ["mon", "fri"], 0, True),
        ("07:00", "09:00", ["sat"], 0, False),
        ("07:00", "09:00", [], 0, True),
    ],
)
def test_a_window_opens_and_closes_by_utc(start: str, end: str, days: Any, hours_from_now: int, is_open: bool) -> None:
    window = Window(start=start, end=end, days=days)

    assert windows.is_open(window, NOW_MS + hours_from_now * HOUR_MS) is is_open


TIMES = st.builds(lambda hour, minute: f"{hour:02}:{minute:02}", st.integers(0, 23), st.integers(0, 59))
DAYS = st.none() | st.lists(st.sampled_from(["mon", "tue", "wed", "thu", "fri", "sat", "sun"]), unique=True)


@given(TIMES, TIMES, DAYS, st.integers(0, 4_000_000_000_000))
def test_the_next_opening_is_open_and_none_begins_before_it(start: str, end: str, days: Any, now_ms: int) -> None:
    if start == end:
        return
    window = Window(start=start, end=end, days=days)

    opening_ms = windows.next_opening_ms(window, now_ms)

    assert opening_ms > now_ms
    assert windows.is_open(window, opening_ms)
    if not windows.is_open(window, now_ms):
        between = range(now_ms, opening_ms, max(60_000, (opening_ms - now_ms) // 50))
        assert not any(windows.is_open(window, moment) for moment in between)


# Whatever the table


ANY_FACTS = st.builds(
    lambda line, files, size, deletes, version, age, metadata: facts(
        line=line,
        every_ms=age,
        data_files=files,
        data_bytes=size,
        delete_files=deletes,
        format_version=version,
        metadata_bytes=metadata,
    ),
    line=st.integers(0, 30),
    files=st.none() | st.integers(0, 10**6),
    size=st.none() | st.integers(0, 10**15),
    deletes=st.none() | st.integers(0, 10**6),
    version=st.integers(1, 3),
    age=st.integers(1, 100 * DAY_MS),
    metadata=st.integers(1, 10**9),
)
ANY_HISTORY = st.builds(
    JobHistory,
    succeeded_ms=st.none() | st.integers(0, NOW_MS),
    failures=st.integers(0, 100),
    failed_ms=st.none() | st.integers(0, NOW_MS),
    unchanged=st.integers(0, 100),
    open_job=st.none() | st.integers(1, 100),
)
ANY_LOAD = st.builds(PolicyUse, st.integers(0, 5), st.integers(0, 10**12))


def every_policy() -> dict[str, Any]:
    needed = {"row-retention": {"column": "day", "max_age_seconds": 60}}
    budget = {"concurrent-jobs": 3, "bytes-per-hour": 10**9}
    return {kind: attached(kind, budget=budget, **needed.get(kind, {})) for kind in TYPES}


@given(ANY_FACTS, ANY_HISTORY, ANY_LOAD)
def test_a_plan_is_whole_and_keeps_to_its_own_rules(table: Facts, history: JobHistory, load: PolicyUse) -> None:
    every = dict.fromkeys(TYPES, history)

    decisions = plan(ORDERS, table, every_policy(), every, dict.fromkeys(TYPES, load), NOW_MS)

    assert [each.type for each in decisions] == list(TYPES)
    for each in decisions:
        check_rules(each, history, load)


def check_rules(decision: Decision, history: JobHistory, load: PolicyUse) -> None:
    assert decision.text
    assert (decision.state == "due") == (decision.spec is not None)
    assert (decision.state == "held") == bool(decision.holds)
    if decision.spec is not None:
        assert any(each.is_reached for each in decision.measures)
        assert history.open_job is None
        assert load.open_jobs < 3
        assert decision.spec.max_bytes is None or 0 < decision.spec.max_bytes <= 10**9 - load.bytes_last_hour
    for gain in decision.gains:
        if gain.before is not None and gain.after is not None:
            assert 0 <= gain.after <= gain.before


# Expiry


@given(
    st.integers(1, 40),
    st.integers(1, 10),
    st.integers(1, 20 * DAY_MS),
    st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=4),
)
def test_expiry_keeps_what_branches_and_tags_lead_to(
    count: int, keep: int, max_age_ms: int, others: list[tuple[bool, int]]
) -> None:
    refs = [RefFact("main", True, count)]
    for at, (is_branch, snapshot_id) in enumerate(others):
        refs.append(RefFact(f"r{at}", is_branch, min(count, snapshot_id)))
    table = facts(line=count, every_ms=DAY_MS, refs=tuple(refs))

    gone = {each.snapshot_id for each in table.expirable(NOW_MS, max_age_ms, keep)}

    assert not gone & {ref.snapshot_id for ref in refs}
    for ref in refs:
        if ref.is_branch:
            assert not gone & set(range(max(1, ref.snapshot_id - keep + 1), ref.snapshot_id + 1))
    for each in table.snapshots:
        if each.timestamp_ms >= NOW_MS - max_age_ms:
            assert each.snapshot_id not in gone
        elif each.snapshot_id in gone:
            continue
        else:
            assert any(
                ref.snapshot_id - (keep if ref.is_branch else 1) < each.snapshot_id <= ref.snapshot_id for ref in refs
            )


def test_a_snapshot_that_nothing_leads_to_goes_when_it_is_old() -> None:
    staged_old = SnapshotFact(100, 1, NOW_MS - 9 * DAY_MS, "append")
    staged_new = SnapshotFact(101, 1, NOW_MS - HOUR_MS, "append")
    line = facts(line=2).snapshots
    table = facts(snapshots=(staged_old, staged_new, *line))

    gone = table.expirable(NOW_MS, 5 * DAY_MS, 1)

    assert gone == [staged_old]


def test_a_tag_that_has_outlived_its_age_holds_nothing() -> None:
    line = facts(line=10, every_ms=DAY_MS).snapshots
    refs = (RefFact("main", True, 10), RefFact("tag", False, 2, max_ref_age_ms=DAY_MS))

    gone = facts(snapshots=line, refs=refs).expirable(NOW_MS, 3 * DAY_MS, 1)

    assert [each.snapshot_id for each in gone] == [1, 2, 3, 4, 5, 6]
