"""What a load tells about storage: endpoint and region for all, a credential for those who may, never a stale 304."""

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest

from nunatak.access.decisions import PolicyChanged
from nunatak.catalog.warehouses import WarehousePlace
from nunatak.errors import ServiceUnavailable
from nunatak.objectstore.location import parse_location
from tests.api.wire import Answer, a_table, done, ok, path_of
from tests.support.catalogs.local import LocalCatalog
from tests.support.object_stores import S3Emulator, SessionKeys

VENDED = {"X-Iceberg-Access-Delegation": "vended-credentials"}
SECRETS = {"s3.access-key-id", "s3.secret-access-key", "s3.session-token"}
HALF_LIFE_MS = 1_800_000


class Lake(LocalCatalog):
    """A server whose default warehouse lies on S3, with logins."""

    def __init__(self, data: Path, store: S3Emulator) -> None:
        super().__init__(data, auth=True)
        self.s3 = store
        self.bucket = store.new_bucket()
        self.base = store.location(self.bucket, "wh")
        self.serve()
        self.namespace("sales")

    def serve(self, version: int = 1, **profile: Any) -> None:
        """Serve the warehouse with another profile."""
        place, described = parse_location(self.base), self.s3.profile(**profile)
        objects = self.app.catalog.objects
        objects.serve(described, self.s3.secret(), [place])
        warehouse = WarehousePlace("default", self.base, (place,), profile=described, version=version)
        self.app.catalog.warehouses["default"] = warehouse

    @property
    def calls(self) -> int:
        """To STS."""
        return int(sum(self.app.catalog.credentials.counts.seconds[:-1]))

    def read(self, name: str, by: str = "root", path: str = "", **headers: str) -> Answer:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.call_as(by, "GET", path_of("sales", "tables", name) + path, headers={**VENDED, **sent})

    def client(self, config: Mapping[str, str]) -> Any:
        keys = SessionKeys(config["s3.access-key-id"], config["s3.secret-access-key"], config["s3.session-token"])
        return self.s3.client(keys=keys)


@pytest.fixture
def lake(tmp_path: Path, ministack_store: S3Emulator) -> Iterator[Lake]:
    opened = Lake(tmp_path, ministack_store)
    yield opened
    opened.close()


def may(client: Any, verb: str, **parameters: Any) -> bool:
    try:
        getattr(client, verb)(**parameters)
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "AccessDenied":
            raise
        return False
    return True


def key_of(location: str) -> str:
    return location.split("/", 3)[3]


def test_without_the_header_a_load_tells_where_the_store_is_and_no_secret(lake: Lake) -> None:
    where = {
        "s3.endpoint": lake.s3.endpoint,
        "s3.region": "us-east-1",
        "client.region": "us-east-1",
        "s3.path-style-access": "true",
    }

    for answer in (lake.table("sales", "t"), lake.load("sales", "t")):
        assert answer["config"] == where
        assert "storage-credentials" not in answer
    assert lake.calls == 0


def test_keys_of_a_table_are_in_both_places_and_open_that_table_alone(lake: Lake) -> None:
    created = ok(lake.call("POST", path_of("sales", "tables"), a_table("t"), VENDED))
    sibling = lake.table("sales", "t2")
    loaded = ok(lake.read("t"))

    location = loaded["metadata"]["location"]
    (entry,) = loaded["storage-credentials"]
    assert entry["prefix"] == location
    assert entry["config"].items() <= loaded["config"].items()
    assert {*SECRETS, "s3.endpoint", "s3.region", "client.region", "s3.path-style-access"} <= entry["config"].keys()
    assert entry["config"]["client.refresh-credentials-endpoint"] == "v1/namespaces/sales/tables/t/credentials"
    assert created["storage-credentials"] == loaded["storage-credentials"]
    assert lake.calls == 1
    with closing(lake.client(entry["config"])) as s3:
        for verb in ("get_object", "delete_object"):
            assert may(s3, verb, Bucket=lake.bucket, Key=key_of(loaded["metadata-location"]))
            assert not may(s3, verb, Bucket=lake.bucket, Key=key_of(sibling["metadata-location"]))
        assert not may(s3, "list_objects_v2", Bucket=lake.bucket, Prefix="wh/")


