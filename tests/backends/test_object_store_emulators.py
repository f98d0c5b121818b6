"""The stores that other tests rely on: they enforce scopes, create an object once, and fail when told to."""

import json
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from azure.core.credentials import AccessToken
from botocore.exceptions import ClientError
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError
from obstore.store import AzureStore, GCSStore, S3Store

from tests.support.faulty_s3 import FaultyS3, S3Fault, faulty_s3
from tests.support.forwarding import forward
from tests.support.gcs_front import ACCESS_TOKEN_TYPE
from tests.support.object_stores import REGION, AzureEmulator, GcsEmulator, S3Emulator, SessionKeys, ministack
from tests.support.tool_cache import INSTALL_SECONDS

pytestmark = pytest.mark.timeout(INSTALL_SECONDS)  # the first run of all builds the emulators

NO_RETRY: Any = {"max_retries": 0}
FEW_RETRIES: Any = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=5),
    "backoff": {"init_backoff": timedelta(milliseconds=20), "max_backoff": timedelta(milliseconds=50), "base": 2},
}


def policy_for(bucket: str, prefix: str, *, write: bool) -> dict[str, Any]:
    actions = ["s3:GetObject", *(["s3:PutObject", "s3:DeleteObject"] if write else [])]
    listed = {"StringLike": {"s3:prefix": [f"{prefix}/", f"{prefix}/*"]}}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": actions, "Resource": f"arn:aws:s3:::{bucket}/{prefix}/*"},
            {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{bucket}", "Condition": listed},
        ],
    }


def open_s3(
    store: S3Emulator, bucket: str, keys: SessionKeys | None = None, endpoint: str | None = None, retries: Any = None
) -> S3Store:
    session: Any = {"session_token": keys.session_token} if keys else {}
    return S3Store(
        bucket,
        endpoint=endpoint or store.endpoint,
        region=REGION,
        access_key_id=keys.access_key_id if keys else store.access_key_id,
        secret_access_key=keys.secret_access_key if keys else store.secret_access_key,
        client_options={"allow_http": True, "timeout": "5s"},
        retry_config=retries or NO_RETRY,
        **session,
    )


def read(store: Any, path: str) -> bytes:
    return bytes(obstore.get(store, path).bytes())


def refused(attempt: Callable[..., object], *arguments: Any) -> None:
    with pytest.raises((PermissionDeniedError, GenericError), match=r"403|AccessDenied"):
        attempt(*arguments)


def test_keys_of_one_table_open_nothing_else(s3_store: S3Emulator) -> None:
    bucket, other = s3_store.new_bucket(), s3_store.new_bucket()
    root = open_s3(s3_store, bucket)
    for key in ("t1/a", "t2/b", "t10/c"):
        obstore.put(root, key, b"1")
    obstore.put(open_s3(s3_store, other), "t1/a", b"1")
    writer_keys = s3_store.assume_role(policy_for(bucket, "t1", write=True))
    writer = open_s3(s3_store, bucket, writer_keys)
    reader = open_s3(s3_store, bucket, s3_store.assume_role(policy_for(bucket, "t1", write=False)))

    obstore.put(writer, "t1/new", b"2", mode="create")

    assert read(reader, "t1/new") == b"2"
    assert {entry["path"] for entry in obstore.list(reader, "t1").collect()} == {"t1/a", "t1/new"}
    for path in ("t2/b", "t10/c"):
        refused(read, writer, path)
        refused(obstore.put, writer, path, b"3")
        refused(obstore.delete, writer, path)
    refused(lambda: obstore.list(writer).collect())
    refused(lambda: obstore.list(writer, "t10").collect())
    refused(lambda: read(open_s3(s3_store, other, writer_keys), "t1/a"))
    refused(lambda: obstore.put(reader, "t1/x", b"3"))
    refused(lambda: obstore.delete(reader, "t1/new"))
    assert read(root, "t10/c") == b"1"


def test_a_wrong_secret_is_refused(s3_store: S3Emulator) -> None:
    bucket = s3_store.new_bucket()
    forged = SessionKeys(s3_store.access_key_id, "not the secret", "")
    with closing(s3_store.client(keys=forged)) as s3, pytest.raises(ClientError, match=r"SignatureDoesNotMatch|403"):
        s3.list_objects_v2(Bucket=bucket)


def test_a_role_is_assumed_only_with_its_external_id(ministack_store: S3Emulator) -> None:
    with closing(ministack_store.client("sts")) as sts:
        assert sts.assume_role(RoleArn=ministack_store.role_arn, RoleSessionName="it", ExternalId="tenant-1")
        for wrong in ({}, {"ExternalId": "tenant-2"}):
            with pytest.raises(ClientError, match="AccessDenied"):
                sts.assume_role(RoleArn=ministack_store.role_arn, RoleSessionName="it", **wrong)


def test_a_role_without_an_external_id_is_assumed_without_one(tmp_path: Path) -> None:
    with ministack(tmp_path, external_id=None) as store:
        bucket = store.new_bucket("plain")

        assert store.assume_role(policy_for(bucket, "t1", write=True)).session_token


def test_a_store_ends_with_the_block_that_started_it(tmp_path: Path) -> None:
    with ministack(tmp_path) as store:
        port = urllib.parse.urlsplit(store.endpoint).port

    listening = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=False)
    assert listening.stdout == ""


@pytest.fixture
def faulty(s3_store: S3Emulator) -> Iterator[tuple[FaultyS3, S3Store, S3Store]]:
    """The proxy; its bucket through it, asked again on failure; and the bucket behind it."""
    bucket = s3_store.new_bucket()
    with faulty_s3(s3_store.endpoint) as proxy:
        through = open_s3(s3_store, bucket, endpoint=proxy.endpoint, retries=FEW_RETRIES)
        yield proxy, through, open_s3(s3_store, bucket)


def test_a_lost_answer_looks_as_if_the_object_belonged_to_another(
    faulty: tuple[FaultyS3, S3Store, S3Store],
) -> None:
    proxy, through, direct = faulty
    proxy.inject("^PUT .*/lost", S3Fault.CUT, times=1)

    with pytest.raises(AlreadyExistsError):
        obstore.put(through, "lost", b"ours", mode="create")

    assert read(direct, "lost") == b"ours"
    assert [(each.fault, each.statuses) for each in proxy.requests] == [(S3Fault.CUT, (200,)), (None, (412,))]


