"""Request and response bodies of the management API: principals, roles, grants, credentials and keys."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from nunatak.access.administration import MAX_NAME_LENGTH, MAX_NOTE_LENGTH
from nunatak.access.privileges import BUNDLES, EVERYTHING, GRANTABLE, names_of
from nunatak.api.wire import PagedResponse, PageToken, Wire
from nunatak.events.audit_trail import Line
from nunatak.iceberg.shapes import Long

MAX_LIFETIME_SECONDS = 10 * 366 * 86_400

Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_NAME_LENGTH})]
Note = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_NOTE_LENGTH})] | None
Milliseconds = Annotated[Long, Meta(description="Milliseconds since 1970.")]
Grantee = Annotated[str, Meta(description="`principal:NAME` or `role:NAME`.")]
Securable = Annotated[
    str,
    Meta(
        description="`server`, `warehouse:WH`, `namespace:WH/A/B`, `table:WH/A/T` or `view:WH/A/V`; "
        "a slash in a name is `%2F`."
    ),
]
PrivilegeName = Annotated[str, Meta(extra_json_schema={"enum": names_of(EVERYTHING)})]
CredentialKind = Literal["client", "api-key", "access-key"]


# Principals and roles


class Me(Wire, frozen=True):
    principal: Name
    roles: list[Name]
    authenticated_by: str | None
    privileges_on_server: list[PrivilegeName]


class Principal(Wire, frozen=True):
    name: Name
    disabled: bool
    note: Note
    created_ms: Milliseconds


class LoadedPrincipal(Principal, frozen=True):
    roles: tuple[Name, ...]


class ListPrincipalsResponse(PagedResponse, frozen=True):
    principals: list[Principal]


class CreatePrincipalRequest(Wire, frozen=True):
    name: Name
    note: Note = None


class UpdatePrincipalRequest(Wire, frozen=True):
    """What is absent stays as it is."""

    disabled: bool | None = None
    note: Note = None


class Role(Wire, frozen=True):
    name: Name
    note: Note
    created_ms: Milliseconds


class ListRolesResponse(PagedResponse, frozen=True):
    roles: list[Role]


class CreateRoleRequest(Wire, frozen=True):
    name: Name
    note: Note = None


class AddMemberRequest(Wire, frozen=True):
    principal: Name


class ListMembersResponse(PagedResponse, frozen=True):
    members: list[Name]


# Grants


class GrantRequest(Wire, frozen=True):
    """Nobody grants what they do not hold themselves; granting needs GRANT."""

    grantee: Grantee
    securable: Securable
    privileges: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"enum": [*BUNDLES, *names_of(GRANTABLE)]})]],
        Meta(extra_json_schema={"minItems": 1}),
    ]


class FoundGrant(Wire, frozen=True):
    grantee: Grantee
    securable: Securable
    privileges: list[PrivilegeName]


class Grant(FoundGrant, frozen=True):
    granted_by: str
    granted_ms: Milliseconds


class ListGrantsResponse(PagedResponse, frozen=True):
    grants: list[Grant]


class Explanation(Wire, frozen=True, kw_only=True):
    principal: Name
    privilege: PrivilegeName
    securable: Securable
    allowed: bool
    reason: str
    roles: tuple[Name, ...]
    chain: Annotated[list[Securable], Meta(description="The securable and what it lies in, outermost first.")]
    grants: Annotated[list[FoundGrant], Meta(description="All grants that apply to it.")]
    deciding_grant: FoundGrant | None
    decided_by: Annotated[
        str,
        Meta(
            description="`grants`, `opa`, `cedar`, or `nobody` if authentication is off and every request is allowed."
        ),
    ]
    granted_by: Annotated[
        list[str], Meta(description="Principals and roles that may grant it, the nearest first, ten at most.")
    ]


class Holding(Wire, frozen=True):
    securable: Securable
    holder: Annotated[str, Meta(description="A principal, or a role that has no members here.")]
    privileges: list[PrivilegeName]
    through: list[FoundGrant]


class AccessMatrix(Wire, frozen=True):
    holdings: list[Holding]


# Credentials


class Credential(Wire, frozen=True, kw_only=True):
    credential_id: str
    principal: Name
    kind: Annotated[str, Meta(extra_json_schema={"enum": ["client", "api-key", "access-key"]})]
    roles: tuple[Name, ...] | None
    note: Note
    created_ms: Milliseconds
    expires_ms: Milliseconds | None
    last_used_ms: Milliseconds | None


class NewCredential(Credential, frozen=True, kw_only=True):
    secret: Annotated[str, Meta(description="Shown in this response only.")]


class ListCredentialsResponse(Wire, frozen=True):
    credentials: list[Credential]


class CreateCredentialRequest(Wire, frozen=True):
    kind: Annotated[CredentialKind, Meta(description="An API key by default.")] = "api-key"
    roles: Annotated[list[Name] | None, Meta(description="The only roles it may be used for.")] = None
    note: Note = None
    expires_in_seconds: (
        Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MAX_LIFETIME_SECONDS})] | None
    ) = None


# Keys


class RotateKeysRequest(Wire, frozen=True):
    forget_older: Annotated[bool, Meta(description="Revoke all tokens issued before.")] = False


class RotateKeysResponse(Wire, frozen=True):
    key_id: str


class UpdateTablePropertiesRequest(Wire, frozen=True):
    securable: str
    updates: dict[str, str] = msgspec.field(default_factory=dict)
    removals: list[str] = msgspec.field(default_factory=list)


class TablePropertiesResponse(Wire, frozen=True):
    properties: dict[str, str]


class EncryptionKey(Wire, frozen=True):
    key_id: str
    encrypts: Annotated[bool, Meta(description="Whether new secrets are encrypted with it.")]
    values: Annotated[Long, Meta(description="How many secrets are encrypted with it.")]
    in_key_file: Annotated[bool, Meta(description="False for a key that is missing.")]


class ListEncryptionKeysResponse(Wire, frozen=True):
    encryption_keys: list[EncryptionKey]


class RotateEncryptionKeysResponse(Wire, frozen=True):
    key_id: str
    new: Annotated[bool, Meta(description="False if an earlier rotation was finished instead.")]
    encrypted_anew: Long


class RetireEncryptionKeysResponse(Wire, frozen=True):
    retired: list[str]


# Audit trail and migration documents


class ListAuditResponse(Wire, frozen=True):
    records: list[Line]
    next_page_token: PageToken


class MigrationDocument(Wire, frozen=True):
    document: str
    version: Annotated[Long, Meta(description="Counts the changes of the document.")]
    content: Annotated[msgspec.Raw, Meta(description="Any JSON; the catalog does not look inside.")]
    changed_ms: Long
    now_ms: Annotated[Long, Meta(description="The catalog's time, to compute the document's age.")]


class ListMigrationDocumentsResponse(PagedResponse, frozen=True):
    documents: list[MigrationDocument]


class SaveDocumentRequest(Wire, frozen=True):
    content: Annotated[msgspec.Raw, Meta(description="At most 1 MiB of JSON.")]
    version: Annotated[Long, Meta(description="The version to replace; 0 or absent for a new document.")] = 0
