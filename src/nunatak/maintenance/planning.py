"""Plans the jobs of a table: policies and facts in, decisions with their reasons out. No clock, no I/O."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from nunatak.access import securables
from nunatak.errors import BadRequest
from nunatak.iceberg.conventions import DELETE_AFTER_COMMIT, PREVIOUS_VERSIONS_MAX
from nunatak.maintenance import windows
from nunatak.maintenance.commands import Subject
from nunatak.maintenance.facts import TARGET_FILE_SIZE, Facts, whole_property
from nunatak.maintenance.job_spec import Gain, JobSpec, JobType
from nunatak.maintenance.policies import (
    KINDS,
    TYPES,
    AnyPolicy,
    Attached,
    DataCompaction,
    DeleteCompaction,
    ManifestRewrite,
    MetadataRetention,
    OrphanRemoval,
    Policy,
    RowRetention,
    SnapshotExpiry,
    Statistics,
)

HOUR_MS = 3_600_000
ON_REQUEST = "asked for"
State = Literal["due", "held", "idle", "off", "none"]

# The table properties that override a policy's fields, and the divisor that converts each to the field's unit.
OVERRIDES: dict[str, dict[str, tuple[str, int]]] = {
    "data-compaction": {"target-file-size-bytes": (TARGET_FILE_SIZE, 1)},
    "snapshot-expiry": {
        "max-snapshot-age-seconds": ("history.expire.max-snapshot-age-ms", 1000),
        "min-snapshots-to-keep": ("history.expire.min-snapshots-to-keep", 1),
    },
    "metadata-retention": {"previous-versions-max": (PREVIOUS_VERSIONS_MAX, 1)},
}


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The results of the jobs of one type on one table; counts are of the latest consecutive jobs."""

    succeeded_ms: int | None = None
    failures: int = 0
    failed_ms: int | None = None
    unchanged: int = 0
    open_job: int | None = None  # waiting or running


@dataclass(frozen=True, slots=True)
class JobRun:
    """One stored job; `state` is one of waiting, running, done, failed and cancelled."""

    job_id: int
    state: str
    finished_ms: int | None = None
    changed: bool = True


def history_of(runs: Iterable[JobRun]) -> JobHistory:
    """Summarizes the jobs of one type on one table, given newest first."""
    found = JobHistory()
    for run in runs:
        if run.state in ("waiting", "running"):
            found = replace(found, open_job=found.open_job or run.job_id)
        elif run.state == "failed" and found.succeeded_ms is None:  # failures before the last success do not count
            failed_ms = run.finished_ms if found.failed_ms is None else found.failed_ms
            found = replace(found, failures=found.failures + 1, failed_ms=failed_ms)
        elif run.state == "done":
            first = found.succeeded_ms is None
            found = replace(found, succeeded_ms=run.finished_ms if first else found.succeeded_ms)
            if run.changed:  # ends the row of runs without effect, so older jobs no longer matter
                break
            found = replace(found, unchanged=found.unchanged + 1)
    return found


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """The budget that one policy uses: its waiting and running jobs, and the bytes rewritten in the last hour."""

    open_jobs: int = 0
    bytes_last_hour: int = 0

    def with_job(self, spec: JobSpec, size_bytes: int) -> "PolicyUse":
        return PolicyUse(self.open_jobs + 1, self.bytes_last_hour + min(size_bytes, spec.max_bytes or size_bytes))


@dataclass(frozen=True, slots=True)
class Measure:
    """The limit of a trigger and the current value; None if the metadata does not contain it."""

    trigger: str
    value: float | None
    limit: float

    @property
    def is_reached(self) -> bool:
        return self.value is not None and self.value >= self.limit

    def __str__(self) -> str:
        return f"{self.trigger} is {self.value:g}, the limit {self.limit:g}" if self.value is not None else self.trigger


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a due job has to wait; `until_ms` is None if the end is unknown."""

    because: Literal["window", "budget", "backoff", "min-interval", "open-job"]
    text: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one type of job: due, held although due, idle, off (not enabled), or none (no policy)."""

    type: str
    state: State
    text: str
    attached: Attached | None = None
    measures: tuple[Measure, ...] = ()
    holds: tuple[Hold, ...] = ()
    overridden: Mapping[str, str] = field(default_factory=dict)
    gains: tuple[Gain, ...] = ()
    size_bytes: int = 0
    spec: JobSpec | None = None


