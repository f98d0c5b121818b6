"""Request and response bodies of the maintenance routes: health, policies, plans, jobs, shadows and folders."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nunatak.api.wire import PagedResponse, Wire
from nunatak.catalog.shadows import Shadow
from nunatak.iceberg.shapes import Long, described_by
from nunatak.maintenance.job_spec import Gain, JobSpec
from nunatak.maintenance.policies import TYPES, AnyPolicy

Place = Annotated[str, Meta(description="`warehouse:WH`, `namespace:WH/A/B` or `table:WH/A/T`.")]
PolicyType = Annotated[str, Meta(extra_json_schema={"enum": sorted(TYPES)})]
PolicyJson = Annotated[AnyPolicy, described_by("Policy")]
Count = Annotated[Long | None, Meta(description="Null if the writer did not report it.")]
Worker = Annotated[str, Meta(description="A name that the worker chooses, the same in all its requests for a job.")]
AnyJson = msgspec.Raw | None


# Health


class Check(Wire, frozen=True, kw_only=True):
    check: str
    value: Annotated[float | None, Meta(description="The measured value; null if it could not be measured.")]
    limit: Annotated[float, Meta(description="Up to this value the score loses no points.")]
    unit: str
    points: Annotated[Long, Meta(description="The points it costs.")]
    most_points: Annotated[Long, Meta(description="The most points it can cost.")]
    exact: Annotated[bool, Meta(description="False for an estimate from totals; `deep` counts.")]
    reason: str
    fix: Annotated[str | None, Meta(description="The command or statement that fixes it.")]


class TableFacts(Wire, frozen=True, kw_only=True):
    table_uuid: str
    snapshot_id: Long | None
    data_files: Count
    data_bytes: Count
    delete_files: Count
    records: Count
    manifests: Count
    snapshots: Long
    metadata_bytes: Long
    metadata_files: Annotated[
        Long | None, Meta(description="The number of older metadata files; null if the folder was not listed.")
    ]
    target_file_size_bytes: Long
    partitions: Long | UnsetType = UNSET
    files_by_size: Annotated[
        list[Long] | UnsetType, Meta(description="Below 8, 32, 128 and 512 MiB, and larger; only if `deep`.")
    ] = UNSET


class TableHealth(Wire, frozen=True, kw_only=True):
    securable: Place
    score: Annotated[Long | UnsetType, Meta(description="From 0 to 100: 100 minus the points of the checks.")] = UNSET
    facts: TableFacts | UnsetType = UNSET
    checks: Annotated[list[Check] | UnsetType, Meta(description="The costliest first.")] = UNSET
    error: Annotated[
        str | UnsetType, Meta(description="Instead of all other fields: why the table could not be read.")
    ] = UNSET


class HealthResponse(PagedResponse, frozen=True):
    tables: list[TableHealth]


# Policies and plans


class SetPolicyRequest(Wire, frozen=True):
    securable: Place
    policy: Annotated[msgspec.Raw, described_by("Policy")]


class AttachedPolicy(Wire, frozen=True):
    securable: Annotated[str, Meta(description="The securable it is set on.")]
    policy: PolicyJson
    changed_by: str
    changed_ms: Long


class ListPoliciesResponse(PagedResponse, frozen=True):
    policies: list[AttachedPolicy]


class EffectivePoliciesResponse(Wire, frozen=True):
    policies: list[AttachedPolicy]


class Measure(Wire, frozen=True):
    trigger: str
    value: float | None
    limit: float
    reached: bool


class Hold(Wire, frozen=True):
    because: Literal["window", "budget", "backoff", "min-interval", "open-job"]
    text: str
    until_ms: Long | None


class Decision(Wire, frozen=True, kw_only=True):
    type: PolicyType
    state: Annotated[
        Literal["due", "held", "idle", "off", "none"],
        Meta(description="`held`: due, but it has to wait; `none`: no policy applies."),
    ]
    because: str
    policy_on: Annotated[str | None, Meta(description="The securable of the policy that applies.")]
    measures: list[Measure]
    holds: list[Hold]
    overridden_by: Annotated[
        dict[str, str], Meta(description="Fields of the policy, with the table property that overrides each.")
    ]
    expected: tuple[Gain, ...]
    job: JobSpec | None


class TablePlan(Wire, frozen=True, kw_only=True):
    securable: Place
    facts: TableFacts | UnsetType = UNSET
    decisions: Annotated[
        list[Decision] | UnsetType, Meta(description="One per job type, in the order in which the jobs run.")
    ] = UNSET
    error: Annotated[
        str | UnsetType, Meta(description="Instead of all other fields: why the table could not be read.")
    ] = UNSET


class PlanResponse(PagedResponse, frozen=True):
    tables: list[TablePlan]


# Folders and shadows


class NeighboursResponse(Wire, frozen=True, kw_only=True):
    location: Annotated[str, Meta(description="The table's folder.")]
    count: Annotated[
        Long,
        Meta(description="How many other tables keep files in or around its locations, or are another name of it."),
    ]
    neighbours: Annotated[list[str], Meta(description="Those that the caller may see.")]
    places: Annotated[
        list[str],
        Meta(description="The table's own locations: its location, and the write locations in its properties."),
    ]
    shadow: Shadow | None


class FoldersRequest(Wire, frozen=True):
    securable: Place
    folders: Annotated[list[str], Meta(max_length=10_000, description="Folders in the table's metadata.")]


class FoldersResponse(Wire, frozen=True):
    foreign: Annotated[list[str], Meta(description="Folders inside another live table's or view's locations.")]
    outside: Annotated[list[str], Meta(description="Folders outside the locations of all tables and views.")]


class SetShadowRequest(Wire, frozen=True):
    securable: Place
    source: str
    state: Literal["shadow", "cut-over"]


class NamedShadow(Wire, frozen=True):
    securable: Place
    table_uuid: str
    source: str
    state: Literal["shadow", "cut-over"]
    since_ms: Long


class ListShadowsResponse(Wire, frozen=True):
    shadows: list[NamedShadow]


# Jobs


class MaintenanceJob(Wire, frozen=True, kw_only=True):
    job_id: Long
    type: PolicyType
    state: Annotated[str, Meta(extra_json_schema={"enum": ["waiting", "running", "done", "failed", "cancelled"]})]
    securable: Place
    table_uuid: str
    policy_on: Annotated[str | None, Meta(description="Null for a job that was requested, not planned.")]
    job: Annotated[msgspec.Raw, described_by("JobSpec")]
    created_by: str
    created_ms: Long
    attempts: Annotated[Long, Meta(description="How many workers started it.")]
    worker: str | None
    cancelled: Annotated[bool, Meta(description="Whether its cancellation was requested.")]
    progress: AnyJson
    finished_ms: Long | None
    changed: Annotated[bool, Meta(description="Whether it found anything to do.")]
    size_bytes: Annotated[Long, Meta(description="The bytes that it rewrote, or will rewrite.")]
    result: AnyJson
    error: str | None


class ListJobsResponse(PagedResponse, frozen=True):
    jobs: list[MaintenanceJob]


class AddJobsRequest(Wire, frozen=True):
    securable: Place
    type: Annotated[PolicyType | None, Meta(description="One job on a table, regardless of its policies.")] = None
    page_token: Annotated[str | None, Meta(description="The `next-page-token` of the previous response.")] = None
    dry_run: Annotated[bool, Meta(description="Return the jobs without ids and add none.")] = False


class AddedJob(Wire, frozen=True):
    job_id: Long | None
    job: JobSpec


class AddJobsResponse(PagedResponse, frozen=True):
    jobs: list[AddedJob]


class LeaseRequest(Wire, frozen=True):
    securable: Place
    worker: Worker
    job_id: Annotated[Long | None, Meta(description="Only this job, which must be inside the securable.")] = None


class LeaseResponse(Wire, frozen=True):
    job: MaintenanceJob | None
    lease_seconds: Long
    heartbeat_seconds: Long


class HeartbeatRequest(Wire, frozen=True):
    worker: Worker
    progress: Annotated[Any, Meta(description="At most 4 KiB of JSON.")] = None


class HeartbeatResponse(Wire, frozen=True):
    cancelled: Annotated[bool, Meta(description="The worker must stop the job cleanly.")]


class HandBackRequest(Wire, frozen=True):
    worker: Worker


class FinishJobRequest(Wire, frozen=True):
    worker: Worker
    state: Literal["done", "failed", "cancelled"]
    changed: bool = False
    size_bytes: Annotated[int, Meta(ge=0, le=1 << 60)] = 0
    result: Annotated[Any, Meta(description="At most 256 KiB of JSON.")] = None
    error: str | None = None