def test_the_level_follows_the_privileges(lake: Lake) -> None:
    lake.table("sales", "t")
    lake.principal("reader", default__sales="TABLE_READ_META,TABLE_READ_DATA")
    lake.principal("writer", default__sales="WRITE")
    lake.principal("curious", default__sales="TABLE_READ_META")
    lake.principal("blind", default__sales="TABLE_READ_META,TABLE_WRITE")

    granted = {name: ok(lake.read("t", name)) for name in ("reader", "writer", "curious", "blind")}

    for name in ("curious", "blind"):
        assert not SECRETS & granted[name]["config"].keys()
        assert "storage-credentials" not in granted[name]
        refused = lake.read("t", name, path="/credentials")
        assert (refused.status, refused.json["error"]["type"]) == (403, "ForbiddenException")
    there = {"Bucket": lake.bucket, "Key": key_of(granted["reader"]["metadata"]["location"]) + "/data/x"}
    for name, writes in (("reader", False), ("writer", True)):
        with closing(lake.client(granted[name]["config"])) as s3:
            assert may(s3, "list_objects_v2", Bucket=lake.bucket, Prefix=there["Key"][:-6])
            assert may(s3, "put_object", **there, Body=b"x") is writes
            assert may(s3, "delete_object", **there) is writes


def test_a_new_grant_and_a_revoked_one_count_at_the_next_request(lake: Lake) -> None:
    lake.table("sales", "t")
    lake.principal("ana", default__sales="TABLE_READ_META")
    assert "storage-credentials" not in ok(lake.read("t", "ana"))

    lake.grant("ana", "default__sales", "TABLE_READ_DATA")
    first = lake.read("t", "ana")
    assert ok(first)["storage-credentials"]
    assert lake.read("t", "ana", if_none_match=first.headers["etag"]).status == 304

    lake.revoke("ana", "default__sales", "TABLE_READ_DATA")
    after = lake.read("t", "ana", if_none_match=first.headers["etag"])
    assert "storage-credentials" not in ok(after)
    assert lake.read("t", "ana", path="/credentials").status == 403


def test_a_stranger_learns_nothing_from_the_credentials_of_a_table(lake: Lake) -> None:
    lake.table("sales", "t")
    lake.principal("stranger")
    lake.principal("neighbour", default__other="READ")

    for name in ("stranger", "neighbour"):
        hidden, absent = (lake.read(table, name, path="/credentials") for table in ("t", "none"))
        assert (hidden.status, hidden.body) == (404, absent.body.replace(b"none", b"t"))
    assert lake.read("none", path="/credentials").json["error"]["type"] == "NoSuchTableException"


def test_the_credentials_of_a_table_are_there_in_the_shapes_of_both_documents(lake: Lake) -> None:
    lake.table("sales", "t")
    response = lake.read("t", path="/credentials?planId=p1&referenced-by=a%1Fv")
    answer = ok(response)

    assert response.headers["cache-control"] == "no-store"
    (entry,) = answer["storage-credentials"]
    assert {name: answer[name] for name in SECRETS} == {name: entry["config"][name] for name in SECRETS}
    assert 0 < answer["expiration-ms"] <= 3_600_000
    assert entry["prefix"] == ok(lake.read("t"))["metadata"]["location"]
    assert lake.calls == 1


def test_the_configuration_tells_clients_to_ask_for_credentials(lake: Lake) -> None:
    config = ok(lake.call("GET", "/v1/config"))
    assert config["defaults"]["header.X-Iceberg-Access-Delegation"] == "vended-credentials"
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials" in config["endpoints"]

    lake.serve(delegation=("none",))
    assert "header.X-Iceberg-Access-Delegation" not in ok(lake.call("GET", "/v1/config"))["defaults"]


