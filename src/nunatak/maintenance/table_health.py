"""Computes the health of a table: a score from 0 to 100, with the reason and the remedy for every lost point.

Pure: facts in, health out. A check without the facts it needs costs no points, and says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from nunatak.iceberg.conventions import DELETE_AFTER_COMMIT, LARGE_METADATA_FILE_BYTES
from nunatak.maintenance.commands import Subject, sql_identifier
from nunatak.maintenance.facts import MIB, Facts, whole_property
from nunatak.maintenance.layout import MIN_INPUT_FILES

DAY_MS = 86_400_000
WHOLE = 100
COMPACT, EXPIRE = "data-compaction", "snapshot-expiry"

# The most points that each check can cost; their sum is the whole score.
MOST = {
    "small-files": 25,
    "delete-files": 20,
    "compaction-debt": 10,
    "snapshots": 10,
    "metadata-size": 5,
    "metadata-files": 5,
    "manifests": 5,
    "old-snapshots": 5,
    "partition-skew": 5,
    "stale-branches": 5,
    "statistics": 5,
}

# (limit, worst): above `limit` points are lost, at `worst` all that the check can cost.
SMALL_FILES_PERCENT = (20.0, 90.0)  # a fifth of small files costs a scan little, nine of ten take most of its time
READ_AMPLIFICATION = (4.0, 100.0)  # files opened per file that would suffice
DELETE_PERCENT = (10.0, 100.0)  # with one delete file per data file every read is a merge
FILES_PER_MANIFEST = 10.0  # with fewer on average, scan planning opens more manifests than it saves files
MANY_MANIFESTS = (30.0, 1000.0)  # with fewer, scan planning is quick regardless of their content
SKEW = (10.0, 100.0)  # the largest partition relative to the average: one task works while the others wait
SNAPSHOTS = (100.0, 2000.0)  # every load returns all of them
SNAPSHOT_AGE_DAYS = (30.0, 365.0)  # older ones keep files that no query reads any more
METADATA_BYTES = (float(LARGE_METADATA_FILE_BYTES), 64.0 * MIB)
METADATA_FILES = (1000.0, 20_000.0)  # every commit writes one, and each holds the whole metadata of that version
STALE_BRANCH_DAYS = 30
STALE_BRANCHES = (0.0, 5.0)
STATISTICS_FROM_RECORDS = 100_000  # below this a query planner needs no statistics
STATISTICS_BEHIND = (20.0, 200.0)  # commits since they were computed

MAX_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `value` is None if the facts lack it, `points` of at most `most` are lost."""

    name: str
    most: int
    unit: str
    limit: float
    value: float | None
    points: int
    reason: str
    fix: str | None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Health:
    score: int
    checks: tuple[Check, ...]


def health_of(facts: Facts, subject: Subject, now_ms: int) -> Health:
    """Returns the score and all checks, those that cost most first."""
    checks = [check(facts, subject, now_ms) for check in CHECKS]
    checks.sort(key=lambda check: -check.points)
    return Health(max(0, WHOLE - sum(check.points for check in checks)), tuple(checks))


def points_lost(value: float, limit: float, worst: float, most: int) -> int:
    """Returns 0 up to `limit`, `most` from `worst` on, and a linear value of at least 1 in between."""
    if value <= limit:
        return 0
    return min(most, max(1, math.ceil(most * (value - limit) / (worst - limit))))