def test_every_request_is_counted_once(faulty: tuple[FaultyS3, S3Store, S3Store]) -> None:
    proxy, through, _ = faulty
    obstore.put(through, "a", b"1", mode="create")
    read(through, "a")
    read(through, "a")

    assert proxy.counts() == {"PUT": 1, "GET": 2}
    assert proxy.counts("^GET .*/a$") == {"GET": 2}
    proxy.forget()
    assert proxy.counts() == {}


@pytest.mark.parametrize(
    ("fault", "reaches_store"),
    [(S3Fault.REFUSE, False), (S3Fault.DROP, False), (S3Fault.TORN, False), (S3Fault.FAIL_AFTER, True)],
)
def test_a_failed_put_did_or_did_not_reach_the_store(
    faulty: tuple[FaultyS3, S3Store, S3Store], s3_store: S3Emulator, fault: S3Fault, reaches_store: bool
) -> None:
    proxy, through, direct = faulty
    once = open_s3(s3_store, str(through.config["bucket"]), endpoint=proxy.endpoint)
    proxy.inject("^PUT", fault, status=503, code="SlowDown")

    with pytest.raises(GenericError):
        obstore.put(once, "a", b"1" * 1000, mode="create")

    found = [entry["path"] for entry in obstore.list(direct).collect()]
    assert found == (["a"] if reaches_store else [])
    assert len(proxy.requests) == 1


def test_a_fault_that_ends_is_overcome(faulty: tuple[FaultyS3, S3Store, S3Store]) -> None:
    proxy, through, direct = faulty
    for fault in (S3Fault.REFUSE, S3Fault.DROP, S3Fault.TORN, S3Fault.SLOW):
        proxy.inject(f"^PUT .*/{fault.name}$", fault, times=1)
        obstore.put(through, fault.name, b"1" * 1000, mode="create")

        assert read(direct, fault.name) == b"1" * 1000
    assert proxy.counts() == {"PUT": 7}


def test_a_request_arrives_twice(faulty: tuple[FaultyS3, S3Store, S3Store]) -> None:
    proxy, through, direct = faulty
    proxy.inject("^PUT", S3Fault.TWICE)

    with pytest.raises(AlreadyExistsError):
        obstore.put(through, "a", b"1", mode="create")

    assert read(direct, "a") == b"1"
    assert proxy.requests[0].statuses == (200, 412)


def test_a_request_arrives_after_the_client_gave_up(
    faulty: tuple[FaultyS3, S3Store, S3Store], s3_store: S3Emulator
) -> None:
    proxy, through, direct = faulty
    once = open_s3(s3_store, str(through.config["bucket"]), endpoint=proxy.endpoint)
    proxy.inject("^PUT", S3Fault.LATE)
    with pytest.raises(GenericError):
        obstore.put(once, "a", b"late", mode="create")

    proxy.heal()

    assert read(direct, "a") == b"late"


def test_faults_of_a_share_are_the_same_for_the_same_seed() -> None:
    def struck(seed: int) -> list[bool]:
        proxy = FaultyS3("http://127.0.0.1:1")
        proxy.seed(seed)
        proxy.inject("PUT", S3Fault.DROP, share=0.3)
        return [proxy.choose(f"PUT /b/{number}") is not None for number in range(200)]

    assert struck(1) == struck(1) != struck(2)
    assert 20 < sum(struck(1)) < 100