def plan(
    subject: Subject,
    facts: Facts,
    attached: Mapping[str, Attached],
    histories: Mapping[str, JobHistory],
    loads: Mapping[str, PolicyUse],
    now_ms: int,
) -> list[Decision]:
    """Returns a decision for every type, in the order in which the jobs would run; `attached` are the effective
    policies by type, and `loads` the budget that each of them uses already."""
    return [
        _decide(
            subject,
            facts,
            kind,
            attached.get(kind),
            histories.get(kind, JobHistory()),
            loads.get(kind, PolicyUse()),
            now_ms,
        )
        for kind in TYPES
    ]


def requested_job(subject: Subject, facts: Facts, kind: str, attached: Attached | None, now_ms: int) -> JobSpec:
    """Returns the job that a caller requests, regardless of triggers; options come from the effective policy, or are
    the defaults. Raises BadRequest if the job cannot be applied to the table."""
    policy = attached.policy if attached is not None else _usual(kind)
    case = _Case(subject, facts, policy, now_ms)
    refusal = case.inapplicable()
    if refusal:
        raise BadRequest(f"{kind} cannot be done to {subject.identifier}: {refusal}")
    return case.spec(None, [ON_REQUEST], None)


def _usual(kind: str) -> AnyPolicy:
    if kind == "row-retention":
        raise BadRequest(
            "Which rows to delete is not known",
            hint="Set a policy first: `nunatak policy set row-retention OBJECT column=… max-age-seconds=…`.",
        )
    made = next(each for each in KINDS if each.__struct_config__.tag == kind)
    return cast(Callable[[], AnyPolicy], made)()


def _decide(
    subject: Subject,
    facts: Facts,
    kind: str,
    attached: Attached | None,
    history: JobHistory,
    load: PolicyUse,
    now_ms: int,
) -> Decision:
    if attached is None:
        return Decision(kind, "none", "no policy applies")
    policy = attached.policy
    if not policy.enabled:
        where = securables.format_securable(attached.securable)
        return Decision(kind, "off", f"the policy of {where} is not enabled", attached)
    case = _Case(subject, facts, policy, now_ms)
    overridden = case.overridden()
    unfit = case.inapplicable()
    if unfit:
        return Decision(kind, "idle", unfit, attached, overridden=overridden)
    measures = case.measures(history)
    gains, size_bytes = case.gains(), case.size_bytes()
    idle = _idle(measures, gains)
    if idle is not None:
        return Decision(kind, "idle", idle, attached, measures, (), overridden, gains)
    reasons = [str(each) for each in measures if each.is_reached]
    holds, max_bytes = _holds(policy, history, load, size_bytes, now_ms)
    if holds:
        text = f"{'; '.join(reasons)}, but {'; '.join(each.text for each in holds)}"
        return Decision(kind, "held", text, attached, measures, holds, overridden, gains, size_bytes)
    spec = case.spec(attached, reasons, max_bytes)
    return Decision(kind, "due", "; ".join(reasons), attached, measures, (), overridden, gains, size_bytes, spec)


def _idle(measures: tuple[Measure, ...], gains: tuple[Gain, ...]) -> str | None:
    """Returns why no job is needed, or None if one is."""
    if not any(each.is_reached for each in measures):
        return "below every limit: " + "; ".join(str(each) for each in measures)
    if gains and all(each.before is not None and each.before == each.after for each in gains):
        return "nothing to gain: " + ", ".join(f"{each.before} {each.of} would stay" for each in gains)
    return None


# Reasons to hold a due job


