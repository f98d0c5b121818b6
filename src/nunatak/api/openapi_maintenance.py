"""Health, policies and plans in the OpenAPI document of the management API."""

import inspect
from typing import Any

import msgspec

from nunatak.api.openapi_operations import Operation
from nunatak.api.openapi_schemas import BOOLEAN, LONG, STRING, described, list_of, nullable, parameter, record, ref
from nunatak.maintenance.job_spec import Gain, JobSpec
from nunatak.maintenance.policies import TYPES, AnyPolicy

Json = dict[str, Any]

NUMBER: Json = {"type": "number"}
TYPE: Json = {"type": "string", "enum": sorted(TYPES)}
STATES: Json = {"type": "string", "enum": ["due", "held", "idle", "off", "none"]}
HOLDS: Json = {"type": "string", "enum": ["window", "budget", "backoff", "min-interval", "open-job"]}
PLACE = described(STRING, "`warehouse:WH`, `namespace:WH/A/B` or `table:WH/A/T`.")
SHADOW_STATE: Json = {"type": "string", "enum": ["shadow", "cut-over"]}
COUNT = nullable(described(LONG, "Null if the writer did not tell."))

# The structs that are read and written describe themselves, by docstrings that older Pythons keep indented.
(_policy, *_), _structs = msgspec.json.schema_components(
    [AnyPolicy, JobSpec, Gain], ref_template="#/components/schemas/{name}"
)

MAINTENANCE_SCHEMAS: Json = {
    **{name: {**each, "description": inspect.cleandoc(each["description"])} for name, each in _structs.items()},
    "Policy": _policy,
    "Check": record(
        "check value limit unit points most-points exact reason fix",
        check=STRING,
        value=nullable(described(NUMBER, "What was measured; null if it could not be.")),
        limit=described(NUMBER, "Up to here nothing is lost."),
        unit=STRING,
        points=described(LONG, "What it costs."),
        most_points=described(LONG, "What it costs at worst."),
        exact=described(BOOLEAN, "False for an estimate from totals; `deep` counts."),
        reason=STRING,
        fix=nullable(described(STRING, "The command or statement that helps.")),
    ),
    "TableFacts": record(
        "table-uuid snapshots metadata-bytes target-file-size-bytes",
        table_uuid=STRING,
        snapshot_id=nullable(LONG),
        data_files=COUNT,
        data_bytes=COUNT,
        delete_files=COUNT,
        records=COUNT,
        manifests=COUNT,
        snapshots=LONG,
        metadata_bytes=LONG,
        target_file_size_bytes=LONG,
        partitions=LONG,
        files_by_size=described(list_of(LONG), "Below 8, 32, 128 and 512 MiB, and larger; only if `deep`."),
    ),
    "TableHealth": record(
        "securable",
        securable=PLACE,
        score=described(LONG, "From 0 to 100: 100 without the points that the checks cost."),
        facts=ref("TableFacts"),
        checks=described(list_of(ref("Check")), "The costliest first."),
        error=described(STRING, "In place of all others: why the table could not be looked at."),
    ),
    "HealthResponse": record(
        "tables", optional={"tables": list_of(ref("TableHealth")), "next-page-token": ref("PageToken")}
    ),
    "SetPolicyRequest": record("securable policy", securable=PLACE, policy=ref("Policy")),
    "AttachedPolicy": record(
        "securable policy changed-by changed-ms",
        securable=described(STRING, "What it is set on."),
        policy=ref("Policy"),
        changed_by=STRING,
        changed_ms=LONG,
    ),
    "ListPoliciesResponse": record(
        "policies", optional={"policies": list_of(ref("AttachedPolicy")), "next-page-token": ref("PageToken")}
    ),
    "EffectivePoliciesResponse": record("policies", policies=list_of(ref("AttachedPolicy"))),
    "Measure": record(
        "trigger value limit reached", trigger=STRING, value=nullable(NUMBER), limit=NUMBER, reached=BOOLEAN
    ),
    "Hold": record("because text until-ms", because=HOLDS, text=STRING, until_ms=nullable(LONG)),
    "Decision": record(
        "type state because policy-on measures holds overridden-by expected job",
        type=TYPE,
        state=described(STATES, "`held` is due, and has to wait; `none` is without a policy."),
        because=STRING,
        policy_on=nullable(described(STRING, "What the policy is set on that counts.")),
        measures=list_of(ref("Measure")),
        holds=list_of(ref("Hold")),
        overridden_by=described(
            {"type": "object", "additionalProperties": STRING}, "Fields of the policy, and the property that counts."
        ),
        expected=list_of(ref("Gain")),
        job=nullable(ref("JobSpec")),
    ),
    "TablePlan": record(
        "securable",
        securable=PLACE,
        facts=ref("TableFacts"),
        decisions=described(list_of(ref("Decision")), "Of every type, in the order of the work."),
        error=described(STRING, "In place of all others: why the table could not be looked at."),
    ),
    "PlanResponse": record(
        "tables", optional={"tables": list_of(ref("TablePlan")), "next-page-token": ref("PageToken")}
    ),
    "NeighboursResponse": record(
        "location count neighbours places shadow",
        location=described(STRING, "The table's folder."),
        count=described(LONG, "How many others keep files in its places or around them, or are another name of it."),
        neighbours=described(list_of(STRING), "Those that the caller may know of."),
        places=described(list_of(STRING), "The table's own: its location, and where its properties send writers."),
        shadow=nullable(ref("Shadow")),
    ),
    "FoldersRequest": record(
        "securable folders",
        securable=PLACE,
        folders=described({**list_of(STRING), "maxItems": 10_000}, "Folders that the table's metadata names."),
    ),
    "FoldersResponse": record(
        "foreign outside",
        foreign=described(list_of(STRING), "Those in another live table's or view's places."),
        outside=described(list_of(STRING), "Those in nobody's, but not in the table's own either."),
    ),
    "Shadow": record(
        "source state since-ms",
        about="A table whose files still belong to another catalog, from which it is being migrated.",
        source=described(STRING, "The table there, for people."),
        state=SHADOW_STATE,
        since_ms=LONG,
    ),
    "SetShadowRequest": record("securable source state", securable=PLACE, source=STRING, state=SHADOW_STATE),
    "NamedShadow": record(
        "securable table-uuid source state since-ms",
        securable=PLACE,
        table_uuid=STRING,
        source=STRING,
        state=SHADOW_STATE,
        since_ms=LONG,
    ),
    "ListShadowsResponse": record("shadows", shadows=list_of(ref("NamedShadow"))),
}

