"""What a maintenance job is told to do, as JSON between the server that plans it and the worker that does it."""

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
    """What a job is expected to change: how many there are, and how many there will be; None if that is not known."""

    of: str
    before: int | None = None
    after: int | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One job on one table.

    `snapshot_id` is what was planned for: a job finds a later one as good. `options` are the policy's, with the table's
    own properties in place of what they override; their names and units are those of the policy. A job stops in good
    order before it has rewritten more than `max_bytes`.
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
    policy: str | None = None  # what it is set on; None if somebody asked for the job
    version: int = 1


def parse_job_spec(body: bytes | str) -> JobSpec:
    """ValueError, by its base, if it is none."""
    return msgspec.json.decode(body, type=JobSpec)
