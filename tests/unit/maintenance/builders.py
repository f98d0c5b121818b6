"""Tables and policies for the suites of this folder: what matters is said, the rest is filled in."""

from dataclasses import replace
from typing import Any

import msgspec

from nunatak.access import securables
from nunatak.iceberg.identifiers import Identifier
from nunatak.maintenance.commands import Subject
from nunatak.maintenance.facts import Facts, RefFact, SnapshotFact
from nunatak.maintenance.planning import Decision, JobHistory, PolicyUse, plan
from nunatak.maintenance.policies import AnyPolicy, Attached, parse_policy

MIB = 1 << 20
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000  # a Friday, 08:00 UTC

ORDERS = Subject("default", Identifier(("sales",), "orders"))


def snapshots(count: int, *, every_ms: int = HOUR_MS, newest_ms: int = NOW_MS) -> tuple[SnapshotFact, ...]:
    """A line of snapshots numbered from 1, the last of them at `newest_ms`."""
    return tuple(
        SnapshotFact(each, each - 1 or None, newest_ms - (count - each) * every_ms, "append")
        for each in range(1, count + 1)
    )


def facts(*, line: int = 1, every_ms: int = HOUR_MS, **more: Any) -> Facts:
    """A table of one file with so many snapshots in a line; main is at the last."""
    found = more.pop("snapshots", snapshots(line, every_ms=every_ms))
    current = found[-1].snapshot_id if found else None
    refs = more.pop("refs", (RefFact("main", True, current),) if current is not None else ())
    made = Facts(
        table_uuid="81a66874-f008-4315-ba69-a4bc0b8051a2",
        format_version=2,
        metadata_bytes=2000,
        snapshot_id=current,
        properties={},
        data_files=1,
        data_bytes=512 * MIB,
        snapshots=found,
        refs=refs,
    )
    return replace(made, **more)


def policy(kind: str, **fields: Any) -> AnyPolicy:
    """Fields with underscores; parts as dicts with hyphens."""
    body = {"type": kind, **{name.replace("_", "-"): value for name, value in fields.items()}}
    return parse_policy(msgspec.json.encode(body))


def attached(kind: str, **fields: Any) -> Attached:
    return Attached(securables.warehouse("default"), policy(kind, **fields), "ann", 0)


def decide(
    table: Facts,
    kind: str,
    *,
    history: JobHistory | None = None,
    load: PolicyUse | None = None,
    now_ms: int = NOW_MS,
    **fields: Any,
) -> Decision:
    """What is decided about one type of job, by a policy with these fields."""
    decisions = plan(
        ORDERS,
        table,
        {kind: attached(kind, **fields)},
        {kind: history} if history else {},
        {kind: load} if load else {},
        now_ms,
    )
    return next(each for each in decisions if each.type == kind)
