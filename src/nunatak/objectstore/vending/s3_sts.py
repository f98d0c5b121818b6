"""Vends S3 credentials: AssumeRole with a session policy, at AWS or at a store with an STS of its own."""

import logging
import time
from typing import Any

from nunatak.errors import Forbidden
from nunatak.objectstore.extras import load_library
from nunatak.objectstore.profile import S3Profile, S3Secret
from nunatak.objectstore.storage import CredentialScope, VendedCredential
from nunatak.objectstore.vending.granted_paths import UngrantablePath
from nunatak.objectstore.vending.s3_policy import policy_text, session_policy
from nunatak.objectstore.vending.vendor import (
    CONNECT_SECONDS,
    READ_SECONDS,
    THREADS,
    MadeOnce,
    NoCredential,
    VendingThreads,
    session_name,
)

log = logging.getLogger(__name__)

# STS refuses the policy itself: a wider one is never tried.
_POLICY_REFUSED = frozenset({"PackedPolicyTooLarge", "PackedPolicyTooLargeException", "MalformedPolicyDocument"})


class S3Sts:
    """Vendor for warehouses with a role; one STS client, made when the first credential is asked for."""

    def __init__(self, profile: S3Profile, secret: S3Secret | None) -> None:
        self._profile, self._secret = profile, secret
        self._threads = VendingThreads()
        self._client = MadeOnce(self._make_client)

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        if self._profile.role_arn is None:
            raise Forbidden(
                "The warehouse has no role to assume, so no credential can be limited to a table",
                hint="Set role-arn in its storage profile.",
            )
        policy = policy_text(session_policy(self._profile, scope))
        return await self._threads.run(lambda: self._assume(scope, policy))

    async def close(self) -> None:
        self._threads.close()

    def _assume(self, scope: CredentialScope, policy: str) -> VendedCredential:
        exceptions = load_library("botocore.exceptions", "s3")
        client: Any = self._client.get()
        try:
            answer = client.assume_role(**self._parameters(scope, policy))
        except exceptions.ClientError as error:
            raise _translated(error) from error
        except exceptions.BotoCoreError as error:
            raise NoCredential(f"The token service of the warehouse cannot be used: {type(error).__name__}") from error
        issued = answer["Credentials"]
        expires_ms = int(issued["Expiration"].timestamp() * 1000)
        config = {
            "s3.access-key-id": issued["AccessKeyId"],
            "s3.secret-access-key": issued["SecretAccessKey"],
            "s3.session-token": issued["SessionToken"],
            "s3.session-token-expires-at-ms": str(expires_ms),
        }
        return VendedCredential(str(scope.places[0]), config, expires_ms)

    def _parameters(self, scope: CredentialScope, policy: str) -> dict[str, Any]:
        profile = self._profile
        parameters: dict[str, Any] = {
            "RoleArn": profile.role_arn,
            "RoleSessionName": session_name(scope.principal),
            "DurationSeconds": profile.session_seconds,
            "Policy": policy,
        }
        if profile.external_id is not None:
            parameters["ExternalId"] = profile.external_id
        if profile.is_aws and profile.session_tags:
            parameters["Tags"] = [
                {"Key": "nunatak-principal", "Value": session_name(scope.principal)},
                {"Key": "nunatak-table", "Value": scope.table_uuid},
            ]
        return parameters

    def _make_client(self) -> object:
        session = load_library("botocore.session", "s3").Session()
        config = load_library("botocore.config", "s3").Config(
            retries={"max_attempts": 0},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=THREADS,
            parameter_validation=False,  # the profile and `session_policy` were checked before
        )
        keys: dict[str, str | None] = {}
        if self._secret is not None:
            keys = {
                "aws_access_key_id": self._secret.access_key_id,
                "aws_secret_access_key": self._secret.secret_access_key,
                "aws_session_token": self._secret.session_token,
            }
        endpoint = self._profile.sts_endpoint or self._profile.endpoint
        client: object = session.create_client(
            "sts", region_name=self._profile.region, endpoint_url=endpoint, config=config, **keys
        )
        return client


class StaticKeys:
    """Vendor that hands out the warehouse's own keys: not limited to a table, and not ending by themselves."""

    def __init__(self, profile: S3Profile, secret: S3Secret | None) -> None:
        self._profile, self._secret = profile, secret
        if secret is not None:
            log.warning(
                "static-keys is on for a warehouse: clients that may read one table get keys that open every table "
                "of the warehouse, also for writing"
            )

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        if self._secret is None:
            raise Forbidden("The warehouse has static-keys switched on, but no keys", hint="Give it a secret.")
        config = {
            "s3.access-key-id": self._secret.access_key_id,
            "s3.secret-access-key": self._secret.secret_access_key,
        }
        if self._secret.session_token is not None:
            config["s3.session-token"] = self._secret.session_token
        expires_ms = int(time.time() * 1000) + self._profile.session_seconds * 1000
        return VendedCredential(str(scope.places[0]), config, expires_ms)

    async def close(self) -> None:
        pass


def _translated(error: Any) -> Forbidden | NoCredential:
    """Returns our error for one of STS; its code and request id help the operator, and neither is secret."""
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    request_id = error.response.get("ResponseMetadata", {}).get("RequestId", "none")
    if code in _POLICY_REFUSED:
        return UngrantablePath(f"STS refused the policy of the table: {code} (request {request_id})")
    return NoCredential(
        f"STS issued no credential: {code} (request {request_id})",
        hint="Check the role's trust policy (sts:AssumeRole, sts:TagSession, the external id) and the server's keys.",
    )
