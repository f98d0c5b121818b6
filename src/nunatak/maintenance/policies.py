"""Maintenance policies as values, and the choice of the effective policy for a table.

A policy is set on a warehouse, a namespace or a table. For each type the nearest policy applies as a whole: the table's
own before its namespace's before the warehouse's. The table's own properties override any policy; see planning.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from nunatak.access import securables
from nunatak.errors import BadRequest
from nunatak.iceberg.conventions import LARGE_METADATA_FILE_BYTES

DAY_SECONDS = 86_400
MAX_NOTE_LENGTH = 1000

Percent = Annotated[float, Meta(gt=0, le=100)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
Size = Annotated[int, Meta(ge=1, le=1 << 50)]
Seconds = Annotated[int, Meta(ge=1, le=10 * 366 * DAY_SECONDS)]
TimeOfDay = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Column = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
# How a job compares the rows before and after: by their number, by metadata, or by every value.
Verify = Literal["rows", "metadata", "full", "none"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
# The minimum protects files that a writer has not committed yet: deleting them would lose data.
OrphanAge = Annotated[int, Meta(ge=3 * DAY_SECONDS, le=10 * 366 * DAY_SECONDS)]
Quarantine = Annotated[int, Meta(ge=DAY_SECONDS, le=10 * 366 * DAY_SECONDS)]
Spelling = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x20\x7f/]+$")]


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parts of a policy; refuses unknown fields, since a misspelled limit would protect nothing."""


class Trigger(Part, frozen=True, kw_only=True):
    """When a job becomes due: as soon as one of the limits is reached. An absent limit is not checked.

    `min_interval_seconds` is the shortest time between two runs, `max_delay_seconds` the longest.
    """

    small_file_percent: Percent | None = None
    delete_files: Count | None = None
    delete_file_percent: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    snapshots: Count | None = None
    metadata_bytes: Size | None = None
    commits_since_last: Count | None = None
    max_delay_seconds: Seconds | None = None
    min_interval_seconds: Seconds | None = None

    @property
    def fires(self) -> bool:
        """Whether the trigger has any limit besides the interval."""
        return any(getattr(self, name) is not None for name in FIRING)


FIRING = tuple(name for name in Trigger.__struct_fields__ if name != "min_interval_seconds")


class Window(Part, frozen=True, kw_only=True):
    """When jobs may start, in UTC; a window may span midnight, and `days` are those on which it starts."""

    start: TimeOfDay
    end: TimeOfDay
    days: list[Day] | None = None


class Budget(Part, frozen=True, kw_only=True):
    """How much the jobs of one policy may use together, over all tables that it applies to."""

    bytes_per_hour: Size | None = None
    concurrent_jobs: Count | None = None
    window: Window | None = None


class Backoff(Part, frozen=True, kw_only=True):
    """How long to wait after failures: doubled for each in a row. The same after `unchanged_runs` without effect."""

    first_seconds: Seconds = 900
    longest_seconds: Seconds = DAY_SECONDS
    unchanged_runs: Count = 3


class Policy(Part, frozen=True, kw_only=True, tag_field="type"):
    """The fields of all policy types; a policy that is not `enabled` also disables inherited policies of its type."""

    usual: ClassVar[Trigger] = Trigger()
    triggers: ClassVar[frozenset[str]] = frozenset()

    enabled: bool = True
    trigger: Trigger = Trigger()
    budget: Budget = Budget()
    backoff: Backoff = Backoff()
    note: Annotated[str, Meta(max_length=MAX_NOTE_LENGTH)] | None = None

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def effective_trigger(self) -> Trigger:
        """Returns its own trigger, or the default one if that has no limits; its own interval, or the default one."""
        least = self.trigger.min_interval_seconds or self.usual.min_interval_seconds
        return msgspec.structs.replace(self.trigger if self.trigger.fires else self.usual, min_interval_seconds=least)

    def check(self) -> None:
        """Checks combinations of fields, which their types cannot; raises BadRequest."""
        for name in FIRING:
            if getattr(self.trigger, name) is not None and name not in {*self.triggers, *ALWAYS}:
                known = ", ".join(sorted(each.replace("_", "-") for each in {*self.triggers, *ALWAYS}))
                raise BadRequest(
                    f"The trigger {name.replace('_', '-')} does not apply to {self.type}", hint=f"Use {known}."
                )
        if self.backoff.longest_seconds < self.backoff.first_seconds:
            raise BadRequest("Invalid backoff: longest-seconds is less than first-seconds")
        if self.budget.window is not None and self.budget.window.start == self.budget.window.end:
            raise BadRequest("Invalid window: it ends when it begins", hint="Leave it out to allow any time.")


