"""Credentials of tables that are not there: staged before their commit, or dropped a moment ago; for one principal."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nunatak.catalog.temporary_access import DROPPED_ACCESS_MS, STAGED_ACCESS_MS
from nunatak.objectstore.location import parse_location
from tests.api.test_storage_access import SECRETS, VENDED, Lake, key_of, may
from tests.api.wire import Answer, a_table, done, ok, path_of
from tests.support.object_stores import S3Emulator


@pytest.fixture
def lake(tmp_path: Path, ministack_store: S3Emulator) -> Iterator[Lake]:
    opened = Lake(tmp_path, ministack_store)
    opened.principal("ana", default__sales="WRITE,TABLE_DROP,LOCATION_CHOOSE")
    opened.principal("ben", default__sales="WRITE,TABLE_DROP,LOCATION_CHOOSE")
    yield opened
    opened.close()


def stage(lake: Lake, name: str = "t", by: str = "ana", **fields: Any) -> Any:
    body = a_table(name, stage_create=True, **fields)
    return ok(lake.call_as(by, "POST", path_of("sales", "tables"), body, VENDED))


def credentials(lake: Lake, name: str = "t", by: str = "ana") -> Answer:
    return lake.read(name, by, path="/credentials")


def writes(lake: Lake, answer: Any, key: str) -> bool:
    """Whether the keys in an answer can write this object."""
    with closing(lake.client(answer["storage-credentials"][0]["config"])) as s3:
        return may(s3, "put_object", Bucket=lake.bucket, Key=key, Body=b"x")


def test_a_staged_table_gets_keys_and_renews_them_before_its_commit(lake: Lake) -> None:
    sibling = lake.table("sales", "other")
    staged = stage(lake)
    folder = key_of(staged["metadata"]["location"])

    assert staged["config"].keys() >= SECRETS
    assert "metadata-location" not in staged
    assert writes(lake, staged, f"{folder}/data/a.parquet")
    assert not writes(lake, staged, key_of(sibling["metadata"]["location"]) + "/data/a.parquet")
    renewed = ok(credentials(lake))
    assert renewed["storage-credentials"][0]["prefix"] == staged["metadata"]["location"]
    assert writes(lake, renewed, f"{folder}/data/b.parquet")
    assert lake.calls == 1


def test_the_record_of_a_staged_table_is_its_principals_alone(lake: Lake) -> None:
    stage(lake)
    lake.principal("stranger")

    absent = credentials(lake, "none", "ben")
    assert (credentials(lake, by="ben").body, absent.status) == (absent.body.replace(b"none", b"t"), 404)
    assert credentials(lake, by="stranger").status == 404
    lake.revoke("ana", "default__sales", "TABLE_CREATE")
    assert credentials(lake).status in (403, 404)


def test_the_record_of_a_staged_table_ends(lake: Lake) -> None:
    lake.serve(session_seconds=43_200)  # the store's own clock does not move
    stage(lake)
    lake.clock.added_ms += STAGED_ACCESS_MS - 60_000
    assert credentials(lake).status == 200
    lake.clock.added_ms += 60_001
    assert credentials(lake).status == 404

    stage(lake, "later")
    assert len(lake.rows("SELECT * FROM nunatak_temporary_access")) == 1, "an ended record stays"


def test_a_staged_table_gets_nothing_in_a_place_that_somebody_took_since(lake: Lake) -> None:
    place = f"{lake.base}/chosen"
    stage(lake, location=place)
    assert credentials(lake).status == 200

    taken = lake.call_as("ben", "POST", path_of("sales", "tables"), a_table("bens", location=place))
    assert taken.status == 200
    assert credentials(lake).json["error"]["type"] == "ForbiddenException"
    assert "bens" not in credentials(lake).body.decode()


@pytest.mark.parametrize("inside", ["", "/data", "/data/deep"])
def test_a_table_is_not_staged_into_another_tables_files(lake: Lake, inside: str) -> None:
    taken = lake.table("sales", "other")["metadata"]["location"]
    refused = lake.call_as(
        "ana", "POST", path_of("sales", "tables"), a_table("t", stage_create=True, location=taken + inside), VENDED
    )

    assert refused.status in (400, 409)
    assert lake.calls == 0
    assert credentials(lake).status == 404


@pytest.mark.parametrize("location", ["s3://another-bucket/wh/t", "s3://{bucket}/elsewhere", "s3://{bucket}"])
def test_a_table_is_not_staged_outside_the_warehouse(lake: Lake, location: str) -> None:
    body = a_table("t", stage_create=True, location=location.format(bucket=lake.bucket))
    assert lake.call_as("ana", "POST", path_of("sales", "tables"), body, VENDED).status == 400

    assert lake.calls == 0
    assert credentials(lake).status == 404


def test_a_fresh_folder_is_served_although_another_table_writes_above_it(lake: Lake) -> None:
    lake.table("sales", "wide", properties={"write.data.path": f"{lake.base}/sales"})

    assert stage(lake)["storage-credentials"]
    assert credentials(lake).status == 200


def test_whoever_writes_into_a_parent_of_another_table_gets_no_keys_there(lake: Lake) -> None:
    lake.table("sales", "wide", properties={"write.data.path": f"{lake.base}/sales"})
    lake.table("sales", "inner")

    assert lake.read("wide", path="/credentials").status == 403


def test_a_dropped_table_is_opened_for_who_dropped_it(lake: Lake) -> None:
    dropped = lake.table("sales", "t")
    key = key_of(dropped["metadata-location"])
    done(lake.call_as("ana", "DELETE", path_of("sales", "tables", "t")))

    answer = ok(credentials(lake))
    with closing(lake.client(answer["storage-credentials"][0]["config"])) as s3:
        assert may(s3, "delete_object", Bucket=lake.bucket, Key=key)
    assert credentials(lake, by="ben").status == 404
    assert credentials(lake, by="root").status == 404
    lake.clock.added_ms += DROPPED_ACCESS_MS + 1
    assert credentials(lake).status == 404


def test_who_could_only_drop_a_table_gets_no_keys_of_it(lake: Lake) -> None:
    lake.principal("sweeper", default__sales="TABLE_DROP,TABLE_LIST")
    lake.principal("reading", default__sales="READ,TABLE_DROP")
    for name, who in (("a", "sweeper"), ("b", "reading")):
        lake.table("sales", name)
        done(lake.call_as(who, "DELETE", path_of("sales", "tables", name)))

    assert credentials(lake, "a", "sweeper").status == 404
    assert not writes(lake, ok(credentials(lake, "b", "reading")), "wh/x")
    assert lake.rows("SELECT level FROM nunatak_temporary_access") == [("read",)]


def test_a_dropped_tables_files_that_are_registered_again_are_closed(lake: Lake) -> None:
    dropped = lake.table("sales", "t")
    done(lake.call_as("ana", "DELETE", path_of("sales", "tables", "t")))
    ok(credentials(lake))
    body = {"name": "again", "metadata-location": dropped["metadata-location"]}
    ok(lake.call("POST", path_of("sales", "register"), body))

    assert credentials(lake).status == 403


def test_a_refused_drop_leaves_no_record(lake: Lake) -> None:
    assert lake.call_as("ana", "DELETE", path_of("sales", "tables", "none")).status == 404
    lake.principal("reader", default__sales="READ")
    lake.table("sales", "t")
    assert lake.call_as("reader", "DELETE", path_of("sales", "tables", "t")).status == 403

    assert lake.rows("SELECT * FROM nunatak_temporary_access") == []


def test_a_record_holds_no_property_but_the_write_locations(lake: Lake) -> None:
    properties = {"owner": "a secret of ana", "write.data.path": f"{lake.base}/sales/data-of-t"}
    stage(lake, properties=properties)
    lake.table("sales", "d", properties=properties | {"write.data.path": f"{lake.base}/sales/data-of-d"})
    done(lake.call("DELETE", path_of("sales", "tables", "d")))

    rows = lake.rows("SELECT facts FROM nunatak_temporary_access")
    assert len(rows) == 2
    assert "a secret of ana" not in str(rows)
    assert "data-of-d" in str(rows)


def test_the_keys_of_a_shadow_only_read(lake: Lake) -> None:
    source = lake.table("sales", "source")
    done(lake.call("DELETE", path_of("sales", "tables", "source")))
    body = {"name": "t", "metadata-location": source["metadata-location"], "shadow-of": "hive.sales.t"}
    shadow = ok(lake.call("POST", path_of("sales", "register"), body, VENDED))
    folder = key_of(shadow["metadata"]["location"])

    loaded = lake.read("t")
    for answer in (shadow, ok(loaded)):
        assert not writes(lake, answer, f"{folder}/data/x")
    assert lake.read("t", if_none_match=loaded.headers["etag"]).status == 200
    assert parse_location(shadow["metadata"]["location"]).scheme == "s3"
