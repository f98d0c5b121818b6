"""Warehouses on object stores that are made, changed and given other keys while the server runs."""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nunatak.objectstore.profile import StorageProfile, StorageSecret
from tests.api.wire import Answer, a_commit, a_table, add_snapshot, branch_is_at, ok, set_branch
from tests.support.catalogs.local import LocalCatalog
from tests.support.object_stores import S3Emulator

WAREHOUSES = "/management/v1/warehouses"
CANARY = "c4n4ry0000000000000000000000000000000000"


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCatalog]:
    environment = {"NUNATAK_PRIVATE_ENDPOINTS": "true"}
    if request.param != "sqlite":
        fixture = "database" if request.param == "postgres" else "mariadb_database"
        environment["NUNATAK_DATABASE_URL"] = request.getfixturevalue(fixture)
        environment["NUNATAK_DATABASE_CONNECTIONS"] = "3"
    made = LocalCatalog(tmp_path, environment, auth=True)
    yield made
    made.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCatalog]:
    """On SQLite, without the setting that allows private endpoints."""
    made = LocalCatalog(tmp_path, auth=True)
    yield made
    made.close()


def described(profile: StorageProfile, secret: StorageSecret | None = None) -> dict[str, Any]:
    return {"profile": msgspec.to_builtins(profile), "secret": msgspec.to_builtins(secret)}


def a_lake(store: S3Emulator, name: str = "lake", **more: Any) -> dict[str, Any]:
    """A request for a warehouse in a new bucket."""
    location = store.location(store.new_bucket(), name)
    return {"name": name, "location": location, **described(store.profile(), store.secret()), **more}


def refused(answer: Answer, status: int) -> str:
    assert answer.status == status, answer.body
    return str(answer.json["error"]["message"])


