"""The self-test of stores: what good ones pass, and what is found out about the others; each on a real store."""

import asyncio
import contextlib
import http.client
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from nunatak.errors import BadRequest
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.opening import open_storage
from nunatak.objectstore.profile import LocalProfile, S3Secret, StorageProfile, StorageSecret
from nunatak.objectstore.self_test import CheckStep, check_storage, passed
from tests.support.object_stores import AzureEmulator, GcsEmulator, S3Emulator
from tests.support.ports import free_port

INSIDE = ["clock", "write", "create-only", "read", "list", "delete"]
SCOPE = ["vend", "scope: inside works", "scope: read-only", "scope: sibling folder", "scope: parent folder"]


def check(profile: StorageProfile, secret: StorageSecret | None, *locations: str, **more: Any) -> dict[str, CheckStep]:
    async def once() -> list[CheckStep]:
        local = LocalStorage()
        places = [parse_location(each) for each in locations]
        if isinstance(profile, LocalProfile):
            local.allow(places[0])
        storage = open_storage(profile, secret, places[0], local)
        try:
            return await check_storage(storage, secret, places, **more)
        finally:
            await storage.close()

    return {step.name: step for step in asyncio.run(once())}


def failed(steps: dict[str, CheckStep]) -> list[str]:
    return [name for name, step in steps.items() if step.outcome == "failed"]


def keys_in(store: S3Emulator, bucket: str) -> Sequence[str]:
    with contextlib.closing(store.client()) as client:
        return [each["Key"] for each in client.list_objects_v2(Bucket=bucket).get("Contents", ())]


def test_a_store_that_enforces_scope_passes_every_step(s3_store: S3Emulator) -> None:
    bucket = s3_store.new_bucket()
    other = s3_store.new_bucket()

    steps = check(s3_store.profile(), s3_store.secret(), s3_store.location(bucket, "lake"))

    assert [*steps] == [*INSIDE, "sign", *SCOPE, "scope: other bucket"]
    assert {name: step.detail for name, step in steps.items() if step.outcome != "ok"} == {}
    assert steps["scope: other bucket"].detail == ""  # it was tried
    assert keys_in(s3_store, bucket) == [], "test files are left behind"
    assert keys_in(s3_store, other) == []


def test_a_whole_bucket_can_be_a_warehouse(ministack_store: S3Emulator) -> None:
    bucket = ministack_store.new_bucket()

    steps = check(ministack_store.profile(), ministack_store.secret(), ministack_store.location(bucket))

    assert failed(steps) == []


def test_a_store_that_does_not_enforce_scope_fails_with_the_evidence(moto_store: S3Emulator) -> None:
    bucket, other = moto_store.new_bucket(), moto_store.new_bucket()

    steps = check(moto_store.profile(), moto_store.secret(), moto_store.location(bucket, "lake"))

    assert failed(steps) == [*SCOPE[2:], "scope: other bucket"]
    for name in failed(steps):
        assert "does not enforce the scope" in steps[name].detail
    assert f"wrote s3://{bucket}/lake/nunatak-self-test-" in steps["scope: sibling folder"].detail
    assert "table0/new.txt" in steps["scope: sibling folder"].detail
    assert "read-only: a credential for one table wrote" in steps["scope: read-only"].detail
    assert other in steps["scope: other bucket"].detail or "wrote s3://" in steps["scope: other bucket"].detail
    assert keys_in(moto_store, bucket) == []
    assert keys_in(moto_store, other) == []


def test_such_a_store_passes_when_nothing_is_vended(moto_store: S3Emulator) -> None:
    profile = moto_store.profile(delegation=("remote-signing",))

    steps = check(profile, moto_store.secret(), moto_store.location(moto_store.new_bucket(), "lake"))

    assert (failed(steps), steps["sign"].outcome) == ([], "ok")
    assert "vends no credentials" in steps["scope"].detail


def test_static_keys_are_a_warning(ministack_store: S3Emulator) -> None:
    location = ministack_store.location(ministack_store.new_bucket(), "lake")

    steps = check(ministack_store.profile(static_keys=True), ministack_store.secret(), location)

    assert (failed(steps), steps["scope"].outcome) == ([], "warning")


