"""Vended credentials at real stores: each opens its table and nothing else, ends on time, and its errors are clear."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import parse_qs

import botocore.exceptions
import msgspec
import pytest
from azure.core.credentials import AccessToken
from azure.storage.blob import BlobServiceClient

from nunatak.errors import Forbidden
from nunatak.objectstore.profile import AdlsSecret, GcsSecret, S3Secret, StorageProfile
from nunatak.objectstore.storage import AccessLevel, VendedCredential
from nunatak.objectstore.vending.adls_delegation import AdlsDelegation
from nunatak.objectstore.vending.gcs_token import GcsTokens
from nunatak.objectstore.vending.granted_paths import UngrantablePath
from nunatak.objectstore.vending.s3_sts import S3Sts
from nunatak.objectstore.vending.vendor import NoCredential, Vendor
from nunatak.objectstore.vending.vendors import make_vendor, refresh_properties
from tests.support.forwarding import forward
from tests.support.object_stores import AzureEmulator, GcsEmulator, S3Emulator, SessionKeys
from tests.unit.vending.scopes import ADLS, AWS, COMPATIBLE, a_scope

READ, READ_WRITE = AccessLevel.READ, AccessLevel.READ_WRITE


def vended(vendor: Vendor, *places: str, level: AccessLevel = READ_WRITE) -> VendedCredential:
    async def vend() -> VendedCredential:
        try:
            return await vendor.vend(a_scope(*places, level=level))
        finally:
            await vendor.close()

    return asyncio.run(vend())


def keys_of(credential: VendedCredential) -> SessionKeys:
    config = credential.config
    return SessionKeys(config["s3.access-key-id"], config["s3.secret-access-key"], config["s3.session-token"])


# S3


class Lake:
    """A bucket with a file in each of several folders."""

    def __init__(self, store: S3Emulator) -> None:
        self.store = store
        self.bucket = store.new_bucket()
        with closing(store.client()) as s3:
            for key in ("wh/t1/data/a", "wh/t10/data/a", "wh/t2/data/a", "wh/a", "t1/data/a", "wh2/wh/t1/data/a"):
                s3.put_object(Bucket=self.bucket, Key=key, Body=b"x")

    def location(self, path: str) -> str:
        return self.store.location(self.bucket, path)

    def sts(self, **changes: Any) -> S3Sts:
        return S3Sts(self.store.profile(**changes), self.store.secret())


@pytest.fixture
def lake(s3_store: S3Emulator) -> Lake:
    return Lake(s3_store)


@pytest.fixture
def one_lake(ministack_store: S3Emulator) -> Lake:
    return Lake(ministack_store)


@pytest.fixture
def open_clients() -> Iterator[list[Any]]:
    opened: list[Any] = []
    yield opened
    for each in opened:
        each.close()


def error_of(call: Any, **parameters: Any) -> str | None:
    """Returns the code of the store's error, or None if the call succeeded."""
    try:
        call(**parameters)
    except botocore.exceptions.ClientError as error:
        return str(error.response["Error"]["Code"])
    return None


def is_refused(call: Any, **parameters: Any) -> bool:
    """Whether the store refuses the call for lack of a right; any other error is one of the test."""
    code = error_of(call, **parameters)
    assert code in (None, "AccessDenied"), code
    return code is not None


OUTSIDE = ["wh/t10/data/a", "wh/t2/data/a", "wh/a", "t1/data/a", "wh2/wh/t1/data/a", "wh/t1"]


