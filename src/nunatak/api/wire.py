"""Request and response bodies of the catalog routes, and the base types of all bodies.

The OpenAPI documents are derived from these types, including their docstrings. `Meta(extra_json_schema=…)` appears only
there: decoders do not check it, because the function that uses the value raises a better error.
"""

from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nunatak.catalog.catalog import Caller
from nunatak.database.records import StoredResponse
from nunatak.iceberg.identifiers import Identifier, check_name, check_namespace
from nunatak.iceberg.shapes import Int, Long, SchemaJson, TableMetadataShape, described_by
from nunatak.iceberg.view_metadata import ViewMetadataShape


class Wire(msgspec.Struct, frozen=True, rename="kebab"):
    pass


# Only names that no client could address again are refused.
NAME = {"minLength": 1, "maxLength": 255, "pattern": r"^(?!\.{1,2}$)[^\x00-\x1f\x7f]+$"}
Name = Annotated[str, Meta(extra_json_schema=NAME)]
NamespaceLevels = Annotated[list[str], described_by("Namespace")]
Properties = dict[str, str]
PageToken = Annotated[str | UnsetType | None, described_by("PageToken")]


class PagedResponse(Wire, frozen=True, kw_only=True):
    next_page_token: PageToken = UNSET


# Errors


class ErrorModel(Wire, frozen=True):
    """What went wrong. Clients choose their reaction by code and type."""

    message: Annotated[str, Meta(description="A sentence for people: what, which, and what now.")]
    type: Annotated[str, Meta(description="The exception an Iceberg client raises, e.g. `NoSuchTableException`.")]
    code: Annotated[int, Meta(ge=400, le=599, description="The HTTP status again.")]
    hint: Annotated[str | UnsetType, Meta(description="What to do next, where there is something to do.")] = UNSET


class ErrorResponse(Wire, frozen=True):
    error: ErrorModel


# Namespaces


class CreateNamespaceRequest(Wire, frozen=True):
    namespace: NamespaceLevels
    properties: Properties | None = None


class UpdateNamespaceRequest(Wire, frozen=True):
    """A key may be set or removed, not both."""

    removals: Annotated[list[str] | None, Meta(extra_json_schema={"uniqueItems": True})] = None
    updates: Properties | None = None


class NamespaceResponse(Wire, frozen=True):
    namespace: Annotated[tuple[str, ...], described_by("Namespace")]
    properties: Properties


class UpdateNamespacePropertiesResponse(Wire, frozen=True):
    updated: list[str]
    removed: list[str]
    missing: Annotated[list[str] | None, Meta(description="Keys to remove that were not there.")] = None


class ListNamespacesResponse(PagedResponse, frozen=True):
    namespaces: list[Annotated[tuple[str, ...], described_by("Namespace")]]


# Tables and views


class WireIdentifier(Wire, frozen=True):
    """A table or view by its full name."""

    namespace: NamespaceLevels
    name: Name


class ListIdentifiersResponse(PagedResponse, frozen=True):
    identifiers: list[WireIdentifier]


class NamedRequest(Wire, frozen=True):
    """The name in a request that creates or registers a table or view; other fields are ignored."""

    name: Name


class CreateTableRequest(Wire, frozen=True):
    name: Name
    schema: SchemaJson
    location: Annotated[
        str | None, Meta(description="Where the table is to lie, inside what the warehouse allows.")
    ] = None
    partition_spec: Annotated[dict[str, Any], described_by("PartitionSpec")] | None = None
    write_order: Annotated[dict[str, Any], described_by("SortOrder")] | None = None
    stage_create: Annotated[bool | None, Meta(description="Answer with the metadata and create nothing yet.")] = None
    properties: Annotated[
        Properties | None, Meta(description="`format-version` chooses 1, 2 (the default) or 3 and is not stored.")
    ] = None


class RegisterTableRequest(Wire, frozen=True):
    name: Name
    metadata_location: str
    overwrite: Annotated[bool | None, Meta(description="Replace a table of that name.")] = None
    shadow_of: Annotated[
        str | None, Meta(description="The table of another catalog whose file it is; it takes no commits here.")
    ] = None


class CreateViewRequest(Wire, frozen=True):
    name: Name
    schema: SchemaJson
    view_version: Annotated[dict[str, Any], described_by("ViewVersion")]
    location: str | None = None
    properties: Properties | None = None


class RegisterViewRequest(Wire, frozen=True):
    name: Name
    metadata_location: str


class RenameRequest(Wire, frozen=True):
    source: WireIdentifier
    destination: WireIdentifier


class StorageCredential(Wire, frozen=True):
    prefix: str
    config: Properties


class LoadCredentialsResponse(Wire, frozen=True, kw_only=True):
    """A credential for the files of one table; an S3 credential is also there property by property."""

    storage_credentials: list[StorageCredential]
    s3_access_key_id: str | UnsetType = msgspec.field(default=UNSET, name="s3.access-key-id")
    s3_secret_access_key: str | UnsetType = msgspec.field(default=UNSET, name="s3.secret-access-key")
    s3_session_token: str | UnsetType = msgspec.field(default=UNSET, name="s3.session-token")
    expiration_ms: Annotated[Long | UnsetType, Meta(description="How long the credential lives from now on.")] = UNSET