def test_a_warehouse_on_s3_is_made_and_used(catalog: LocalCatalog, ministack_store: S3Emulator) -> None:
    wanted = a_lake(ministack_store)
    made = ok(catalog.call("POST", WAREHOUSES, wanted))

    ok(catalog.call("POST", "/v1/lake/namespaces", {"namespace": ["a"]}))
    table = ok(catalog.call("POST", "/v1/lake/namespaces/a/tables", a_table("t")))
    body = a_commit(add_snapshot(1), set_branch(1), requires=[branch_is_at(None)])
    ok(catalog.call("POST", "/v1/lake/namespaces/a/tables/t", body))

    assert table["metadata"]["location"].startswith(wanted["location"])
    assert (made["storage"], made["has-secret"], made["version"]) == ("s3", True, 1)
    assert {step["outcome"] for step in made["steps"]} == {"ok"}
    assert "scope: sibling folder" in [step["name"] for step in made["steps"]]
    with contextlib.closing(ministack_store.client()) as client:
        bucket = wanted["location"].split("/")[2]
        listed = [each["Key"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert len(listed) == 2  # two metadata files, nothing of the self-test

    catalog.restart()
    loaded = ok(catalog.call("GET", "/v1/lake/namespaces/a/tables/t"))
    assert loaded["metadata"]["current-snapshot-id"] == 1


def test_the_secret_is_nowhere_in_the_clear(
    catalog: LocalCatalog, ministack_store: S3Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    key = {"Idempotency-Key": "0192d5a0-0000-7000-8000-000000000001"}
    secret = ministack_store.secret_access_key
    with caplog.at_level(logging.DEBUG):
        answers = [catalog.call("POST", WAREHOUSES, a_lake(ministack_store), key)]
        answers += [catalog.call("GET", f"{WAREHOUSES}/lake"), catalog.call("GET", WAREHOUSES)]
        answers += [catalog.call("PATCH", f"{WAREHOUSES}/lake", {"version": 1, "region": "us-east-1"})]
        wrong = {"secret": {"type": "s3", "access-key-id": "AKIAUNKNOWN", "secret-access-key": CANARY}}
        answers += [catalog.call("POST", f"{WAREHOUSES}/lake/secret", wrong)]
        answers += [
            catalog.call("POST", f"{WAREHOUSES}/lake/secret", {"secret": {"type": "gcs", "access-token": CANARY}})
        ]
        answers += [catalog.call("POST", f"{WAREHOUSES}/lake/secret", {"secret": {"type": CANARY, "x": CANARY}})]
        answers += [catalog.call("POST", f"{WAREHOUSES}/lake/check"), catalog.call("GET", "/management/v1/audit")]
    stored = catalog.run(catalog.app.catalog.store.rows("list_warehouses", {}))

    assert [each.status for each in answers[:5]] == [200, 200, 200, 200, 422]
    for answer in answers[:6]:
        assert secret.encode() not in answer.body
        assert CANARY.encode() not in answer.body
    assert secret not in str(stored) + repr(catalog.app.catalog.warehouses) + caplog.text
    assert CANARY not in str(stored) + caplog.text
    told = answers[-1].body.decode()
    assert secret not in told
    assert CANARY not in told
    actions = [each["action"] for each in answers[-1].json["records"]]
    assert {"create-warehouse", "change-warehouse", "check-warehouse"} <= set(actions)
    if isinstance(catalog.data, Path):
        for file in catalog.data.rglob("nunatak.db*"):
            assert secret.encode() not in file.read_bytes(), file


def test_new_keys_are_tried_before_they_replace_the_old_ones(
    catalog: LocalCatalog, ministack_store: S3Emulator
) -> None:
    ok(catalog.call("POST", WAREHOUSES, a_lake(ministack_store)))
    ok(catalog.call("POST", "/v1/lake/namespaces", {"namespace": ["a"]}))
    with contextlib.closing(ministack_store.client("iam")) as iam:
        made = iam.create_access_key(UserName="catalog")["AccessKey"]
        good = {"type": "s3", "access-key-id": made["AccessKeyId"], "secret-access-key": made["SecretAccessKey"]}
        rotate = f"{WAREHOUSES}/lake/secret"

        said = refused(catalog.call("POST", rotate, {"secret": {**good, "secret-access-key": CANARY}}), 422)
        assert "not the one of the access-key-id" in said
        ok(catalog.call("POST", "/v1/lake/namespaces/a/tables", a_table("before")))  # with the old keys
        refused(catalog.call("POST", rotate, {"secret": good, "version": 7}), 409)
        rotated = ok(catalog.call("POST", rotate, {"secret": good, "version": 1}))
        iam.delete_access_key(UserName="catalog", AccessKeyId=made["AccessKeyId"])

    failed = catalog.call("POST", "/v1/lake/namespaces/a/tables", a_table("after"))
    assert rotated["version"] == 2
    assert failed.status == 403, "the new keys were used, which are gone now"
    ok(catalog.call("POST", rotate, {"secret": msgspec.to_builtins(ministack_store.secret())}))
    ok(catalog.call("POST", "/v1/lake/namespaces/a/tables", a_table("after")))


def test_another_server_uses_the_new_keys_after_a_refresh(
    database: str, tmp_path: Path, ministack_store: S3Emulator
) -> None:
    environment = {
        "NUNATAK_DATABASE_URL": database,
        "NUNATAK_DATABASE_CONNECTIONS": "3",
        "NUNATAK_PRIVATE_ENDPOINTS": "true",
    }
    one, other = LocalCatalog(tmp_path, environment), LocalCatalog(tmp_path, environment)
    try:
        ok(one.call("POST", WAREHOUSES, a_lake(ministack_store)))
        ok(other.call("POST", "/v1/lake/namespaces", {"namespace": ["a"]}))
        secret = msgspec.to_builtins(ministack_store.secret())
        ok(one.call("POST", f"{WAREHOUSES}/lake/secret", {"secret": secret}))
        assert other.app.catalog.warehouses["lake"].version == 1

        assert other.run(other.app.catalog.warehouses.refresh())

        assert other.app.catalog.warehouses["lake"].version == 2
        ok(other.call("POST", "/v1/lake/namespaces/a/tables", a_table("t")))
        assert not other.run(other.app.catalog.warehouses.refresh())
    finally:
        one.close()
        other.close()


def test_two_warehouses_never_share_a_place_however_it_is_written(
    catalog: LocalCatalog, ministack_store: S3Emulator
) -> None:
    wanted = a_lake(ministack_store)
    ok(catalog.call("POST", WAREHOUSES, wanted))
    place = wanted["location"]
    bucket = place.rpartition("/")[0]

    for other in (place, f"{place}/", f"{place}/x", bucket, place.replace("s3:", "s3a:"), place.replace("s3:", "S3N:")):
        answer = catalog.call("POST", WAREHOUSES, {**wanted, "name": "other", "location": other})
        assert answer.status == 409, other
    apart = {**wanted, "name": "other", "location": f"{place}2"}
    ok(catalog.call("POST", WAREHOUSES, apart))


def test_a_store_that_does_not_enforce_scope_is_refused_or_not_vended(
    catalog: LocalCatalog, moto_store: S3Emulator
) -> None:
    wanted = a_lake(moto_store)

    said = refused(catalog.call("POST", WAREHOUSES, wanted), 422)
    made = ok(catalog.call("POST", WAREHOUSES, {**wanted, "unscoped": True}))
    again = refused(catalog.call("PATCH", f"{WAREHOUSES}/lake", {"version": 1, "profile": wanted["profile"]}), 422)

    assert "does not enforce the scope of vended credentials" in said
    assert "table0/new.txt" in said
    assert "does not enforce" in again
    assert made["profile"]["delegation"] == ["remote-signing"]
    assert ok(catalog.call("GET", f"{WAREHOUSES}/lake"))["version"] == 1


# Endpoints, privileges, residency


def test_private_endpoints_need_the_setting(local: LocalCatalog, ministack_store: S3Emulator) -> None:
    said = refused(local.call("POST", WAREHOUSES, a_lake(ministack_store)), 400)

    assert "private network" in said
    assert [each["name"] for each in ok(local.call("GET", WAREHOUSES))["warehouses"]] == ["default"]


@pytest.mark.parametrize("endpoint", ["http://169.254.169.254/latest", "http://[fd00:ec2::254]", "https://0.0.0.0"])
def test_no_warehouse_is_made_at_metadata_of_the_cloud(catalog: LocalCatalog, endpoint: str) -> None:
    for field in ("endpoint", "sts-endpoint"):
        wanted = {"name": "lake", "location": "s3://bucket/x", "profile": {"type": "s3", field: endpoint}}
        assert "no object store can be" in refused(catalog.call("POST", WAREHOUSES, wanted), 400)


def test_only_an_administrator_of_the_server_names_hosts_to_connect_to(
    catalog: LocalCatalog, ministack_store: S3Emulator
) -> None:
    ok(catalog.call("POST", WAREHOUSES, a_lake(ministack_store)))
    catalog.principal("wanda", lake="WAREHOUSE_ADMIN")
    catalog.principal("rita", lake="READ")

    for method, path in (
        ("POST", WAREHOUSES),
        ("PATCH", f"{WAREHOUSES}/lake"),
        ("POST", f"{WAREHOUSES}/lake/secret"),
        ("POST", f"{WAREHOUSES}/lake/check"),
    ):
        for who in ("wanda", "rita"):
            assert catalog.call_as(who, method, path, {}).status == 403, (who, path)
    assert ok(catalog.call_as("wanda", "GET", f"{WAREHOUSES}/lake"))["profile"]["role-arn"]
    assert ok(catalog.call_as("rita", "GET", f"{WAREHOUSES}/lake"))["profile"] is None


def test_another_endpoint_needs_the_secret_again(catalog: LocalCatalog, ministack_store: S3Emulator) -> None:
    """Whoever may change the endpoint, but does not know the secret, must not get it used at a host of their choice."""
    wanted = a_lake(ministack_store)
    ok(catalog.call("POST", WAREHOUSES, wanted))
    elsewhere = ministack_store.endpoint.replace("127.0.0.1", "localhost")
    change = {"version": 1, "profile": {**wanted["profile"], "endpoint": elsewhere}}

    said = refused(catalog.call("PATCH", f"{WAREHOUSES}/lake", change), 400)
    made = ok(catalog.call("PATCH", f"{WAREHOUSES}/lake", {**change, "secret": wanted["secret"]}))

    assert "needs the secret again" in said
    assert (made["profile"]["endpoint"], made["has-secret"]) == (elsewhere, True)


def test_a_warehouse_lies_in_the_region_it_declares(catalog: LocalCatalog, ministack_store: S3Emulator) -> None:
    wanted = a_lake(ministack_store, region="eu-central-1")

    said = refused(catalog.call("POST", WAREHOUSES, wanted), 400)
    ok(catalog.call("POST", WAREHOUSES, {**wanted, "region": "us-east-1"}))
    moved = {"version": 1, "profile": {**wanted["profile"], "region": "eu-west-1"}}

    assert "must lie in eu-central-1" in said
    assert "must lie in us-east-1" in refused(catalog.call("PATCH", f"{WAREHOUSES}/lake", moved), 400)


def test_a_warehouse_is_checked_on_demand(catalog: LocalCatalog, ministack_store: S3Emulator) -> None:
    wanted = a_lake(ministack_store)
    ok(catalog.call("POST", WAREHOUSES, wanted))
    good = ok(catalog.call("POST", f"{WAREHOUSES}/lake/check"))
    bucket = wanted["location"].split("/")[2]
    with contextlib.closing(ministack_store.client()) as client:
        client.delete_bucket(Bucket=bucket)

    bad = ok(catalog.call("POST", f"{WAREHOUSES}/lake/check"))

    assert good["passed"]
    assert not bad["passed"]
    assert f"The bucket {bucket} does not exist" in json.dumps(bad)
    assert ok(catalog.call("POST", f"{WAREHOUSES}/default/check"))["passed"]
    assert catalog.call("POST", f"{WAREHOUSES}/none/check").status == 404


def test_a_row_that_this_version_cannot_read_harms_no_other_warehouse(
    local: LocalCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """A later version wrote a profile that is not known here, or the key file lacks the key of a secret."""
    for name in ("good", "later", "locked"):
        ok(local.call("POST", WAREHOUSES, {"name": name}))
    local.stop()
    local.rows("UPDATE nunatak_warehouses SET profile = '{\"type\":\"tape\"}' WHERE warehouse = 'later'")
    local.rows("UPDATE nunatak_warehouses SET secret = x'00' WHERE warehouse = 'locked'")

    with caplog.at_level(logging.WARNING):
        local.start()

    assert [each["name"] for each in ok(local.call("GET", WAREHOUSES))["warehouses"]] == ["default", "good"]
    assert "warehouse later cannot be served" in caplog.text
    assert "warehouse locked cannot be served" in caplog.text
    assert local.call("POST", WAREHOUSES, {"name": "later"}).status == 409
    assert "cannot be read" in refused(local.call("PATCH", f"{WAREHOUSES}/locked", {"version": 1}), 409)


def test_a_check_refuses_an_endpoint_that_leads_elsewhere_now(
    catalog: LocalCatalog, ministack_store: S3Emulator
) -> None:
    ok(catalog.call("POST", WAREHOUSES, a_lake(ministack_store)))
    catalog.app.catalog.warehouses.private_endpoints = False

    found = ok(catalog.call("POST", f"{WAREHOUSES}/lake/check"))

    assert (found["passed"], [step["name"] for step in found["steps"]]) == (False, ["endpoint"])