def test_a_writers_keys_open_their_table_and_nothing_else(lake: Lake, open_clients: list[Any]) -> None:
    credential = vended(lake.sts(), lake.location("wh/t1"))
    s3 = lake.store.client(keys=keys_of(credential))
    open_clients.append(s3)
    there = {"Bucket": lake.bucket}

    assert s3.get_object(**there, Key="wh/t1/data/a")["Body"].read() == b"x"
    s3.put_object(**there, Key="wh/t1/data/new", Body=b"y")
    s3.delete_object(**there, Key="wh/t1/data/new")
    upload = s3.create_multipart_upload(**there, Key="wh/t1/data/big")["UploadId"]
    s3.abort_multipart_upload(**there, Key="wh/t1/data/big", UploadId=upload)
    for prefix in ("wh/t1/", "wh/t1/data/"):
        assert [each["Key"] for each in s3.list_objects_v2(**there, Prefix=prefix)["Contents"]] == ["wh/t1/data/a"]

    for key in OUTSIDE:
        assert is_refused(s3.get_object, **there, Key=key), key
        assert is_refused(s3.put_object, **there, Key=key, Body=b"z"), key
        assert is_refused(s3.delete_object, **there, Key=key), key
    for prefix in ("", "wh", "wh/", "wh/t", "wh/t1", "wh/t10/", "wh/t2/", "t1/"):
        assert is_refused(s3.list_objects_v2, **there, Prefix=prefix), prefix
    assert is_refused(s3.list_objects_v2, **there)
    other = lake.store.new_bucket()
    assert is_refused(s3.put_object, Bucket=other, Key="wh/t1/data/a", Body=b"z")


def test_a_readers_keys_write_and_delete_nothing(lake: Lake, open_clients: list[Any]) -> None:
    credential = vended(lake.sts(), lake.location("wh/t1"), level=READ)
    s3 = lake.store.client(keys=keys_of(credential))
    open_clients.append(s3)
    there = {"Bucket": lake.bucket}

    assert s3.get_object(**there, Key="wh/t1/data/a")["Body"].read() == b"x"
    assert s3.list_objects_v2(**there, Prefix="wh/t1/")["KeyCount"] == 1
    for key in ("wh/t1/data/a", "wh/t1/data/new", *OUTSIDE):
        assert is_refused(s3.put_object, **there, Key=key, Body=b"z"), key
        assert is_refused(s3.delete_object, **there, Key=key), key
    assert is_refused(s3.create_multipart_upload, **there, Key="wh/t1/data/big")


def test_a_table_with_two_places_gets_both(lake: Lake, open_clients: list[Any]) -> None:
    credential = vended(lake.sts(), lake.location("wh/t1"), lake.location("wh/t2"), level=READ)
    s3 = lake.store.client(keys=keys_of(credential))
    open_clients.append(s3)

    for key in ("wh/t1/data/a", "wh/t2/data/a"):
        assert s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"x"
    assert is_refused(s3.get_object, Bucket=lake.bucket, Key="wh/t10/data/a")


def test_a_credential_says_when_it_ends_and_what_it_is_for(lake: Lake) -> None:
    credential = vended(lake.sts(session_seconds=1800), lake.location("wh/t1"))

    assert credential.prefix == lake.location("wh/t1")
    assert abs(credential.expires_ms - time.time() * 1000 - 1_800_000) < 60_000
    assert credential.config["s3.session-token-expires-at-ms"] == str(credential.expires_ms)


def test_keys_end_with_their_session(one_lake: Lake, open_clients: list[Any]) -> None:
    credential = vended(one_lake.sts(session_seconds=1), one_lake.location("wh/t1"))
    s3 = one_lake.store.client(keys=keys_of(credential))
    open_clients.append(s3)

    there = {"Bucket": one_lake.bucket, "Key": "wh/t1/data/a"}
    codes = {error_of(s3.get_object, **there)}
    for _ in range(50):
        time.sleep(0.1)
        codes.add(error_of(s3.get_object, **there))

    assert codes - {None} == {"ExpiredToken"}


def test_a_wrong_external_id_and_wrong_keys_get_nothing(one_lake: Lake) -> None:
    place = one_lake.location("wh/t1")
    with pytest.raises(NoCredential, match="AccessDenied"):
        vended(one_lake.sts(external_id="another"), place)
    with pytest.raises(NoCredential) as refused:
        vended(S3Sts(one_lake.store.profile(), S3Secret("AKIAUNKNOWN", "a-secret-that-is-wrong")), place)

    assert "a-secret-that-is-wrong" not in str(refused.value)