# Mistakes, named in words


def wrong(store: S3Emulator, bucket: str | None = None, **changes: Any) -> str:
    """What the self-test says about a profile with these mistakes, all failed steps together."""
    location = store.location(bucket or store.new_bucket(), "lake")
    secret = changes.pop("secret", store.secret())
    steps = check(store.profile(**changes), secret, location)
    assert failed(steps), steps
    return " ".join(steps[name].detail for name in failed(steps))


def test_a_wrong_endpoint_is_named(ministack_store: S3Emulator) -> None:
    port = ministack_store.endpoint.rpartition(":")[2]

    assert "Nothing listens" in wrong(ministack_store, endpoint=f"http://127.0.0.1:{free_port()}")
    assert "is not known" in wrong(ministack_store, endpoint="http://no-such-host.invalid")
    assert "does not speak TLS" in wrong(ministack_store, endpoint=f"https://127.0.0.1:{port}")


def test_a_bucket_that_does_not_exist_is_named(ministack_store: S3Emulator) -> None:
    """SeaweedFS makes a bucket for whoever writes into it."""
    assert "bucket nobody-made-this does not exist" in wrong(ministack_store, "nobody-made-this")


def test_wrong_keys_are_named(s3_store: S3Emulator) -> None:
    unknown = S3Secret("AKIAUNKNOWN000000000", "x" * 40)
    mistyped = replace(s3_store.secret(), secret_access_key="x" * 40)

    assert "does not know the access-key-id" in wrong(s3_store, secret=unknown)
    assert "not the one of the access-key-id" in wrong(s3_store, secret=mistyped)


def test_a_role_that_cannot_be_assumed_is_named(ministack_store: S3Emulator) -> None:
    assert "No credential can be vended" in wrong(ministack_store, external_id="another-tenant")
    assert "no role to assume" in wrong(ministack_store, role_arn=None)


def test_a_path_style_that_the_store_does_not_understand_is_named(ministack_store: S3Emulator) -> None:
    with pytest.raises(BadRequest, match="set path-style=true"):
        wrong(ministack_store, path_style=False)


def test_no_secret_is_told(ministack_store: S3Emulator) -> None:
    canary = "c4n4ry" * 7
    steps = check(
        ministack_store.profile(),
        S3Secret(ministack_store.access_key_id, canary),
        ministack_store.location(ministack_store.new_bucket(), "lake"),
    )

    assert failed(steps)
    assert canary not in str(steps)


# Clock, region, create-only: by a store in front that changes the answers


