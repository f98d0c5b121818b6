"""Signed requests sent to real stores: what is inside works, what was not checked is refused by the store."""

import hashlib
import time
import uuid

import httpx
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from nunatak.errors import Forbidden
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.profile import S3Profile, S3Secret
from nunatak.objectstore.signing.s3_signer import S3Signer
from nunatak.objectstore.storage import AccessLevel, CredentialScope, SignedRequest, SigningRequest
from tests.support.object_stores import REGION, S3Emulator


class Table:
    """A folder in a bucket, and a client without keys that has every request signed."""

    def __init__(self, store: S3Emulator) -> None:
        self.store = store
        self.bucket = store.new_bucket()
        self.prefix = f"wh/{uuid.uuid4().hex}"
        place = parse_location(store.location(self.bucket, self.prefix))
        self.scope = CredentialScope("ada", "u", (place,), AccessLevel.READ_WRITE)
        self.signer = S3Signer(store.profile(verifies_bodies=True), store.secret, lambda: int(time.time() * 1000))

    def uri(self, key: str, query: str = "") -> str:
        return f"{self.store.endpoint}/{self.bucket}/{key}{query}"

    def sign(self, method: str, uri: str, body: str | None = None) -> SignedRequest:
        return self.signer.sign(SigningRequest(method, uri, REGION, {}, body), self.scope)

    def send(self, method: str, uri: str, content: bytes = b"", body: str | None = None) -> httpx.Response:
        signed = self.sign(method, uri, body)
        headers = {name: values[0] for name, values in signed.headers.items()}
        return httpx.request(method, signed.uri, headers=headers, content=content)


@pytest.fixture
def table(s3_store: S3Emulator) -> Table:
    return Table(s3_store)


def test_a_client_without_keys_works_with_signatures(table: Table) -> None:
    key = f"{table.prefix}/data/day%3D2026-01-01/a%20b%2Bc.parquet"
    assert table.send("PUT", table.uri(key), b"rows").status_code == 200
    assert table.send("GET", table.uri(key)).content == b"rows"
    assert table.send("HEAD", table.uri(key)).status_code == 200
    listed = table.send("GET", table.uri("", f"?list-type=2&prefix={table.prefix.replace('/', '%2F')}%2F"))
    assert b"a b+c.parquet" in listed.content
    names = "".join(f"<Object><Key>{table.prefix}/data/day=2026-01-01/a b+c.parquet</Key></Object>")
    body = f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{names}</Delete>'
    assert table.send("POST", table.uri("", "?delete").replace("/?", "?"), body.encode(), body).status_code == 200
    assert table.send("HEAD", table.uri(key)).status_code == 404


def test_a_multipart_upload_is_signed_step_by_step(table: Table) -> None:
    uri = table.uri(f"{table.prefix}/data/large.parquet")
    begun = table.send("POST", f"{uri}?uploads")
    upload = begun.text.partition("<UploadId>")[2].partition("</UploadId>")[0]
    part = table.send("PUT", f"{uri}?partNumber=1&uploadId={upload}", b"x" * 100)
    etag = part.headers["etag"]
    done = (
        f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    )
    assert table.send("POST", f"{uri}?uploadId={upload}", done.encode()).status_code == 200
    assert table.send("GET", uri).content == b"x" * 100


def test_a_signature_opens_nothing_but_what_it_was_made_for(table: Table) -> None:
    other = f"wh/{uuid.uuid4().hex}/secret"
    table.store.client().put_object(Bucket=table.bucket, Key=other, Body=b"secret")
    signed = table.sign("GET", table.uri(f"{table.prefix}/a"))
    headers = {name: values[0] for name, values in signed.headers.items()}

    assert httpx.get(table.uri(other), headers=headers).status_code == 403
    assert httpx.put(table.uri(f"{table.prefix}/a"), headers=headers, content=b"x").status_code == 403
    with pytest.raises(Forbidden):
        table.sign("GET", table.uri(other))


def test_the_signature_of_a_delete_covers_its_list(table: Table) -> None:
    """A store that compares the hash, as Amazon's does, refuses another list. These two makes do not compare it."""
    body = f"<Delete><Object><Key>{table.prefix}/a</Key></Object></Delete>"
    signed = table.sign("POST", table.uri("", "?delete").replace("/?", "?"), body)

    assert signed.headers["X-Amz-Content-SHA256"] == [hashlib.sha256(body.encode()).hexdigest()]
    assert ";x-amz-content-sha256;" in signed.headers["Authorization"][0]


def test_a_copy_cannot_be_smuggled_into_a_signed_write(seaweedfs_store: S3Emulator) -> None:
    """Amazon refuses headers of its own that are not signed, and so does SeaweedFS; ministack does not look."""
    table = Table(seaweedfs_store)
    victim = f"wh/{uuid.uuid4().hex}/file"
    table.store.client().put_object(Bucket=table.bucket, Key=victim, Body=b"secret")
    uri = table.uri(f"{table.prefix}/mine")
    signed = table.sign("PUT", uri)
    headers = {name: values[0] for name, values in signed.headers.items()}

    httpx.put(uri, headers={**headers, "x-amz-copy-source": f"/{table.bucket}/{victim}"}, content=b"")

    assert table.send("GET", uri).status_code == 404


@pytest.mark.parametrize("token", [None, "a-token"])
def test_signatures_are_those_of_amazons_own_library(token: str | None) -> None:
    keys = S3Secret("AKIA", "secret", token)
    moment = int(time.time() * 1000)
    uri = "https://127.0.0.1:9/lake/wh/t1/day%3D1/a%20b?partNumber=1&uploadId=x%2By"
    place = parse_location("s3://lake/wh/t1")
    signer = S3Signer(S3Profile(endpoint="https://127.0.0.1:9"), lambda: keys, lambda: moment)
    ours = signer.sign(
        SigningRequest("PUT", uri, REGION, {"x-amz-te": ["append-md5"], "Content-MD5": ["abc"]}),
        CredentialScope("ada", "u", (place,), AccessLevel.READ_WRITE),
    )
    theirs = AWSRequest("PUT", uri, headers={"x-amz-te": "append-md5", "Content-MD5": "abc"})
    theirs.context["client_config"] = None
    theirs.context["payload_signing_enabled"] = False
    theirs.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
    S3SigV4Auth(Credentials("AKIA", "secret", token), "s3", REGION).add_auth(theirs)

    if ours.headers["X-Amz-Date"] == [theirs.context["timestamp"]]:  # else the clock passed a second in between
        assert ours.headers["Authorization"] == [theirs.headers["Authorization"]]


def test_the_derived_key_follows_a_rotation_and_the_day() -> None:
    now = [1_700_000_000_000]
    keys = [S3Secret("A", "one")]
    signer = S3Signer(S3Profile(endpoint="http://h:1"), lambda: keys[0], lambda: now[0])
    asked = SigningRequest("GET", "http://h:1/b/t/a", REGION, {})
    scope = CredentialScope("ada", "u", (parse_location("s3://b/t"),), AccessLevel.READ)
    seen = {signer.sign(asked, scope).headers["Authorization"][0]}
    keys[0] = S3Secret("A", "two")
    seen.add(signer.sign(asked, scope).headers["Authorization"][0])
    now[0] += 86_400_000
    seen.add(signer.sign(asked, scope).headers["Authorization"][0])
    assert len(seen) == 3