ALWAYS = frozenset({"commits_since_last", "max_delay_seconds"})


class DataCompaction(Policy, frozen=True, kw_only=True, tag="data-compaction"):
    """Merges small files, and sorts the rows if `strategy` says so."""

    usual = Trigger(small_file_percent=30, delete_file_percent=30, min_interval_seconds=3600)
    triggers = frozenset({"small_file_percent", "delete_files", "delete_file_percent"})

    strategy: Literal["binpack", "sort", "zorder"] = "binpack"
    columns: list[Column] | None = None
    target_file_size_bytes: Size | None = None
    min_input_files: Count | None = None
    max_file_group_size_bytes: Size | None = None
    verify: Verify | None = None

    def check(self) -> None:
        super().check()
        if self.strategy == "zorder" and not self.columns:
            raise BadRequest("Invalid columns: zorder needs at least one", hint="Name those that filters use.")
        if self.strategy == "binpack" and self.columns:
            raise BadRequest("Invalid columns: binpack keeps the order of rows", hint="Use strategy sort or zorder.")


class DeleteCompaction(Policy, frozen=True, kw_only=True, tag="delete-compaction"):
    """Merges position delete files, and removes those that no longer delete any row."""

    usual = Trigger(delete_files=20, delete_file_percent=10, min_interval_seconds=3600)
    triggers = frozenset({"delete_files", "delete_file_percent"})

    verify: Verify | None = None


class ManifestRewrite(Policy, frozen=True, kw_only=True, tag="manifest-rewrite"):
    """Sorts manifest entries by partition, so that scan planning opens fewer manifests."""

    usual = Trigger(commits_since_last=50, min_interval_seconds=3600)

    verify: Verify | None = None


class SnapshotExpiry(Policy, frozen=True, kw_only=True, tag="snapshot-expiry"):
    """Removes old snapshots, and the files that only they need."""

    usual = Trigger(snapshots=100, max_delay_seconds=DAY_SECONDS, min_interval_seconds=3600)
    triggers = frozenset({"snapshots", "metadata_bytes"})

    max_snapshot_age_seconds: Seconds = 5 * DAY_SECONDS
    min_snapshots_to_keep: Count = 1


class MetadataRetention(Policy, frozen=True, kw_only=True, tag="metadata-retention"):
    """Limits the metadata log, and deletes the metadata files that drop out of it."""

    usual = Trigger(
        metadata_bytes=LARGE_METADATA_FILE_BYTES, max_delay_seconds=7 * DAY_SECONDS, min_interval_seconds=3600
    )
    triggers = frozenset({"metadata_bytes", "snapshots"})

    previous_versions_max: Annotated[int, Meta(ge=1, le=10_000)] = 20
    delete_after_commit: bool = True


class OrphanRemoval(Policy, frozen=True, kw_only=True, tag="orphan-removal"):
    """Deletes unreferenced files in the table's folder that were first seen at least `quarantine_seconds` before.

    Equal spellings of a scheme or authority are declared as `{"s3a": "s3"}`; if spellings differ, nothing is deleted.
    """

    usual = Trigger(max_delay_seconds=7 * DAY_SECONDS, min_interval_seconds=DAY_SECONDS)

    older_than_seconds: OrphanAge = 7 * DAY_SECONDS
    quarantine_seconds: Quarantine = 3 * DAY_SECONDS
    equal_schemes: dict[Spelling, Spelling] | None = None
    equal_authorities: dict[Spelling, Spelling] | None = None