def _holds(
    policy: AnyPolicy, history: JobHistory, load: PolicyUse, size_bytes: int, now_ms: int
) -> tuple[tuple[Hold, ...], int | None]:
    """Returns all reasons to wait, and the bytes that the job may rewrite if there are none (None: no limit)."""
    found: list[Hold] = []
    if history.open_job is not None:
        found.append(Hold("open-job", f"job {history.open_job} is waiting or running"))
    interval, last = policy.effective_trigger.min_interval_seconds, history.succeeded_ms
    if interval is not None and last is not None and now_ms < last + interval * 1000:
        text = f"the last run was {(now_ms - last) // 1000} seconds ago, the least interval is {interval}"
        found.append(Hold("min-interval", text, last + interval * 1000))
    backoff = _backoff(policy, history, now_ms)
    if backoff is not None:
        found.append(backoff)
    window = policy.budget.window
    if window is not None and not windows.is_open(window, now_ms):
        text = f"jobs begin between {window.start} and {window.end} UTC"
        if window.days:
            text += f" on {', '.join(window.days)}"
        found.append(Hold("window", text, windows.next_opening_ms(window, now_ms)))
    most = policy.budget.concurrent_jobs
    if most is not None and load.open_jobs >= most:
        found.append(Hold("budget", f"{load.open_jobs} jobs of this policy are waiting or running, of at most {most}"))
    left = None
    if policy.budget.bytes_per_hour is not None and size_bytes:
        left = policy.budget.bytes_per_hour - load.bytes_last_hour
        if left <= 0:
            text = f"{load.bytes_last_hour} bytes were rewritten within the hour, of {policy.budget.bytes_per_hour}"
            found.append(Hold("budget", text))
    return tuple(found), left


def _backoff(policy: AnyPolicy, history: JobHistory, now_ms: int) -> Hold | None:
    backoff = policy.backoff
    if history.failures and history.failed_ms is not None:
        # The exponent is capped to keep the product small; `longest_seconds` applies long before.
        wait_ms = 1000 * min(backoff.longest_seconds, backoff.first_seconds * 2 ** min(history.failures - 1, 40))
        if now_ms < history.failed_ms + wait_ms:
            text = f"it failed {history.failures} times in a row"
            return Hold("backoff", text, history.failed_ms + wait_ms)
    over = history.unchanged - backoff.unchanged_runs
    if over >= 0 and history.succeeded_ms is not None:
        wait_ms = 1000 * min(backoff.longest_seconds, backoff.first_seconds * 2 ** min(over, 40))
        if now_ms < history.succeeded_ms + wait_ms:
            text = f"the last {history.unchanged} runs changed nothing"
            return Hold("backoff", text, history.succeeded_ms + wait_ms)
    return None


# One type of job on one table