class RemoteSignRequest(Wire, frozen=True):
    """A request to the store that a client without credentials wants signed."""

    region: str
    uri: str
    method: Annotated[
        str, Meta(extra_json_schema={"enum": ["PUT", "GET", "HEAD", "POST", "DELETE", "PATCH", "OPTIONS"]})
    ]
    headers: dict[str, list[str]]
    properties: dict[str, str] | None = None
    body: Annotated[str | None, Meta(description="Of a request that deletes several objects.")] = None
    provider: Annotated[str | None, Meta(description="The kind of store; absent: s3.")] = None


class RemoteSignResponse(Wire, frozen=True):
    """The request to send: the URI as it was asked for, and the headers to add."""

    uri: str
    headers: dict[str, list[str]]


class LoadTableResponse(Wire, frozen=True):
    """Made from the bytes of the metadata file, and not by encoding this type: see `catalog.cache.Loaded`."""

    metadata: TableMetadataShape
    metadata_location: Annotated[str | None, Meta(description="Absent while a table is only staged.")] = None
    config: Properties = {}
    storage_credentials: list[StorageCredential] = []


class CommitTableResponse(Wire, frozen=True):
    metadata_location: str
    metadata: TableMetadataShape
    config: Properties = {}


class UnregisterTableResponse(CommitTableResponse, frozen=True):
    pass


class LoadViewResponse(Wire, frozen=True):
    metadata_location: str
    metadata: ViewMetadataShape
    config: Properties = {}


class MetricsReport(Wire, frozen=True, kw_only=True):
    """What an engine measured while it planned a scan or made a commit. It is stored; nothing in it is checked beyond
    its shape."""

    report_type: Annotated[str, Meta(examples=["scan-report", "commit-report"])] = ""
    table_name: str
    snapshot_id: Long | UnsetType = UNSET
    sequence_number: Long | UnsetType = UNSET
    operation: str | UnsetType = UNSET
    schema_id: Int | UnsetType = UNSET
    filter: Any = None
    projected_field_ids: list[Int] | UnsetType = UNSET
    projected_field_names: list[str] | UnsetType = UNSET
    metrics: dict[str, Any]
    metadata: Properties | UnsetType = UNSET


# Configuration, search and health


class CatalogConfig(Wire, frozen=True):
    defaults: Annotated[Properties, Meta(description="Used where the client sets nothing.")]
    overrides: Annotated[Properties, Meta(description="Used whatever the client sets; `prefix` goes into every path.")]
    endpoints: Annotated[list[str], Meta(description="Every operation that is served, as `METHOD /v1/{prefix}/…`.")]
    idempotency_key_lifetime: Annotated[
        str,
        Meta(
            description="How long a request may be sent again with its Idempotency-Key.",
            extra_json_schema={"format": "duration"},
        ),
    ]


class FoundEntry(Wire, frozen=True):
    type: Literal["table", "view"]
    identifier: WireIdentifier


class SearchResponse(PagedResponse, frozen=True):
    results: list[FoundEntry]


class WelcomeResponse(Wire, frozen=True):
    name: str
    version: str
    config: str
    health: str


class HealthResponse(Wire, frozen=True):
    status: str


# Tokens; OAuth writes field names with underscores


class TokenRequest(msgspec.Struct, frozen=True):
    """A client's id and secret may be sent with HTTP Basic instead."""

    grant_type: Literal["client_credentials", "urn:ietf:params:oauth:grant-type:token-exchange"]
    client_id: str | UnsetType = UNSET
    client_secret: str | UnsetType = UNSET
    scope: Annotated[
        str | UnsetType, Meta(description="`catalog`, or `PRINCIPAL_ROLE:ROLE` for each role to act in.")
    ] = UNSET
    subject_token: Annotated[str | UnsetType, Meta(description="The token to exchange.")] = UNSET
    subject_token_type: str | UnsetType = UNSET


class TokenResponse(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: Annotated[Int, Meta(description="Seconds that the token is good for.")]
    issued_token_type: str
    scope: str
    token_type: Literal["bearer"] = "bearer"


class TokenError(msgspec.Struct, frozen=True):
    """A refusal as OAuth writes it."""

    error: str
    error_description: str
    message: str
    type: str
    code: Int


class KeySet(msgspec.Struct, frozen=True):
    """A JWKS document."""

    keys: list[dict[str, Any]]


def stored_answer(caller: Caller, value: object) -> StoredResponse:
    """Returns the response to store for the caller's Idempotency-Key; without a key, `value` is not encoded."""
    return StoredResponse(200, body=None if caller.key is None else msgspec.json.encode(value))


class NamedEntry(Protocol):
    """The identifier of a table or view in a body."""

    @property
    def namespace(self) -> list[str]: ...
    @property
    def name(self) -> str: ...


def identifier_of(wire: NamedEntry, what: str) -> Identifier:
    """Returns the identifier in a body, checked like one in a path; raises BadRequest."""
    return Identifier(check_namespace(tuple(wire.namespace)), check_name(wire.name, what))