WORKER = described(STRING, "A name of the worker's own making, the same for all it says about a job.")
ANYTHING: Json = {}

MAINTENANCE_SCHEMAS |= {
    "MaintenanceJob": record(
        "job-id type state securable table-uuid job created-by created-ms attempts cancelled changed size-bytes",
        job_id=LONG,
        type=TYPE,
        state={"type": "string", "enum": ["waiting", "running", "done", "failed", "cancelled"]},
        securable=PLACE,
        table_uuid=STRING,
        policy_on=nullable(described(STRING, "Null if somebody asked for it.")),
        job=ref("JobSpec"),
        created_by=STRING,
        created_ms=LONG,
        attempts=described(LONG, "How many workers began it."),
        worker=nullable(STRING),
        cancelled=described(BOOLEAN, "Whether somebody wants it to stop."),
        progress=ANYTHING,
        finished_ms=nullable(LONG),
        changed=described(BOOLEAN, "Whether it found anything to do."),
        size_bytes=described(LONG, "What it rewrote, or is going to."),
        result=ANYTHING,
        error=nullable(STRING),
    ),
    "ListJobsResponse": record(
        "jobs", optional={"jobs": list_of(ref("MaintenanceJob")), "next-page-token": ref("PageToken")}
    ),
    "AddJobsRequest": record(
        "securable",
        securable=PLACE,
        type=nullable(described(TYPE, "One job, on a table, whatever its policies say.")),
        page_token=nullable(described(STRING, "The `next-page-token` of the answer before.")),
        dry_run=described(BOOLEAN, "Answer with the jobs, without numbers, and add none."),
    ),
    "AddedJob": record("job-id job", job_id=nullable(LONG), job=ref("JobSpec")),
    "AddJobsResponse": record("jobs", optional={"jobs": list_of(ref("AddedJob")), "next-page-token": ref("PageToken")}),
    "LeaseRequest": record(
        "securable worker",
        securable=PLACE,
        worker=WORKER,
        job_id=nullable(described(LONG, "This job, inside the place, and no other.")),
    ),
    "LeaseResponse": record(
        "job lease-seconds heartbeat-seconds",
        job=nullable(ref("MaintenanceJob")),
        lease_seconds=LONG,
        heartbeat_seconds=LONG,
    ),
    "HeartbeatRequest": record("worker", worker=WORKER, progress=described(ANYTHING, "At most 4 KiB of JSON.")),
    "HeartbeatResponse": record("cancelled", cancelled=described(BOOLEAN, "Stop in good order.")),
    "HandBackRequest": record("worker", worker=WORKER),
    "FinishJobRequest": record(
        "worker state",
        worker=WORKER,
        state={"type": "string", "enum": ["done", "failed", "cancelled"]},
        changed=BOOLEAN,
        size_bytes=LONG,
        result=described(ANYTHING, "At most 256 KiB of JSON."),
        error=nullable(STRING),
    ),
}