def test_clickhouse_gets_no_endpoint_in_config(lake: Lake) -> None:
    lake.table("sales", "t")
    answer = ok(lake.read("t", User_Agent="ClickHouse/26.9"))

    assert "s3.endpoint" not in answer["config"]
    assert answer["config"].keys() >= SECRETS
    assert answer["storage-credentials"][0]["config"]["s3.endpoint"] == lake.s3.endpoint


@pytest.mark.parametrize("header", ["remote-signing", "", "vended", "none, remote-signing"])
def test_only_who_asks_for_keys_gets_keys(lake: Lake, header: str) -> None:
    lake.table("sales", "t")
    answer = ok(lake.read("t", X_Iceberg_Access_Delegation=header))

    assert not SECRETS & answer["config"].keys()
    assert "storage-credentials" not in answer
    listed = ok(lake.read("t", X_Iceberg_Access_Delegation="remote-signing , Vended-Credentials"))
    assert listed["storage-credentials"]


# ETags


def test_a_304_is_answered_for_half_of_a_credentials_life_and_no_longer(lake: Lake) -> None:
    lake.table("sales", "t")
    first = lake.read("t")
    etag = first.headers["etag"]
    assert "private" in first.headers["cache-control"]
    assert "authorization" in first.headers["vary"]

    again = lake.read("t", if_none_match=etag)
    assert (again.status, again.headers["etag"], again.body) == (304, etag, b"")
    assert lake.calls == 1
    lake.clock.added_ms += HALF_LIFE_MS - 60_000
    assert lake.read("t", if_none_match=etag).status == 304
    lake.clock.added_ms += 60_001
    renewed = lake.read("t", if_none_match=etag)
    assert ok(renewed)["storage-credentials"] != first.json["storage-credentials"]
    assert lake.calls == 2
    assert lake.read("t", if_none_match=renewed.headers["etag"]).status == 304


def test_an_etag_belongs_to_one_way_of_asking(lake: Lake) -> None:
    lake.table("sales", "t")
    lake.principal("reader", default__sales="READ")
    ways: list[dict[str, str]] = [
        {},
        {"by": "reader"},
        {"X_Iceberg_Access_Delegation": ""},
        {"path": "?snapshots=refs"},
        {"User_Agent": "ClickHouse/26.9"},
    ]
    tags = [lake.read("t", **way).headers["etag"] for way in ways]
    lake.serve(version=2)
    ways.append({})
    tags.append(lake.read("t").headers["etag"])

    assert len(set(tags)) == len(tags)
    lake.serve(version=1)
    for way, own in list(zip(ways, tags, strict=True))[:-1]:
        assert lake.read("t", **way, if_none_match=own).status == 304
        assert lake.read("t", **way, if_none_match=f'"x", W/{own}').status == 304
        others = ", ".join(tag for tag in tags if tag != own)
        assert lake.read("t", **way, if_none_match=others).status == 200


@pytest.mark.parametrize("forged", ["-", '-"', "-99999999999999999999", "-1e99", "-٣", "", "-0"])
def test_a_forged_time_in_an_etag_gets_a_whole_answer(lake: Lake, forged: str) -> None:
    lake.table("sales", "t")
    stem = lake.read("t").headers["etag"].rpartition("-")[0]

    sent = f'{stem}{forged}"'.encode().decode("latin-1")
    assert lake.read("t", if_none_match=sent).status == 200
    assert lake.read("t", if_none_match="*").status == 400


def test_a_new_warehouse_version_gets_new_keys(lake: Lake) -> None:
    lake.table("sales", "t")
    first = ok(lake.read("t"))
    lake.serve(version=2)

    assert ok(lake.read("t"))["storage-credentials"] != first["storage-credentials"]
    assert lake.calls == 2


# Bytes