def test_an_unreachable_token_service_is_no_credential() -> None:
    profile = msgspec.structs.replace(COMPATIBLE, sts_endpoint="http://127.0.0.1:9")

    with pytest.raises(NoCredential, match="cannot be used"):
        vended(S3Sts(profile, S3Secret("key", "secret")), "s3://lake/wh/t1")


def test_without_a_role_no_credential_is_limited_to_a_table(one_lake: Lake) -> None:
    with pytest.raises(Forbidden, match="no role"):
        vended(one_lake.sts(role_arn=None), one_lake.location("wh/t1"))


def test_a_path_with_a_wildcard_never_reaches_the_token_service(one_lake: Lake) -> None:
    with pytest.raises(UngrantablePath):
        vended(one_lake.sts(endpoint="http://127.0.0.1:9"), one_lake.location("wh/*"))


def test_amazon_is_sent_session_tags_and_others_are_not() -> None:
    scope = a_scope("s3://lake/wh/t", principal="Ana Ñ")
    sent = S3Sts(AWS, None)._parameters(scope, "{}")

    assert {tag["Key"]: tag["Value"] for tag in sent["Tags"]} == {
        "nunatak-principal": sent["RoleSessionName"],
        "nunatak-table": scope.table_uuid,
    }
    for profile in (COMPATIBLE, msgspec.structs.replace(AWS, session_tags=False)):
        assert "Tags" not in S3Sts(profile, None)._parameters(scope, "{}")