MAINTENANCE_PARAMETERS: Json = {
    "place": parameter("query", "securable", STRING, "`warehouse:WH`, `namespace:WH/A/B` or `table:WH/A/T`."),
    "deep": parameter("query", "deep", BOOLEAN, "Read the manifests, too: slower, and exact."),
    "job": parameter("path", "job", LONG, "The job's number."),
    "policyType": parameter("query", "type", TYPE, "The type of the policy."),
}

_PAGE = ("pageToken", "pageSize")

MAINTENANCE_OPERATIONS: dict[str, Operation] = {
    "loadHealth": Operation(
        tag="Maintenance", response="HealthResponse", query=("place", "deep", *_PAGE), errors=(404,)
    ),
    "listPolicies": Operation(
        tag="Maintenance", response="ListPoliciesResponse", query=("place", *_PAGE), errors=(404,)
    ),
    "effectivePolicies": Operation(
        tag="Maintenance", response="EffectivePoliciesResponse", query=("place",), errors=(404,)
    ),
    "setPolicy": Operation(tag="Maintenance", request="SetPolicyRequest", errors=(404,)),
    "dropPolicy": Operation(tag="Maintenance", query=("place", "policyType"), errors=(404,)),
    "planMaintenance": Operation(tag="Maintenance", response="PlanResponse", query=("place", *_PAGE), errors=(404,)),
    "listNeighbours": Operation(tag="Maintenance", response="NeighboursResponse", query=("place",), errors=(404,)),
    "sortFolders": Operation(tag="Maintenance", request="FoldersRequest", response="FoldersResponse", errors=(404,)),
    "listShadows": Operation(tag="Maintenance", response="ListShadowsResponse", query=("place",), errors=(404,)),
    "setShadow": Operation(tag="Maintenance", request="SetShadowRequest", errors=(404,)),
    "dropShadow": Operation(tag="Maintenance", query=("place",), errors=(404,)),
    "listMaintenanceJobs": Operation(
        tag="Maintenance", response="ListJobsResponse", query=("place", *_PAGE), errors=(404,)
    ),
    "addMaintenanceJobs": Operation(
        tag="Maintenance", request="AddJobsRequest", response="AddJobsResponse", errors=(404, 409)
    ),
    "loadMaintenanceJob": Operation(tag="Maintenance", response="MaintenanceJob", errors=(404,)),
    "cancelMaintenanceJob": Operation(tag="Maintenance", errors=(404, 409)),
    "leaseMaintenanceJob": Operation(
        tag="Maintenance", request="LeaseRequest", response="LeaseResponse", errors=(404, 409)
    ),
    "extendMaintenanceLease": Operation(
        tag="Maintenance", request="HeartbeatRequest", response="HeartbeatResponse", errors=(404, 409)
    ),
    "handBackMaintenanceJob": Operation(tag="Maintenance", request="HandBackRequest", errors=(404, 409)),
    "finishMaintenanceJob": Operation(tag="Maintenance", request="FinishJobRequest", errors=(404, 409)),
}
