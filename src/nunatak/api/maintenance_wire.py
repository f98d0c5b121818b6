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
Count = Annotated[Long | None, Meta(description="Null if the writer did not tell.")]
Worker = Annotated[str, Meta(description="A name of the worker's own making, the same for all it says about a job.")]
AnyJson = msgspec.Raw | None


# Health


class Check(Wire, frozen=True, kw_only=True):
    check: str
    value: Annotated[float | None, Meta(description="What was measured; null if it could not be.")]
    limit: Annotated[float, Meta(description="Up to here nothing is lost.")]
    unit: str
    points: Annotated[Long, Meta(description="What it costs.")]
    most_points: Annotated[Long, Meta(description="What it costs at worst.")]
    exact: Annotated[bool, Meta(description="False for an estimate from totals; `deep` counts.")]
    reason: str
    fix: Annotated[str | None, Meta(description="The command or statement that helps.")]


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
        Long | None, Meta(description="How many lie beside the current one; null if nobody looked.")
    ]
    target_file_size_bytes: Long
    partitions: Long | UnsetType = UNSET
    files_by_size: Annotated[
        list[Long] | UnsetType, Meta(description="Below 8, 32, 128 and 512 MiB, and larger; only if `deep`.")
    ] = UNSET


class TableHealth(Wire, frozen=True, kw_only=True):
    securable: Place
    score: Annotated[
        Long | UnsetType, Meta(description="From 0 to 100: 100 without the points that the checks cost.")
    ] = UNSET
    facts: TableFacts | UnsetType = UNSET
    checks: Annotated[list[Check] | UnsetType, Meta(description="The costliest first.")] = UNSET
    error: Annotated[
        str | UnsetType, Meta(description="In place of all others: why the table could not be looked at.")
    ] = UNSET


class HealthResponse(PagedResponse, frozen=True):
    tables: list[TableHealth]


# Policies and plans


class SetPolicyRequest(Wire, frozen=True):
    securable: Place
    policy: Annotated[msgspec.Raw, described_by("Policy")]


class AttachedPolicy(Wire, frozen=True):
    securable: Annotated[str, Meta(description="What it is set on.")]
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
        Meta(description="`held` is due, and has to wait; `none` is without a policy."),
    ]
    because: str
    policy_on: Annotated[str | None, Meta(description="What the policy is set on that counts.")]
    measures: list[Measure]
    holds: list[Hold]
    overridden_by: Annotated[dict[str, str], Meta(description="Fields of the policy, and the property that counts.")]
    expected: tuple[Gain, ...]
    job: JobSpec | None


class TablePlan(Wire, frozen=True, kw_only=True):
    securable: Place
    facts: TableFacts | UnsetType = UNSET
    decisions: Annotated[list[Decision] | UnsetType, Meta(description="Of every type, in the order of the work.")] = (
        UNSET
    )
    error: Annotated[
        str | UnsetType, Meta(description="In place of all others: why the table could not be looked at.")
    ] = UNSET


class PlanResponse(PagedResponse, frozen=True):
    tables: list[TablePlan]


# Folders and shadows


class NeighboursResponse(Wire, frozen=True, kw_only=True):
    location: Annotated[str, Meta(description="The table's folder.")]
    count: Annotated[
        Long,
        Meta(description="How many others keep files in its places or around them, or are another name of it."),
    ]
    neighbours: Annotated[list[str], Meta(description="Those that the caller may know of.")]
    places: Annotated[
        list[str], Meta(description="The table's own: its location, and where its properties send writers.")
    ]
    shadow: Shadow | None


class FoldersRequest(Wire, frozen=True):
    securable: Place
    folders: Annotated[list[str], Meta(max_length=10_000, description="Folders that the table's metadata names.")]


class FoldersResponse(Wire, frozen=True):
    foreign: Annotated[list[str], Meta(description="Those in another live table's or view's places.")]
    outside: Annotated[list[str], Meta(description="Those in nobody's, but not in the table's own either.")]


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
    policy_on: Annotated[str | None, Meta(description="Null if somebody asked for it.")]
    job: Annotated[msgspec.Raw, described_by("JobSpec")]
    created_by: str
    created_ms: Long
    attempts: Annotated[Long, Meta(description="How many workers began it.")]
    worker: str | None
    cancelled: Annotated[bool, Meta(description="Whether somebody wants it to stop.")]
    progress: AnyJson
    finished_ms: Long | None
    changed: Annotated[bool, Meta(description="Whether it found anything to do.")]
    size_bytes: Annotated[Long, Meta(description="What it rewrote, or is going to.")]
    result: AnyJson
    error: str | None


class ListJobsResponse(PagedResponse, frozen=True):
    jobs: list[MaintenanceJob]


class AddJobsRequest(Wire, frozen=True):
    securable: Place
    type: Annotated[PolicyType | None, Meta(description="One job, on a table, whatever its policies say.")] = None
    page_token: Annotated[str | None, Meta(description="The `next-page-token` of the answer before.")] = None
    dry_run: Annotated[bool, Meta(description="Answer with the jobs, without numbers, and add none.")] = False


class AddedJob(Wire, frozen=True):
    job_id: Long | None
    job: JobSpec


class AddJobsResponse(PagedResponse, frozen=True):
    jobs: list[AddedJob]


class LeaseRequest(Wire, frozen=True):
    securable: Place
    worker: Worker
    job_id: Annotated[Long | None, Meta(description="This job, inside the place, and no other.")] = None


class LeaseResponse(Wire, frozen=True):
    job: MaintenanceJob | None
    lease_seconds: Long
    heartbeat_seconds: Long


class HeartbeatRequest(Wire, frozen=True):
    worker: Worker
    progress: Annotated[Any, Meta(description="At most 4 KiB of JSON.")] = None


class HeartbeatResponse(Wire, frozen=True):
    cancelled: Annotated[bool, Meta(description="Stop in good order.")]


class HandBackRequest(Wire, frozen=True):
    worker: Worker


class FinishJobRequest(Wire, frozen=True):
    worker: Worker
    state: Literal["done", "failed", "cancelled"]
    changed: bool = False
    size_bytes: Annotated[int, Meta(ge=0, le=1 << 60)] = 0
    result: Annotated[Any, Meta(description="At most 256 KiB of JSON.")] = None
    error: str | None = None