class Statistics(Policy, frozen=True, kw_only=True, tag="statistics"):
    """Counts distinct values of columns for query planners."""

    usual = Trigger(commits_since_last=20, min_interval_seconds=DAY_SECONDS)

    columns: list[Column] | None = None


class RowRetention(Policy, frozen=True, kw_only=True, tag="row-retention"):
    """Deletes rows whose timestamp in `column` is older than `max_age_seconds`."""

    usual = Trigger(max_delay_seconds=DAY_SECONDS, min_interval_seconds=3600)

    column: Column
    max_age_seconds: Seconds


AnyPolicy = (
    DataCompaction
    | DeleteCompaction
    | ManifestRewrite
    | SnapshotExpiry
    | MetadataRetention
    | OrphanRemoval
    | Statistics
    | RowRetention
)
# In the order in which the jobs of one table run: those that delete rows first, those that delete files last.
KINDS: tuple[type[AnyPolicy], ...] = (
    RowRetention,
    DataCompaction,
    DeleteCompaction,
    ManifestRewrite,
    Statistics,
    SnapshotExpiry,
    MetadataRetention,
    OrphanRemoval,
)
TYPES: tuple[str, ...] = tuple(str(kind.__struct_config__.tag) for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Attached:
    """A policy and the securable it is set on; see securables.py."""

    securable: str
    policy: AnyPolicy
    changed_by: str
    changed_ms: int


def parse_policy(body: bytes | str) -> AnyPolicy:
    """Decodes and checks a policy from JSON; raises BadRequest that names the wrong field."""
    try:
        policy: AnyPolicy = msgspec.json.decode(body, type=AnyPolicy)
    except msgspec.ValidationError as error:
        raise BadRequest(f"Invalid policy: {error}", hint=_hint(body)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"Invalid policy: not valid JSON: {error}") from error
    policy.check()
    return policy


def _hint(body: bytes | str) -> str:
    """Returns a hint with the fields of the policy's type, or with all types if it has none."""
    try:
        named = msgspec.json.decode(body, type=dict[str, object]).get("type")
    except msgspec.MsgspecError:
        named = None
    kind = next((each for each in KINDS if each.__struct_config__.tag == named), None)
    if kind is None:
        return f"Its type is one of {', '.join(TYPES)}."
    parts = (
        ("", kind),
        ("trigger.", Trigger),
        ("budget.", Budget),
        ("budget.window.", Window),
        ("backoff.", Backoff),
    )
    fields = [f"{prefix}{name}" for prefix, part in parts for name in part.__struct_encode_fields__]
    return f"{named} has {', '.join(name for name in fields if name not in PARTS)}."


PARTS = ("trigger", "budget", "budget.window", "backoff")


def encode_policy(policy: AnyPolicy) -> bytes:
    """Returns the JSON that `parse_policy` reads, without default values."""
    return msgspec.json.encode(policy)


def check_type(text: str) -> str:
    if text not in TYPES:
        raise BadRequest(f"No such type of policy: {text[:100]!r}", hint=f"Use one of {', '.join(TYPES)}.")
    return text


def nearest(attached: Iterable[Attached], securable: str) -> dict[str, Attached]:
    """Returns the effective policies of `securable` by type; ignores those set on unrelated securables."""
    around = set(securables.chain(securable))
    found: dict[str, Attached] = {}
    for each in attached:
        if each.securable not in around:
            continue
        other = found.get(each.policy.type)
        # Both securables contain the same object: the longer name is the nearer one.
        if other is None or len(each.securable) > len(other.securable):
            found[each.policy.type] = each
    return found