def test_compressed_answers_are_the_same_and_metadata_is_compressed_once(lake: Lake) -> None:
    properties = {f"key-{number}": "v" * 100 for number in range(300)}
    lake.table("sales", "t", properties=properties)
    for path in ("", "?snapshots=refs"):
        plain = ok(lake.read("t", path=path))
        for _ in range(2):
            packed = lake.read("t", path=path, Accept_Encoding="gzip")
            assert packed.headers["content-encoding"] == "gzip"
            assert int(packed.headers["content-length"]) == len(packed.body) < len(json.dumps(plain)) // 3
            assert json.loads(gzip.decompress(packed.body)) == plain
        zstd = lake.read("t", path=path, Accept_Encoding="zstd")
        assert zstd.headers["content-encoding"] == "zstd"
    loaded = next(iter(lake.app.catalog.cache._entries.values()))[0]
    assert not {"gzip", "zstd"} & loaded.packed.keys(), "an answer with keys was kept for others"
    assert json.loads(loaded.answer)["config"] == {}


def test_a_load_with_a_kept_credential_reads_nothing_but_the_pointer(lake: Lake) -> None:
    lake.table("sales", "t")
    ok(lake.read("t"))
    before = dict(lake.store.counts), dict(lake.app.catalog.objects.counts), lake.calls
    ok(lake.read("t"))
    after = dict(lake.store.counts), dict(lake.app.catalog.objects.counts), lake.calls

    assert after[0]["read"] - before[0]["read"] <= 2  # the session, the pointer
    assert after[1:] == before[1:]


# Refusals


def test_places_are_checked_again_when_the_credential_is_made(lake: Lake) -> None:
    lake.table("sales", "t")
    place = parse_location(lake.base + "/elsewhere")
    warehouses = lake.app.catalog.warehouses
    warehouses["default"] = replace(warehouses["default"], allowed=(place,))

    answer = ok(lake.read("t"))
    assert not SECRETS & answer["config"].keys()
    assert "storage-credentials" not in answer
    assert lake.read("t", path="/credentials").status == 403
    assert lake.calls == 0


def test_a_path_that_cannot_be_limited_gets_no_keys_and_still_loads(lake: Lake) -> None:
    lake.table("sales", "t", location=f"{lake.base}/a*b")
    answer = lake.read("t")

    assert "storage-credentials" not in ok(answer)
    assert "etag" not in answer.headers, "a 304 would go on hiding the missing credential"
    assert lake.read("t", path="/credentials").json["error"]["type"] == "ForbiddenException"


def test_write_places_are_opened_too_unless_another_table_has_them(lake: Lake) -> None:
    place = f"{lake.base}/data/t"
    loaded = ok(
        lake.call("POST", path_of("sales", "tables"), a_table("t", properties={"write.data.path": place}), VENDED)
    )
    with closing(lake.client(loaded["config"])) as s3:
        assert may(s3, "put_object", Bucket=lake.bucket, Key="wh/data/t/x", Body=b"x")
        assert not may(s3, "put_object", Bucket=lake.bucket, Key="wh/data/t2/x", Body=b"x")

    lake.table("sales", "other", properties={"write.data.path": place})
    assert "storage-credentials" not in ok(lake.read("t"))
    assert lake.read("t", path="/credentials").status == 403


def test_a_read_only_warehouse_gives_nobody_keys_to_write(lake: Lake) -> None:
    loaded = lake.table("sales", "t")
    warehouses = lake.app.catalog.warehouses
    warehouses["default"] = replace(warehouses["default"], read_only=True)

    with closing(lake.client(ok(lake.read("t"))["config"])) as s3:
        assert may(s3, "get_object", Bucket=lake.bucket, Key=key_of(loaded["metadata-location"]))
        assert not may(s3, "delete_object", Bucket=lake.bucket, Key=key_of(loaded["metadata-location"]))


def test_a_token_service_that_is_down_fails_a_load_but_not_a_create(lake: Lake) -> None:
    lake.serve(sts_endpoint="http://127.0.0.1:9")

    created = ok(lake.call("POST", path_of("sales", "tables"), a_table("t"), VENDED))
    assert "storage-credentials" not in created
    failed = lake.read("t")
    assert (failed.status, failed.headers["retry-after"]) == (503, "1")
    assert lake.load("sales", "t")["config"]["s3.endpoint"] == lake.s3.endpoint
    lake.serve()
    assert ok(lake.read("t"))["storage-credentials"]


