"""S5: other machines, files of this one and ways out of the warehouse, in every field that takes a place."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.wire import a_commit, a_table, a_view, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog
from tests.support.sentinel import Sentinel, listening_sentinel

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")

# `{port}` is the sentinel's, `{home}` the warehouse, `{outside}` a folder with a metadata file that does exist.
PAYLOADS = [
    "http://127.0.0.1:{port}/latest/meta-data/",
    "https://127.0.0.1:{port}/x",
    "HTTP://127.0.0.1:{port}/x",
    "http://localhost:{port}/x",
    "http://[::1]:{port}/x",
    "http://0.0.0.0:{port}/x",
    "http://0x7f000001:{port}/x",
    "http://2130706433:{port}/x",
    "http://127.1:{port}/x",
    "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://user:password@127.0.0.1:{port}/x",
    "http://127.0.0.1:{port}#@allowed/",
    "ftp://127.0.0.1:{port}/x",
    "gopher://127.0.0.1:{port}/_GET",
    "dict://127.0.0.1:{port}/info",
    "ldap://127.0.0.1:{port}/x",
    "jar:http://127.0.0.1:{port}/x!/y",
    "hdfs://127.0.0.1:{port}/x",
    "webhdfs://127.0.0.1:{port}/x",
    "s3://127.0.0.1:{port}/x",
    "s3://bucket/x",
    "s3a://bucket@127.0.0.1:{port}/x",
    "gs://bucket/x",
    "abfss://container@127.0.0.1:{port}/x",
    "abfss://container@account.dfs.core.windows.net/x",
    "wasb://container@account/x",
    "oss://bucket/x",
    "data:application/json,{{}}",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "FILE:///etc/passwd",
    "/etc/passwd",
    "etc/passwd",
    "../../../../etc/passwd",
    "file://localhost/etc/passwd",
    "file://127.0.0.1:{port}/etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "file:////etc/passwd",
    "file:///proc/self/environ",
    "file:///dev/zero",
    "file:///dev/stdin",
    "{outside}/v1.metadata.json",
    "{home}/../outside/v1.metadata.json",
    "{home}/./../outside/v1.metadata.json",
    "{home}/ns/../../outside/v1.metadata.json",
    "{home}//../outside/v1.metadata.json",
    "{home}/..%2foutside/../../outside/v1.metadata.json",
    "{home}\\..\\outside\\v1.metadata.json",
    "{home}elsewhere/v1.metadata.json",
    "{home}/x?y=../../outside",
    "{home}/x#../../outside",
    "{home}/x\x00/v1.metadata.json",
    "{home}/x\n/v1.metadata.json",
    "{home}/x\r\nHost: 127.0.0.1:{port}",
    "\\\\127.0.0.1@{port}\\share\\x",
    "//127.0.0.1:{port}/x",
    "{{jndi:ldap://127.0.0.1:{port}/x}}",
    "",
    " ",
    "file:",
    "://",
]


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Sentinel]:
    with listening_sentinel() as found:
        yield found


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCatalog]:
    data: Path = tmp_path_factory.mktemp("payloads")
    secured = LocalCatalog(data, auth=True)
    secured.namespace("ns")
    location = secured.table("ns", "t")["metadata-location"].removeprefix("file://")
    secured.view("ns", "v")
    outside = data / "outside"
    outside.mkdir()
    (outside / "v1.metadata.json").write_bytes(Path(location).read_bytes())
    os.symlink(outside, secured.warehouse / "link")
    yield secured
    secured.close()


def test_there_are_sixty_and_each_is_its_own() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 60


def requests_with(place: str) -> list[tuple[str, Any]]:
    """Every field of a request that names a place for the server or somebody else to read or write."""
    steering = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
    return [
        (path_of("ns", "register"), {"name": "x", "metadata-location": place}),
        (path_of("ns", "register"), {"name": "t", "metadata-location": place, "overwrite": True}),
        (path_of("ns", "register-view"), {"name": "x", "metadata-location": place}),
        (T, a_commit({"action": "set-location", "location": place})),
        (V, a_commit({"action": "set-location", "location": place})),
        (path_of("ns", "tables"), a_table("x", location=place or " ")),
        (path_of("ns", "tables"), a_table("x", location=place or " ", stage_create=True)),
        (path_of("ns", "views"), a_view("x", location=place or " ")),
        *((T, a_commit(set_properties(**{name: place}))) for name in steering),
        *((path_of("ns", "tables"), a_table("x", properties={name: place})) for name in steering),
        ("/management/v1/warehouses", {"name": "x", "location": place or " "}),
    ]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_place_outside_is_refused_in_every_field_and_nobody_is_called(
    catalog: LocalCatalog, sentinel: Sentinel, payload: str
) -> None:
    home = f"file://{catalog.warehouse}"
    place = payload.format(port=sentinel.port, home=home, outside=f"file://{catalog.data}/outside")
    before = catalog.state()

    for path, body in requests_with(place):
        answer = catalog.call("POST", path, body)

        assert 400 <= answer.status < 500, (path, answer.body[:200])
        assert b"root:" not in answer.body
    assert catalog.state() == before
    assert sentinel.connections() == 0


def test_a_link_out_of_the_warehouse_is_not_followed(catalog: LocalCatalog) -> None:
    for path in ("register", "register-view"):
        place = f"file://{catalog.warehouse}/link/v1.metadata.json"
        answer = catalog.call("POST", path_of("ns", path), {"name": "x", "metadata-location": place})

        assert answer.status in (400, 404), answer.body


def test_a_sentinel_notices() -> None:
    with listening_sentinel() as other:
        socket.create_connection(("127.0.0.1", other.port)).close()
        assert other.connections() == 1