@pytest.fixture
def altered(ministack_store: S3Emulator) -> Iterator[Any]:
    """A proxy before the store; set `date`, `region` and `drops` on it."""

    class Proxy(BaseHTTPRequestHandler):
        date: str | None = None
        region: str | None = None
        ignores_conditions = False
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            host = ministack_store.endpoint.removeprefix("http://")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if type(self).ignores_conditions and "If-None-Match" in self.headers:
                self.overwrite(body)
                return
            headers = dict(self.headers)
            with contextlib.closing(http.client.HTTPConnection(host)) as connection:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            self.send_response_only(answer.status)
            dropped = ("transfer-encoding", "content-length", "connection", "date", "x-amz-bucket-region")
            for name, value in answer.getheaders():
                if name.lower() not in dropped:
                    self.send_header(name, value)
            if type(self).date is not None:
                self.send_header("Date", str(type(self).date))
            if type(self).region is not None:
                self.send_header("x-amz-bucket-region", str(type(self).region))
            length = answer.getheader("content-length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)

        def overwrite(self, body: bytes) -> None:
            _, bucket, key = self.path.split("/", 2)
            with contextlib.closing(ministack_store.client()) as client:
                client.put_object(Bucket=bucket, Key=key, Body=body)
            self.send_response_only(200)
            self.send_header("ETag", '"x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = Thread(target=server.serve_forever)
    thread.start()
    Proxy.endpoint = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    yield Proxy
    server.shutdown()
    thread.join()
    server.server_close()


def through(altered: Any, store: S3Emulator, **more: Any) -> dict[str, CheckStep]:
    # STS directly: the signature of a request names the host.
    profile = store.profile(endpoint=altered.endpoint, sts_endpoint=store.endpoint)
    return check(profile, store.secret(), store.location(store.new_bucket(), "lake"), **more)


@pytest.mark.parametrize(
    ("date", "outcome"),
    [(None, "warning"), ("Tue, 01 Jan 2030 00:00:00 GMT", "failed"), ("yesterday", "warning")],
)
def test_the_clocks_are_compared(altered: Any, ministack_store: S3Emulator, date: str | None, outcome: str) -> None:
    altered.date = date

    clock = through(altered, ministack_store)["clock"]

    assert clock.outcome == outcome
    assert (outcome == "failed") == ("behind the store's" in clock.detail)


def test_a_bucket_lies_where_the_warehouse_declares(altered: Any, ministack_store: S3Emulator) -> None:
    unknown = through(altered, ministack_store, region="eu-central-1")["region"]
    altered.region = "eu-central-1"
    right = through(altered, ministack_store, region="eu-central-1")["region"]
    wrong_one = through(altered, ministack_store, region="eu-west-1")["region"]

    assert (unknown.outcome, right.outcome, wrong_one.outcome) == ("warning", "ok", "failed")
    assert "lies in eu-central-1, but the data must lie in eu-west-1" in wrong_one.detail


def test_a_store_that_ignores_create_only_writes_is_a_warning(altered: Any, ministack_store: S3Emulator) -> None:
    altered.ignores_conditions = True

    steps = through(altered, ministack_store)

    assert (steps["create-only"].outcome, failed(steps)) == ("warning", [])
    assert "If-None-Match is ignored" in steps["create-only"].detail


# Other stores


def test_gcs_is_tested_like_s3(gcs_store: GcsEmulator) -> None:
    location = gcs_store.location(gcs_store.new_bucket(), "lake")

    steps = check(gcs_store.profile(), gcs_store.secret(), location)

    assert [*steps] == [*INSIDE, *SCOPE, "scope: other bucket"]
    assert {name: step.detail for name, step in steps.items() if step.outcome == "failed"} == {}


def test_adls_without_a_directory_sas_is_not_vended(azure_store: AzureEmulator) -> None:
    """Azurite has flat accounts: only with nothing vended does it pass."""
    location = azure_store.location(azure_store.new_bucket(), "lake")

    vending = check(azure_store.profile(), azure_store.secret(), location)
    plain = check(azure_store.profile(delegation=("none",)), azure_store.secret(), location)

    assert failed(vending) == ["vend"]
    assert failed(plain) == []


def test_a_local_folder_is_tested(tmp_path: Path) -> None:
    good = check(LocalProfile(), None, f"file://{tmp_path}/lake")
    (tmp_path / "taken").write_text("a file, not a folder")
    bad = check(LocalProfile(), None, f"file://{tmp_path}/taken")

    assert [*good] == INSIDE[1:]
    assert failed(good) == []
    assert failed(bad) == ["write"]
    assert [*(tmp_path / "lake").rglob("*.txt")] == []


def test_a_read_only_store_is_only_listed(ministack_store: S3Emulator) -> None:
    location = ministack_store.location(ministack_store.new_bucket(), "lake")

    steps = check(ministack_store.profile(), ministack_store.secret(), location, read_only=True)

    assert [*steps] == ["clock", "list", "vend", "scope: inside works", "scope: outside"]
    assert passed([*steps.values()])


def test_the_scope_of_a_read_only_store_is_tested_too(moto_store: S3Emulator) -> None:
    """Read credentials are vended there: without enforcement they open every table."""
    bucket = moto_store.new_bucket()

    steps = check(moto_store.profile(), moto_store.secret(), moto_store.location(bucket, "lake"), read_only=True)

    assert failed(steps) == ["scope: outside"]
    assert "listed s3://" in steps["scope: outside"].detail
    assert keys_in(moto_store, bucket) == []
