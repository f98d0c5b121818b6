"""Request bodies of the management API."""

from typing import Literal

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
