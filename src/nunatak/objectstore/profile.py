"""Storage profiles: where the files of a warehouse lie and how they are reached, without any secret.

A profile is stored as JSON with the warehouse; its secret is encrypted apart from it, so that a profile can be shown.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Endpoint = Annotated[str, Meta(pattern=r"^https?://[^/?#@\s]+(/[^?#@\s]*)?$", max_length=500)]
Word = Annotated[str, Meta(min_length=1, max_length=300)]
# How clients get at the data files of a table. `none`: clients need credentials of their own.
Delegation = Literal["vended-credentials", "remote-signing", "none"]

# Java and Trino ask for new credentials before every operation when five minutes or less are left.
MIN_SESSION_SECONDS, MAX_SESSION_SECONDS = 900, 43_200


class LocalProfile(msgspec.Struct, frozen=True, tag="local", tag_field="type", forbid_unknown_fields=True):
    """A folder of the server's own machine, or one that all servers mount."""


class S3Profile(
    msgspec.Struct, frozen=True, kw_only=True, tag="s3", tag_field="type", rename="kebab", forbid_unknown_fields=True
):
    """Amazon S3, or a store that speaks its protocol: then `endpoint` is set."""

    region: Word = "us-east-1"
    endpoint: Endpoint | None = None
    path_style: bool | None = None  # None: only with an endpoint
    sts_endpoint: Endpoint | None = None  # None: the endpoint of the store, or AWS
    role_arn: Word | None = None  # assumed for each vended credential
    external_id: Word | None = None
    delegation: tuple[Delegation, ...] = ("vended-credentials", "remote-signing")
    static_keys: bool = False  # hands the warehouse's own keys to clients: the last resort for stores without STS
    session_tags: bool = True  # names principal and table in the session; AWS only, its role must allow sts:TagSession
    session_seconds: Annotated[int, Meta(ge=MIN_SESSION_SECONDS, le=MAX_SESSION_SECONDS)] = 3600
    verifies_bodies: bool | None = None  # whether the store compares a body with its signed hash; None: only AWS does

    @property
    def uses_path_style(self) -> bool:
        return self.endpoint is not None if self.path_style is None else self.path_style

    @property
    def is_aws(self) -> bool:
        """Whether policy variables such as ${*} are known to work: other makes of S3 take them literally."""
        return self.endpoint is None


class AdlsProfile(
    msgspec.Struct, frozen=True, kw_only=True, tag="adls", tag_field="type", rename="kebab", forbid_unknown_fields=True
):
    """Azure Data Lake Storage Gen2; the location is abfss://container@account.dfs.core.windows.net/path."""

    endpoint: Endpoint | None = None  # of the blob service, with the account where the host does not name it
    tenant_id: Word | None = None
    hierarchical: bool = True  # a namespace with directories; SAS tokens of a directory need one
    delegation: tuple[Delegation, ...] = ("vended-credentials",)
    session_seconds: Annotated[int, Meta(ge=MIN_SESSION_SECONDS, le=MAX_SESSION_SECONDS)] = 3600


class GcsProfile(
    msgspec.Struct, frozen=True, kw_only=True, tag="gcs", tag_field="type", rename="kebab", forbid_unknown_fields=True
):
    """Google Cloud Storage; the location is gs://bucket/path."""

    endpoint: Endpoint | None = None
    token_endpoint: Endpoint | None = None  # of the token exchange; None: Google's
    project_id: Word | None = None
    delegation: tuple[Delegation, ...] = ("vended-credentials",)
    session_seconds: Annotated[int, Meta(ge=MIN_SESSION_SECONDS, le=3600)] = 3600


StorageProfile = LocalProfile | S3Profile | AdlsProfile | GcsProfile


class _Hidden(msgspec.Struct, frozen=True):
    """Base of secrets: printing, logging or formatting one shows a placeholder."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class S3Secret(_Hidden, frozen=True, tag="s3", tag_field="type", rename="kebab", forbid_unknown_fields=True):
    """The keys of the server. Without a secret the usual chain applies: environment, profile, instance, pod."""

    access_key_id: Word
    secret_access_key: Word
    session_token: Word | None = None


class AdlsSecret(_Hidden, frozen=True, tag="adls", tag_field="type", rename="kebab", forbid_unknown_fields=True):
    """Either an account key, or a client of Entra ID. User-delegation SAS tokens need the second."""

    account_key: Word | None = None
    client_id: Word | None = None
    client_secret: Word | None = None


class GcsSecret(_Hidden, frozen=True, tag="gcs", tag_field="type", rename="kebab", forbid_unknown_fields=True):
    """A service account key, as the JSON text of its file; or an access token, for emulators."""

    service_account_key: Annotated[str, Meta(max_length=20_000)] | None = None
    access_token: Word | None = None


StorageSecret = S3Secret | AdlsSecret | GcsSecret

decode_profile = msgspec.json.Decoder(StorageProfile).decode
decode_secret = msgspec.json.Decoder(StorageSecret).decode


def scheme_of(profile: StorageProfile) -> str:
    """Returns the scheme of the locations that a profile serves."""
    if isinstance(profile, S3Profile):
        return "s3"
    if isinstance(profile, AdlsProfile):
        return "abfss"
    return "gs" if isinstance(profile, GcsProfile) else "file"