def _small_files(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = SMALL_FILES_PERCENT
    percent, saved = facts.small_file_percent, facts.files_saved
    most = MOST["small-files"]
    if percent is None:
        return _unknown("small-files", "%", limit, subject, "the writer left the totals out of its summary")
    counted = facts.layout is not None and facts.layout.is_whole
    # Small files cost no points if a rewrite cannot merge them.
    points = points_lost(percent, limit, worst, most) if saved else 0
    size, least = _size(facts.target_bytes), "" if counted else "at least "
    reason = (
        f"{least}{facts.small_files} of {facts.data_files} data files are below three quarters of {size}; "
        f"a rewrite saves {'' if counted else 'about '}{saved}"
    )
    if facts.partitioned and not counted and points:
        reason += " (fewer if they are in many partitions: --deep counts them)"
    return Check(
        "small-files", most, "%", limit, percent, points, reason, _if(points, subject.maintain(COMPACT)), counted
    )


def _compaction_debt(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = READ_AMPLIFICATION
    needed = facts.files_needed
    if needed is None or facts.data_files is None:
        return _unknown("compaction-debt", "x", limit, subject, "the writer left the totals out of its summary")
    factor = facts.data_files / needed if needed and facts.files_saved else 1.0
    points = points_lost(factor, limit, worst, MOST["compaction-debt"])
    reason = f"a full scan opens {facts.data_files} files where {needed} would do"
    fix = _if(points, subject.maintain(COMPACT))
    exact = facts.layout is not None and facts.layout.is_whole
    return Check("compaction-debt", MOST["compaction-debt"], "x", limit, factor, points, reason, fix, exact)


def _delete_files(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = DELETE_PERCENT
    percent = facts.delete_file_percent
    if percent is None:
        return _unknown("delete-files", "%", limit, subject, "the writer left the totals out of its summary")
    # A single delete file costs no points: there is nothing to merge it with.
    points = points_lost(percent, limit, worst, MOST["delete-files"]) if (facts.delete_files or 0) > 1 else 0
    reason = f"{facts.delete_files} delete files for {facts.data_files} data files"
    if facts.delete_files:
        reason += ": every read merges them"
    if facts.equality_deletes:
        reason += f"; {facts.equality_deletes} rows are deleted by value, which is the dearest kind"
    # Only a rewrite of the data removes equality deletes; v3 stores position deletes as one vector per data file.
    positions_only = not facts.equality_deletes and facts.format_version < 3
    fix = _if(points, subject.maintain("delete-compaction" if positions_only else COMPACT))
    return Check("delete-files", MOST["delete-files"], "%", limit, percent, points, reason, fix)


def _manifests(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = MANY_MANIFESTS
    if facts.manifests is None or facts.data_files is None:
        return _unknown("manifests", "manifests", limit, subject, "the summary does not count them")
    files = (facts.data_files + (facts.delete_files or 0)) / max(1, facts.manifests)
    points = points_lost(facts.manifests, limit, worst, MOST["manifests"]) if files < FILES_PER_MANIFEST else 0
    reason = f"{facts.manifests} manifests name {files:.1f} files each"
    fix = _if(points, subject.maintain("manifest-rewrite"))
    return Check("manifests", MOST["manifests"], "manifests", limit, float(facts.manifests), points, reason, fix)


def _skew(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = SKEW
    most = MOST["partition-skew"]
    if not facts.partitioned or not facts.data_files:
        return Check("partition-skew", most, "x", limit, 1.0, 0, "there is one partition", None)
    if facts.layout is None:
        return _unknown("partition-skew", "x", limit, subject, "the metadata does not tell partitions apart")
    # In a table of a few files one task reads everything anyway.
    large = (facts.data_bytes or 0) > MIN_INPUT_FILES * facts.target_bytes
    points = points_lost(facts.layout.skew, limit, worst, most) if large else 0
    reason = (
        f"of {facts.layout.partitions} partitions the largest, {facts.layout.largest_partition or 'the only one'}, "
        f"has {facts.layout.skew:.1f} times the bytes of the average one"
    )
    buckets = min(256, max(2, math.ceil(facts.layout.skew / 2)))
    column = None if facts.splitting_column is None else sql_identifier(facts.splitting_column)
    fix = subject.alter(f"ADD PARTITION FIELD bucket({buckets}, {column})") if column else None
    return Check("partition-skew", most, "x", limit, facts.layout.skew, points, reason, fix if points else None)


def _snapshots(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = SNAPSHOTS
    count = len(facts.snapshots)
    points = points_lost(count, limit, worst, MOST["snapshots"])
    fix = _if(points, subject.maintain(EXPIRE))
    reason = f"{count} snapshots, which every load and commit carries along"
    return Check("snapshots", MOST["snapshots"], "snapshots", limit, float(count), points, reason, fix)


def _old_snapshots(facts: Facts, subject: Subject, now_ms: int) -> Check:
    """Counts only snapshots that an expiry may remove: those that a branch or tag retains are kept on purpose."""
    own_ms = whole_property(facts.properties, MAX_SNAPSHOT_AGE)
    limit = own_ms / DAY_MS if own_ms else SNAPSHOT_AGE_DAYS[0]
    worst = limit * SNAPSHOT_AGE_DAYS[1] / SNAPSHOT_AGE_DAYS[0]
    over = facts.expirable(now_ms, int(limit * DAY_MS), 1)
    oldest = max(((now_ms - each.timestamp_ms) / DAY_MS for each in over), default=0.0)
    points = points_lost(oldest, limit, worst, MOST["old-snapshots"])
    reason = f"{len(over)} snapshots are older than {limit:g} days and hold files that nothing else needs"
    fix = _if(points, subject.maintain(EXPIRE))
    return Check("old-snapshots", MOST["old-snapshots"], "days", limit, oldest, points, reason, fix)


def _metadata_size(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = METADATA_BYTES
    points = points_lost(facts.metadata_bytes, limit, worst, MOST["metadata-size"])
    reason = f"every commit writes a metadata file of {_size(facts.metadata_bytes)}"
    fix = None
    if points and len(facts.snapshots) > SNAPSHOTS[0]:
        fix = subject.maintain(EXPIRE)
    elif points:
        fix = subject.maintain("metadata-retention")
    name = "metadata-size"
    return Check(name, MOST[name], "bytes", limit, float(facts.metadata_bytes), points, reason, fix)


def _metadata_files(facts: Facts, subject: Subject, now_ms: int) -> Check:
    """Counts the metadata files: without a listing only those that the metadata log names are known."""
    limit, worst = METADATA_FILES
    name, named = "metadata-files", facts.metadata_log + 1
    count, least = (named, "at least ") if facts.metadata_files is None else (facts.metadata_files, "")
    points = points_lost(count, limit, worst, MOST[name])
    reason = f"{least}{count} metadata files are in the folder, and the current one references {named}"
    are_deleted = facts.properties.get(DELETE_AFTER_COMMIT, "").lower() == "true"
    fix = subject.maintain("orphan-removal" if are_deleted else "metadata-retention")
    exact = facts.metadata_files is not None
    return Check(name, MOST[name], "files", limit, float(count), points, reason, _if(points, fix), exact)


def _stale_branches(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = STALE_BRANCHES
    stale = facts.stale_branches(now_ms, STALE_BRANCH_DAYS * DAY_MS)
    points = points_lost(len(stale), limit, worst, MOST["stale-branches"])
    reason = f"{len(stale)} branches have not changed for {STALE_BRANCH_DAYS} days and keep their files"
    fix = "; ".join(subject.alter(f"DROP BRANCH {sql_identifier(name)}") for name in stale) or None
    return Check("stale-branches", MOST["stale-branches"], "branches", limit, float(len(stale)), points, reason, fix)


def _statistics(facts: Facts, subject: Subject, now_ms: int) -> Check:
    limit, worst = STATISTICS_BEHIND
    name, most = "statistics", MOST["statistics"]
    if facts.records is not None and facts.records < STATISTICS_FROM_RECORDS:
        return Check(name, most, "commits", limit, 0.0, 0, "a table this small needs none", None)
    behind = facts.commits_since_statistics()
    fix = subject.maintain("statistics")
    if behind is None:
        value = max(worst, float(len(facts.snapshots)))
        return Check(name, most, "commits", limit, value, most, "no statistics: planners guess how to join", fix)
    points = points_lost(behind, limit, worst, most)
    reason = f"the statistics are {behind} commits behind"
    return Check(name, most, "commits", limit, float(behind), points, reason, _if(points, fix))


def _unknown(name: str, unit: str, limit: float, subject: Subject, why: str) -> Check:
    fix = subject.command("health --deep")
    return Check(name, MOST[name], unit, limit, None, 0, f"not measured: {why}", fix, exact=False)


def _if(points: int, fix: str) -> str | None:
    return fix if points else None


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


CHECKS: tuple[Callable[[Facts, Subject, int], Check], ...] = (
    _small_files,
    _delete_files,
    _compaction_debt,
    _snapshots,
    _metadata_size,
    _metadata_files,
    _manifests,
    _old_snapshots,
    _skew,
    _stale_branches,
    _statistics,
)