def test_static_keys_are_handed_out_only_when_switched_on(one_lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    profile = one_lake.store.profile(static_keys=True)
    credential = vended(make_vendor(profile, one_lake.store.secret()), one_lake.location("wh/t1"))

    assert credential.config == {
        "s3.access-key-id": one_lake.store.access_key_id,
        "s3.secret-access-key": one_lake.store.secret_access_key,
    }
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert one_lake.store.secret_access_key not in caplog.text
    assert refresh_properties(profile, "v1/credentials") == {}
    with pytest.raises(Forbidden, match="no keys"):
        vended(make_vendor(profile, None), one_lake.location("wh/t1"))


def test_a_warehouse_without_vending_vends_nothing(one_lake: Lake) -> None:
    profile = one_lake.store.profile(delegation=("remote-signing",))
    with pytest.raises(Forbidden, match="vends no"):
        vended(make_vendor(profile, one_lake.store.secret()), one_lake.location("wh/t1"))
    with pytest.raises(Forbidden, match="another kind"):
        make_vendor(one_lake.store.profile(), GcsSecret(access_token="token"))


# GCS


def gcs_status(store: GcsEmulator, credential: VendedCredential, method: str, path: str, body: bytes = b"") -> int:
    headers = (("Authorization", f"Bearer {credential.config['gcs.oauth2.token']}"), ("Host", "127.0.0.1"))
    return forward(store.endpoint, method, path, headers, body).status


@pytest.mark.parametrize("level", [READ, READ_WRITE], ids=lambda level: level.value)
def test_a_downscoped_token_opens_its_table_and_nothing_else(gcs_store: GcsEmulator, level: AccessLevel) -> None:
    bucket = gcs_store.new_bucket()
    root = VendedCredential("", {"gcs.oauth2.token": gcs_store.access_token}, 0)
    upload = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name="
    for name in ("wh%2Ft1%2Fa", "wh%2Ft10%2Fa"):
        assert gcs_status(gcs_store, root, "POST", upload + name, b"x") == 200

    credential = vended(
        GcsTokens(gcs_store.profile(), gcs_store.secret()), gcs_store.location(bucket, "wh/t1"), level=level
    )

    def status(method: str, path: str, body: bytes = b"") -> int:
        return gcs_status(gcs_store, credential, method, path, body)

    objects = f"/storage/v1/b/{bucket}/o"
    assert status("GET", f"{objects}/wh%2Ft1%2Fa?alt=media") == 200
    assert status("GET", f"{objects}?prefix=wh/t1/") == 200
    for path in (f"{objects}/wh%2Ft10%2Fa?alt=media", f"{objects}?prefix=wh/t1", f"{objects}?prefix=wh/", objects):
        assert status("GET", path) == 403, path
    assert status("POST", f"{upload}wh%2Ft10%2Fnew", b"x") == 403
    assert status("POST", f"{upload}wh%2Ft1%2Fnew", b"x") == (200 if level is READ_WRITE else 403)
    assert status("DELETE", f"{objects}/wh%2Ft1%2Fa") == (200 if level is READ_WRITE else 403)
    assert abs(credential.expires_ms - time.time() * 1000 - 3_600_000) < 60_000


def test_a_refused_token_exchange_is_no_credential(gcs_store: GcsEmulator) -> None:
    with pytest.raises(NoCredential, match="40"):
        vended(GcsTokens(gcs_store.profile(), GcsSecret(access_token="forged")), "gs://lake/wh/t1")
    profile = gcs_store.profile(token_endpoint="http://127.0.0.1:9/token")
    with pytest.raises(NoCredential, match="cannot be used"):
        vended(GcsTokens(profile, gcs_store.secret()), "gs://lake/wh/t1")


# ADLS


class EmulatorToken:
    """A login at Entra ID, as Azurite takes it."""

    def __init__(self, store: AzureEmulator) -> None:
        self._store = store
        self.asked = 0

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.asked += 1
        return AccessToken(self._store.access_token(), int(time.time()) + 3600)


def test_a_sas_is_signed_with_a_delegation_key_that_is_asked_for_once(
    azure_oauth_store: AzureEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azurite has no directories: it issues the key, and the token's terms are read here."""
    asked: list[object] = []
    original = BlobServiceClient.get_user_delegation_key

    def counted(self: BlobServiceClient, *arguments: Any, **named: Any) -> Any:
        asked.append(arguments)
        return original(self, *arguments, **named)

    monkeypatch.setattr(BlobServiceClient, "get_user_delegation_key", counted)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(azure_oauth_store.certificate))
    vendor = AdlsDelegation(azure_oauth_store.profile(), None, EmulatorToken(azure_oauth_store))
    place = azure_oauth_store.location("lake", "wh/sales/t1")

    reading = asyncio.run(vendor.vend(a_scope(place, level=READ)))
    writing = asyncio.run(vendor.vend(a_scope(place, level=READ_WRITE)))
    asyncio.run(vendor.close())

    host = "devstoreaccount1.dfs.core.windows.net"
    assert set(reading.config) == {f"adls.sas-token.{host}", f"adls.sas-token-expires-at-ms.{host}"}
    terms = parse_qs(reading.config[f"adls.sas-token.{host}"])
    assert (terms["sr"], terms["sdd"], terms["sp"], terms["spr"]) == (["d"], ["3"], ["rl"], ["https"])
    assert {"skoid", "sktid", "ske", "sig", "st", "se"} <= terms.keys()
    assert parse_qs(writing.config[f"adls.sas-token.{host}"])["sp"] == ["racwdl"]
    assert len(asked) == 1
    assert (reading.prefix, str(reading.expires_ms)) == (place, reading.config[f"adls.sas-token-expires-at-ms.{host}"])


def test_an_account_key_is_never_used_for_clients() -> None:
    with pytest.raises(Forbidden, match="account key"):
        vended(AdlsDelegation(ADLS, AdlsSecret(account_key="a2V5")), "abfss://lake@company.dfs.core.windows.net/t")


def test_the_refresh_endpoint_is_named_as_each_client_reads_it(gcs_store: GcsEmulator) -> None:
    endpoint = "v1/lake/namespaces/a/tables/t/credentials"
    stems: dict[str, StorageProfile] = {"client": COMPATIBLE, "gcs.oauth2": gcs_store.profile(), "adls": ADLS}
    for stem, profile in stems.items():
        assert refresh_properties(profile, endpoint) == {
            f"{stem}.refresh-credentials-enabled": "true",
            f"{stem}.refresh-credentials-endpoint": endpoint,
        }, json.dumps(stem)
