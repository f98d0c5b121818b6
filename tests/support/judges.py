"""What a vended credential of each kind permits, as the independent evaluator says; one adapter per kind of store."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from azure.storage.filedatalake import UserDelegationKey, generate_directory_sas

from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import AdlsProfile, GcsProfile, S3Profile
from nunatak.objectstore.storage import AccessLevel, CredentialScope
from nunatak.objectstore.vending.adls_sas import directory_sas
from nunatak.objectstore.vending.gcs_boundary import access_boundary
from nunatak.objectstore.vending.s3_policy import session_policy
from tests.support.evaluator import gcs, sas
from tests.support.evaluator.iam import Dialect, Request, SessionPolicy, list_objects
from tests.support.generated_scopes import GeneratedTable

ROLE = "arn:aws:iam::123456789012:role/vend"
ACCOUNT = "account1"
ACCOUNT_HOST = f"{ACCOUNT}.dfs.core.windows.net"
# Never needed for a table, on an object or on a bucket.
OTHER_ACTIONS = (
    "s3:PutObjectAcl", "s3:PutObjectTagging", "s3:DeleteObjectVersion", "s3:GetObjectVersion", "s3:RestoreObject",
    "s3:PutObjectRetention", "s3:BypassGovernanceRetention", "s3:DeleteBucket", "s3:CreateBucket", "s3:PutBucketPolicy",
    "s3:ListBucketVersions", "s3:PutLifecycleConfiguration", "s3:PutBucketVersioning", "s3:ListAllMyBuckets",
    "iam:PassRole", "sts:AssumeRole",
)  # fmt: skip


class Judge(Protocol):
    """Whether a credential permits an operation; `others` names what else it permits, which should be nothing."""

    def reads(self, bucket: str, key: str) -> bool: ...
    def writes(self, bucket: str, key: str) -> bool: ...
    def deletes(self, bucket: str, key: str) -> bool: ...
    def lists(self, bucket: str, prefix: str | None) -> bool: ...
    def others(self, bucket: str, key: str) -> list[str]: ...


def scope_of(table: GeneratedTable, scheme: str, level: AccessLevel) -> CredentialScope:
    authority = f"{table.bucket}@{ACCOUNT_HOST}" if scheme == "abfss" else table.bucket
    place = Location(scheme, authority, table.segments)
    return CredentialScope(principal="ada", table_uuid="5c1f", places=(place,), level=level)


@dataclass(frozen=True)
class S3Judge:
    policy: SessionPolicy

    def _permits(self, request: Request) -> bool:
        return self.policy.permits(request)

    def reads(self, bucket: str, key: str) -> bool:
        return self._permits(Request("s3:GetObject", bucket, key))

    def writes(self, bucket: str, key: str) -> bool:
        return self._permits(Request("s3:PutObject", bucket, key))

    def deletes(self, bucket: str, key: str) -> bool:
        return self._permits(Request("s3:DeleteObject", bucket, key))

    def lists(self, bucket: str, prefix: str | None) -> bool:
        return self._permits(list_objects(bucket, prefix))

    def others(self, bucket: str, key: str) -> list[str]:
        on_objects = [action for action in OTHER_ACTIONS if self._permits(Request(action, bucket, key))]
        return on_objects + [action for action in OTHER_ACTIONS if self._permits(Request(action, bucket))]


S3Maker = Callable[[S3Profile, CredentialScope], Mapping[str, Any]]


def judge_aws(table: GeneratedTable, level: AccessLevel, maker: S3Maker = session_policy) -> Judge:
    policy = maker(S3Profile(role_arn=ROLE), scope_of(table, "s3", level))
    return S3Judge(SessionPolicy(policy, Dialect.AWS))


def judge_s3_compatible(
    table: GeneratedTable, level: AccessLevel, maker: S3Maker = session_policy, dialect: Dialect = Dialect.LITERAL
) -> Judge:
    profile = S3Profile(role_arn=ROLE, endpoint="http://127.0.0.1:9000")
    return S3Judge(SessionPolicy(maker(profile, scope_of(table, "s3", level)), dialect))


def judge_s3_with_variables(table: GeneratedTable, level: AccessLevel) -> Judge:
    """A store that is not AWS and yet knows policy variables."""
    return judge_s3_compatible(table, level, dialect=Dialect.AWS)


@dataclass(frozen=True)
class GcsJudge:
    boundary: gcs.Boundary

    def reads(self, bucket: str, key: str) -> bool:
        return self.boundary.permits(gcs.get(bucket, key))

    def writes(self, bucket: str, key: str) -> bool:
        return self.boundary.permits(gcs.create(bucket, key))

    def deletes(self, bucket: str, key: str) -> bool:
        return self.boundary.permits(gcs.delete(bucket, key))

    def lists(self, bucket: str, prefix: str | None) -> bool:
        return self.boundary.permits(gcs.list_objects(bucket, prefix or ""))

    def others(self, bucket: str, key: str) -> list[str]:
        return []


GcsMaker = Callable[[GcsProfile, CredentialScope], Mapping[str, Any]]


def judge_gcs(table: GeneratedTable, level: AccessLevel, maker: GcsMaker = access_boundary) -> Judge:
    return GcsJudge(gcs.Boundary(maker(GcsProfile(), scope_of(table, "gs", level))))


@dataclass(frozen=True)
class AdlsJudge:
    token: sas.Sas
    now: datetime

    def _permits(self, container: str, path: str, permission: str) -> bool:
        return self.token.permits(sas.Request(container, path, permission), self.now)

    def reads(self, bucket: str, key: str) -> bool:
        return self._permits(bucket, key, sas.READ)

    def writes(self, bucket: str, key: str) -> bool:
        return self._permits(bucket, key, sas.WRITE)

    def deletes(self, bucket: str, key: str) -> bool:
        return self._permits(bucket, key, sas.DELETE)

    def lists(self, bucket: str, prefix: str | None) -> bool:
        return self._permits(bucket, prefix or "", sas.LIST)

    def others(self, bucket: str, key: str) -> list[str]:
        needs = (sas.SET_OWNER, sas.SET_PERMISSIONS)
        return [permission for permission in needs if self._permits(bucket, key, permission)]


DELEGATION_KEY = sas.DelegationKey(base64.b64encode(b"a key of the account").decode(), "object", "tenant")
NOW_MS = 1_795_000_000_000


def sdk_delegation_key() -> UserDelegationKey:
    """Returns the key as the SDK holds it."""
    key: Any = UserDelegationKey()  # type: ignore[no-untyped-call]
    key.signed_oid, key.signed_tid = DELEGATION_KEY.object_id, DELEGATION_KEY.tenant_id
    key.signed_start, key.signed_expiry = "2026-11-18T00:00:00Z", "2026-11-25T00:00:00Z"
    key.signed_service, key.signed_version = "b", "2025-07-05"
    key.value, key.signed_delegated_user_tid = DELEGATION_KEY.value, None
    return key


def judge_adls(table: GeneratedTable, level: AccessLevel) -> Judge:
    terms = directory_sas(AdlsProfile(tenant_id="tenant"), scope_of(table, "abfss", level), NOW_MS)
    token = generate_directory_sas(
        terms.account,
        terms.container,
        terms.directory,
        sdk_delegation_key(),
        permission=terms.permissions,
        start=terms.starts,
        expiry=terms.expires,
        protocol="https",
    )
    now = datetime.fromtimestamp(NOW_MS / 1000, terms.starts.tzinfo)
    return AdlsJudge(sas.Sas(ACCOUNT, token, DELEGATION_KEY), now)


JUDGES: dict[str, Callable[[GeneratedTable, AccessLevel], Judge]] = {
    "S3": judge_aws,
    "S3-compatible": judge_s3_compatible,
    "S3-compatible with variables": judge_s3_with_variables,
    "GCS": judge_gcs,
    "ADLS": judge_adls,
}
