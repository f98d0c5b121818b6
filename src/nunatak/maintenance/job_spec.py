"""The specification of a maintenance job: JSON from the server that plans it to the worker that runs it."""

from typing import Any, Literal

import msgspec

JobType = Literal[
    "row-retention",
    "data-compaction",
    "delete-compaction",
    "manifest-rewrite",
    "statistics",
    "snapshot-expiry",
    "metadata-retention",
    "orphan-removal",
]


class Gain(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The expected effect of a job: the number of things before and after; None if unknown."""

    of: str
    before: int | None = None
    after: int | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One job on one table.

    `snapshot_id` is the snapshot at planning time; a job may also run on a later one. `options` are those of the
    policy, overridden by the table's own properties, with the names and units of the policy. A job stops cleanly before
    it has rewritten more than `max_bytes`.
    """

    type: JobType
    warehouse: str
    namespace: list[str]
    table: str
    table_uuid: str
    snapshot_id: int | None = None
    format_version: int = 2
    options: dict[str, Any] = {}
    max_bytes: int | None = None
    expected: list[Gain] = []
    reasons: list[str] = []
    policy: str | None = None  # the securable it is set on; None if a principal requested the job
    version: int = 1