def open_azure(store: AzureEmulator, container: str) -> AzureStore:
    return AzureStore(
        container_name=container,
        account_name=store.account,
        account_key=store.account_key,
        endpoint=store.endpoint,
        client_options={"allow_http": True},
        retry_config=NO_RETRY,
    )


def test_azurite_creates_an_object_once(azure_store: AzureEmulator) -> None:
    store = open_azure(azure_store, azure_store.new_bucket())
    obstore.put(store, "t1/a", b"1", mode="create")

    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "t1/a", b"2", mode="create")

    assert read(store, "t1/a") == b"1"


def test_azurite_gives_out_user_delegation_keys(azure_oauth_store: AzureEmulator) -> None:
    now = datetime.now(UTC)
    with azure_oauth_store.client(_TokenCredential(azure_oauth_store.access_token())) as service:
        key = service.get_user_delegation_key(now - timedelta(minutes=15), now + timedelta(hours=1))

    assert key.value
    assert key.signed_tid == azure_oauth_store.profile().tenant_id


class _TokenCredential:
    """Hands out one token, as azure.core asks for one."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *_: str, **__: Any) -> Any:
        return AccessToken(self._token, 2**31)


def open_gcs(store: GcsEmulator, bucket: str, token: str) -> GCSStore:
    return GCSStore(
        bucket,
        base_url=store.endpoint,
        bearer_token=token,
        client_options={"allow_http": True},
        retry_config=NO_RETRY,
    )


def downscoped(store: GcsEmulator, rule: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": store.access_token,
        "subject_token_type": ACCESS_TOKEN_TYPE,
        "requested_token_type": ACCESS_TOKEN_TYPE,
        "options": json.dumps({"accessBoundary": {"accessBoundaryRules": [rule]}}),
    }
    headers = [("Host", "127.0.0.1"), ("Content-Type", "application/x-www-form-urlencoded")]
    answer = forward(store.endpoint, "POST", "/v1/token", headers, urllib.parse.urlencode(form).encode())
    return answer.status, json.loads(answer.body)


def rule_for(bucket: str, prefix: str, *roles: str) -> dict[str, Any]:
    objects = f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{prefix}/')"
    listed = f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{prefix}/')"
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [f"inRole:roles/storage.{role}" for role in roles],
        "availabilityCondition": {"expression": f"{objects} || {listed}"},
    }


def test_a_downscoped_token_opens_one_table(gcs_store: GcsEmulator) -> None:
    bucket, other = gcs_store.new_bucket(), gcs_store.new_bucket()
    root = open_gcs(gcs_store, bucket, gcs_store.access_token)
    obstore.put(root, "t1/a", b"1", mode="create")
    obstore.put(root, "t10/c", b"1")
    with pytest.raises(AlreadyExistsError):
        obstore.put(root, "t1/a", b"2", mode="create")
    reading = downscoped(gcs_store, rule_for(bucket, "t1", "objectViewer"))[1]["access_token"]
    writing = downscoped(gcs_store, rule_for(bucket, "t1", "objectUser"))[1]["access_token"]
    reader, writer = open_gcs(gcs_store, bucket, reading), open_gcs(gcs_store, bucket, writing)

    obstore.put(writer, "t1/new", b"2", mode="create")

    assert read(reader, "t1/new") == b"2"
    assert {entry["path"] for entry in obstore.list(reader, "t1").collect()} == {"t1/a", "t1/new"}
    refused(lambda: read(writer, "t10/c"))
    refused(lambda: obstore.put(writer, "t10/x", b"3"))
    refused(lambda: obstore.list(writer).collect())
    refused(lambda: obstore.list(writer, "t10").collect())
    refused(lambda: read(open_gcs(gcs_store, other, writing), "t1/a"))
    refused(lambda: obstore.put(reader, "t1/x", b"3"))
    refused(lambda: obstore.delete(reader, "t1/a"))
    refused(lambda: obstore.copy(writer, "t1/a", "t10/x"))
    obstore.delete(writer, "t1/new")
    gcs_store.front.expire(writing)
    refused(lambda: read(writer, "t1/a"))


def test_whoever_may_only_create_cannot_replace(gcs_store: GcsEmulator) -> None:
    bucket = gcs_store.new_bucket()
    token = downscoped(gcs_store, rule_for(bucket, "t1", "objectCreator"))[1]["access_token"]
    store = open_gcs(gcs_store, bucket, token)
    obstore.put(store, "t1/a", b"1")

    refused(lambda: obstore.put(store, "t1/a", b"2"))


def test_the_exchange_refuses_a_condition_that_it_does_not_understand(gcs_store: GcsEmulator) -> None:
    rule = rule_for(gcs_store.new_bucket(), "it's", "objectViewer")

    assert downscoped(gcs_store, rule)[0] == 400