def test_loads_at_once_make_one_call(lake: Lake) -> None:
    lake.table("sales", "t")
    headers = {**lake.headers("root"), **VENDED}
    answers = lake.together(*(lake.request("GET", path_of("sales", "tables", "t"), headers=headers) for _ in range(40)))

    assert {answer.status for answer in answers} == {200}
    assert lake.calls == 1
    assert len({json.dumps(answer.json["storage-credentials"]) for answer in answers}) == 1


def test_metrics_count_what_was_issued(lake: Lake) -> None:
    lake.table("sales", "t")
    for _ in range(3):
        ok(lake.read("t"))
    lake.serve(version=2, sts_endpoint="http://127.0.0.1:9")
    assert lake.read("t").status == 503

    page = lake.call("GET", "/metrics").body.decode()
    assert 'nunatak_credentials_issued_total{level="read-write"} 1.0' in page
    assert "nunatak_credentials_cached_total 2.0" in page
    assert 'nunatak_credentials_refused_total{reason="unavailable"} 1.0' in page
    assert "nunatak_credential_seconds_count 2.0" in page


def test_a_local_table_is_answered_as_before(tmp_path: Path) -> None:
    catalog = LocalCatalog(tmp_path)
    try:
        catalog.namespace("sales")
        catalog.table("sales", "t")
        plain = catalog.call("GET", path_of("sales", "tables", "t"))
        asked = catalog.call("GET", path_of("sales", "tables", "t"), headers=VENDED)
        credentials = ok(catalog.call("GET", path_of("sales", "tables", "t") + "/credentials"))
        done(catalog.call("DELETE", path_of("sales", "tables", "t")))
    finally:
        catalog.close()

    assert (asked.body, asked.headers["etag"]) == (plain.body, plain.headers["etag"])
    assert credentials == {"storage-credentials": []}


def test_a_repeated_create_gets_keys_again_and_none_are_stored(lake: Lake) -> None:
    for number, staged in enumerate((False, True)):
        key = {"Idempotency-Key": f"00000000-0000-4000-8000-00000000000{number}"}
        body = a_table(f"t{number}", stage_create=staged)
        first = ok(lake.call("POST", path_of("sales", "tables"), body, {**VENDED, **key}))
        again = ok(lake.call("POST", path_of("sales", "tables"), body, {**VENDED, **key}))
        plain = ok(lake.call("POST", path_of("sales", "tables"), body, key))

        assert again == first
        assert again["config"].keys() >= SECRETS
        assert not SECRETS & plain["config"].keys()
        stored = str(lake.rows("SELECT * FROM nunatak_idempotency")) + str(lake.rows("SELECT * FROM nunatak_audit"))
        for name in SECRETS:
            assert first["config"][name] not in stored


def test_rights_that_change_after_a_create_cost_it_the_credential_and_nothing_else(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was carried out: a repetition of it, or any error, would deny that."""
    guard = lake.app.guard
    assert guard is not None
    original = guard.ask
    for name, error in (("a", PolicyChanged()), ("b", ServiceUnavailable("the database is away"))):

        async def ask(known: Any, wanted: Any, name: str = name, error: Exception = error) -> list[int]:
            if any(each.endswith(name) for each in wanted):
                raise error
            return await original(known, wanted)

        with monkeypatch.context() as patched:
            patched.setattr(guard, "ask", ask)
            created = ok(lake.call("POST", path_of("sales", "tables"), a_table(name), VENDED))
        assert "storage-credentials" not in created
        assert ok(lake.read(name))["storage-credentials"]


def test_nothing_prints_the_keys_of_a_credential(lake: Lake) -> None:
    lake.table("sales", "t")
    config = ok(lake.read("t"))["config"]
    (kept,) = lake.app.catalog.credentials._kept.values()

    assert kept.credential.config["s3.session-token"] == config["s3.session-token"]
    for name in SECRETS:
        assert config[name] not in repr(kept)
