"""Remote signing through the API: a client without any key reaches its table on S3, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.test_storage_access import SECRETS, VENDED, Lake, key_of
from tests.api.wire import Answer, a_table, done, ok, path_of
from tests.support.object_stores import REGION, S3Emulator

SIGNED = {"X-Iceberg-Access-Delegation": "remote-signing"}


@pytest.fixture
def lake(tmp_path: Path, s3_store: S3Emulator) -> Iterator[Lake]:
    opened = Lake(tmp_path, s3_store)
    yield opened
    opened.close()


def sign(lake: Lake, name: str, method: str, uri: str, by: str = "root", **more: Any) -> Answer:
    body = {"method": method, "region": REGION, "uri": uri, "headers": {}, **more}
    return lake.call_as(by, "POST", path_of("sales", "tables", name) + "/sign", body)


def send(lake: Lake, name: str, method: str, uri: str, content: bytes = b"", by: str = "root") -> httpx.Response:
    signed = ok(sign(lake, name, method, uri, by))
    headers = {key: values[0] for key, values in signed["headers"].items()}
    return httpx.request(method, signed["uri"], headers=headers, content=content)


def uri(lake: Lake, location: str, name: str = "data/a.parquet") -> str:
    return f"{lake.s3.endpoint}/{lake.bucket}/{key_of(location)}/{name}"


def test_a_client_that_asks_for_signing_gets_addresses_and_no_key(lake: Lake) -> None:
    lake.table("sales", "t")
    config = ok(lake.call("GET", path_of("sales", "tables", "t"), headers=SIGNED))["config"]

    assert SECRETS.isdisjoint(config)
    assert config["s3.remote-signing-enabled"] == "true"
    assert config["signer.endpoint"] == config["s3.signer.endpoint"] == "v1/namespaces/sales/tables/t/sign"
    assert config["s3.signer"] == "S3V4RestSigner"
    assert "py-io-impl" not in config
    pyiceberg = lake.call("GET", path_of("sales", "tables", "t"), headers={**SIGNED, "User-Agent": "PyIceberg/0.12.0"})
    assert ok(pyiceberg)["config"]["py-io-impl"] == "pyiceberg.io.fsspec.FsspecFileIO"
    for other in ({}, VENDED):
        assert (
            "s3.remote-signing-enabled"
            not in ok(lake.call("GET", path_of("sales", "tables", "t"), headers=other))["config"]
        )


def test_its_requests_are_signed_inside_the_table_alone(lake: Lake) -> None:
    location = lake.table("sales", "t")["metadata"]["location"]
    other = lake.table("sales", "t2")

    assert send(lake, "t", "PUT", uri(lake, location), b"rows").status_code == 200
    assert send(lake, "t", "GET", uri(lake, location)).content == b"rows"
    for method, address in (
        ("GET", uri(lake, other["metadata"]["location"])),
        ("GET", f"{lake.s3.endpoint}/{lake.bucket}/{key_of(other['metadata-location'])}"),
        ("PUT", uri(lake, f"{location}0")),
        ("GET", f"{lake.s3.endpoint}/{lake.bucket}?list-type=2&prefix=wh/"),
        ("GET", "http://169.254.169.254/latest/meta-data"),
    ):
        refused = sign(lake, "t", method, address)
        assert refused.status == 403, (method, address)
        assert b"Signature=" not in refused.body


def test_readers_and_strangers_get_what_they_may(lake: Lake) -> None:
    location = lake.table("sales", "t")["metadata"]["location"]
    lake.principal("reader", default__sales="TABLE_READ_META,TABLE_READ_DATA")
    lake.principal("clerk", default__sales="TABLE_READ_META")
    lake.principal("stranger", server="NS_LIST")

    assert sign(lake, "t", "GET", uri(lake, location), "reader").status == 200
    assert sign(lake, "t", "PUT", uri(lake, location), "reader").status == 403
    assert sign(lake, "t", "GET", uri(lake, location), "clerk").status == 403
    hidden, absent = (
        sign(lake, "t", "GET", uri(lake, location), "stranger"),
        sign(lake, "x", "GET", uri(lake, location), "stranger"),
    )
    assert hidden.status == absent.status == 404
    assert hidden.body.replace(b"sales.t", b"") == absent.body.replace(b"sales.x", b"")


def test_staged_and_dropped_tables_are_signed_for_those_who_made_them(lake: Lake) -> None:
    staged = ok(lake.call("POST", path_of("sales", "tables"), {**a_table("s"), "stage-create": True}, SIGNED))
    assert staged["config"]["s3.remote-signing-enabled"] == "true"
    location = staged["metadata"]["location"]
    assert send(lake, "s", "PUT", uri(lake, location), b"rows").status_code == 200
    assert sign(lake, "never", "PUT", uri(lake, location)).status == 404

    dropped = lake.table("sales", "t")["metadata"]["location"]
    assert send(lake, "t", "PUT", uri(lake, dropped), b"rows").status_code == 200
    done(lake.call("DELETE", path_of("sales", "tables", "t")))
    assert send(lake, "t", "DELETE", uri(lake, dropped)).status_code in (200, 204)
    lake.clock.added_ms += 31 * 60_000
    assert sign(lake, "t", "DELETE", uri(lake, dropped)).status == 404


def test_a_dropped_shadow_gives_no_access_to_the_files_of_its_source(lake: Lake) -> None:
    """Spark deletes the files of a table that it drops with PURGE; these belong to another catalog."""
    source = lake.table("sales", "t")
    ok(lake.call("POST", path_of("sales", "tables", "t") + "/unregister", {}))
    body = {"name": "s", "metadata-location": source["metadata-location"], "shadow-of": "other catalog"}
    ok(lake.call("POST", "/v1/namespaces/sales/register", body))
    file = f"{lake.s3.endpoint}/{lake.bucket}/{key_of(source['metadata-location'])}"
    assert sign(lake, "s", "GET", file).status == 200
    assert sign(lake, "s", "DELETE", file).status == 403

    done(lake.call("DELETE", path_of("sales", "tables", "s")))

    assert sign(lake, "s", "DELETE", file).status == 404
    assert lake.read("s", path="/credentials").status == 404


def test_only_signatures_of_reads_may_be_reused(lake: Lake) -> None:
    location = lake.table("sales", "t")["metadata"]["location"]

    assert sign(lake, "t", "GET", uri(lake, location)).headers["cache-control"] == "private"
    assert sign(lake, "t", "PUT", uri(lake, location)).headers["cache-control"] == "no-cache"


def test_a_warehouse_that_does_not_sign_says_so(lake: Lake) -> None:
    lake.serve(version=2, delegation=("vended-credentials",))
    location = lake.table("sales", "t")["metadata"]["location"]

    assert sign(lake, "t", "GET", uri(lake, location)).status == 403
    loaded = ok(lake.call("GET", path_of("sales", "tables", "t"), headers=SIGNED))
    assert "s3.remote-signing-enabled" not in json.dumps(loaded["config"])


@pytest.mark.parametrize("more", [{"provider": "gcs"}, {"headers": {"a": "b"}}, {"uri": 3}])
def test_malformed_requests_are_refused(lake: Lake, more: dict[str, Any]) -> None:
    location = lake.table("sales", "t")["metadata"]["location"]
    body = {"method": "GET", "region": REGION, "uri": uri(lake, location), "headers": {}, **more}

    assert lake.call("POST", path_of("sales", "tables", "t") + "/sign", body).status == 400
