"""Request bodies of the management API."""

from typing import Annotated, Any, Literal

import msgspec

from nunatak.api.wire import Wire


class CreatePrincipalRequest(Wire, frozen=True):
    name: str
    note: str | None = None


class UpdatePrincipalRequest(Wire, frozen=True):
    disabled: bool | None = None
    note: str | None = None


class CreateRoleRequest(Wire, frozen=True):
    name: str
    note: str | None = None


class AddMemberRequest(Wire, frozen=True):
    principal: str


class GrantRequest(Wire, frozen=True):
    grantee: str
    securable: str
    privileges: list[str]


class CreateCredentialRequest(Wire, frozen=True):
    kind: Literal["client", "api-key", "access-key"] = "api-key"
    roles: list[str] | None = None
    note: str | None = None
    expires_in_seconds: int | None = None


class CreateWarehouseRequest(Wire, frozen=True):
    name: str
    location: str | None = None


class RotateKeysRequest(Wire, frozen=True):
    forget_older: bool = False


class SetPolicyRequest(Wire, frozen=True):
    securable: str
    policy: msgspec.Raw


class SetShadowRequest(Wire, frozen=True):
    securable: str
    source: str
    state: Literal["shadow", "cut-over"]


class FoldersRequest(Wire, frozen=True):
    securable: str
    folders: Annotated[list[str], msgspec.Meta(max_length=10_000)]


class SaveDocumentRequest(Wire, frozen=True):
    content: msgspec.Raw
    version: int = 0


class AddJobsRequest(Wire, frozen=True):
    securable: str
    type: str | None = None
    page_token: str | None = None
    dry_run: bool = False


class LeaseRequest(Wire, frozen=True):
    securable: str
    worker: str
    job_id: int | None = None


class HeartbeatRequest(Wire, frozen=True):
    worker: str
    progress: Any = None


class HandBackRequest(Wire, frozen=True):
    worker: str


class FinishJobRequest(Wire, frozen=True):
    worker: str
    state: Literal["done", "failed", "cancelled"]
    changed: bool = False
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0
    result: Any = None
    error: str | None = None