class _Case:
    """A policy applied to a table; the table's own properties override the policy's options."""

    def __init__(self, subject: Subject, facts: Facts, policy: AnyPolicy, now_ms: int) -> None:
        self._subject = subject
        self._policy = policy
        self._now_ms = now_ms
        self._options = self._with_overrides(facts)
        target = self._options.get("target-file-size-bytes")
        self._facts = replace(facts, target_bytes=target) if target else facts

    def _with_overrides(self, facts: Facts) -> dict[str, Any]:
        own = {name for name in self._policy.__struct_fields__ if name not in Policy.__struct_fields__}
        options = {name.replace("_", "-"): getattr(self._policy, name) for name in sorted(own)}
        self._overridden: dict[str, str] = {}
        for option, (name, unit) in OVERRIDES.get(self._policy.type, {}).items():
            value = whole_property(facts.properties, name)
            if value is not None:
                # At least 1: a property of less than the unit must not become 0, which no policy allows.
                options[option] = max(1, value // unit)
                self._overridden[option] = f"{name}={facts.properties[name]}"
        if isinstance(self._policy, MetadataRetention) and DELETE_AFTER_COMMIT in facts.properties:
            options["delete-after-commit"] = facts.properties[DELETE_AFTER_COMMIT].lower() == "true"
            self._overridden["delete-after-commit"] = f"{DELETE_AFTER_COMMIT}={facts.properties[DELETE_AFTER_COMMIT]}"
        return {name: value for name, value in options.items() if value is not None}

    def overridden(self) -> Mapping[str, str]:
        return self._overridden

    def inapplicable(self) -> str | None:
        """Returns why this type of job is useless or forbidden for the table, or None."""
        facts = self._facts
        refusal = facts.shadow.refusal_of(self._policy.type) if facts.shadow is not None else None
        if refusal is not None:
            return refusal
        match self._policy:
            case MetadataRetention():
                if {"previous-versions-max", "delete-after-commit"} <= self._overridden.keys():
                    return "the table's own properties see to it with every commit"
                return None
            case SnapshotExpiry() | OrphanRemoval() if facts.properties.get("gc.enabled", "true").lower() == "false":
                return "gc.enabled=false: the files are not the table's alone"
            case DeleteCompaction() if facts.format_version >= 3:
                return "format v3 keeps one deletion vector for each file: there is nothing to join"
            case _:
                return "nothing was written yet" if facts.snapshot_id is None else None

    def measures(self, history: JobHistory) -> tuple[Measure, ...]:
        """Returns the current value and the limit of each condition of the trigger."""
        trigger, facts = self._policy.effective_trigger, self._facts
        oldest_ms = min((each.timestamp_ms for each in facts.snapshots), default=self._now_ms)
        # A table without a successful job counts its delay from the oldest snapshot.
        since_ms = history.succeeded_ms if history.succeeded_ms is not None else oldest_ms
        values: dict[str, tuple[float | None, float | None]] = {
            "small-file-percent": (facts.small_file_percent, trigger.small_file_percent),
            "delete-files": (facts.delete_files, trigger.delete_files),
            "delete-file-percent": (facts.delete_file_percent, trigger.delete_file_percent),
            "snapshots": (len(facts.snapshots), trigger.snapshots),
            "metadata-bytes": (facts.metadata_bytes, trigger.metadata_bytes),
            "commits-since-last": (facts.commits_since(history.succeeded_ms), trigger.commits_since_last),
            "max-delay-seconds": ((self._now_ms - since_ms) // 1000, trigger.max_delay_seconds),
        }
        return tuple(Measure(name, value, limit) for name, (value, limit) in values.items() if limit is not None)

    def gains(self) -> tuple[Gain, ...]:
        """Returns the expected reductions, as far as the metadata allows an estimate."""
        facts = self._facts
        match self._policy:
            case DataCompaction():
                files = None if facts.data_files is None else facts.data_files - facts.files_saved
                gains = [Gain(of="data files", before=facts.data_files, after=files)]
                if facts.delete_files:
                    gains.append(Gain(of="delete files", before=facts.delete_files, after=0))
                return tuple(gains)
            case DeleteCompaction():
                after = None if facts.delete_files is None else min(facts.delete_files, facts.partitions_at_least)
                return (Gain(of="delete files", before=facts.delete_files, after=after),)
            case ManifestRewrite():
                return (Gain(of="manifests", before=facts.manifests),)
            case SnapshotExpiry():
                count = len(facts.snapshots)
                over = facts.expirable(
                    self._now_ms,
                    self._options["max-snapshot-age-seconds"] * 1000,
                    self._options["min-snapshots-to-keep"],
                )
                return (Gain(of="snapshots", before=count, after=count - len(over)),)
            case MetadataRetention():
                most = self._options["previous-versions-max"]
                return (Gain(of="metadata files", before=facts.metadata_log, after=min(most, facts.metadata_log)),)
            case _:
                return ()

    def size_bytes(self) -> int:
        """Returns the bytes that the job would rewrite."""
        return self._facts.small_file_bytes if isinstance(self._policy, DataCompaction) else 0

    def spec(self, attached: Attached | None, reasons: list[str], max_bytes: int | None) -> JobSpec:
        options = dict(self._options)
        match self._policy:
            case SnapshotExpiry():
                options["older-than-ms"] = self._now_ms - options["max-snapshot-age-seconds"] * 1000
            case OrphanRemoval():
                options["older-than-ms"] = self._now_ms - options["older-than-seconds"] * 1000
            case RowRetention():
                options["older-than-ms"] = self._now_ms - options["max-age-seconds"] * 1000
            case DataCompaction():
                options["target-file-size-bytes"] = self._facts.target_bytes
            case DeleteCompaction() | ManifestRewrite() | MetadataRetention() | Statistics():
                pass
        identifier = self._subject.identifier
        return JobSpec(
            type=cast(JobType, self._policy.type),
            warehouse=self._subject.warehouse,
            namespace=list(identifier.namespace),
            table=identifier.name,
            table_uuid=self._facts.table_uuid,
            snapshot_id=self._facts.snapshot_id,
            format_version=self._facts.format_version,
            options=options,
            max_bytes=max_bytes,
            expected=list(self.gains()),
            reasons=reasons,
            policy=None if attached is None else securables.format_securable(attached.securable),
        )
