"""ETags and 304, `snapshots=refs`, compression both ways, and the request's id."""

import gzip
import json
from collections.abc import Callable

import pytest
import zstandard

from tests.api.conftest import MakeCatalog
from tests.api.wire import Answer, a_commit, a_table, add_snapshot, ok, path_of, set_branch, set_properties
from tests.support.catalogs.local import LocalCatalog

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")
both = pytest.mark.parametrize("path", [T, V], ids=["table", "view"])


@pytest.fixture
def full(catalog: LocalCatalog) -> LocalCatalog:
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    return catalog


def test_every_answer_with_metadata_has_the_same_etag_for_the_same_metadata(full: LocalCatalog) -> None:
    created = full.call("POST", path_of("ns", "tables"), a_table("new"))
    path = path_of("ns", "tables", "new")
    assert full.call("GET", path).headers["etag"] == created.headers["etag"]

    committed = full.call("POST", path, a_commit(set_properties(a="b")))
    assert full.call("GET", path).headers["etag"] == committed.headers["etag"] != created.headers["etag"]


@both
def test_metadata_the_client_has_is_not_sent_again(full: LocalCatalog, path: str) -> None:
    etag = full.call("GET", path).headers["etag"]

    for sent in (etag, f"W/{etag}", f'"other", {etag}', f'"a","b" , {etag} '):
        answer = full.call("GET", path, headers={"If-None-Match": sent})
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == etag
        assert "content-length" not in answer.headers


@both
def test_metadata_the_client_does_not_have_is_sent(full: LocalCatalog, path: str) -> None:
    etag = full.call("GET", path).headers["etag"]

    for sent in ('"other"', etag.strip('"'), "", f'"{etag}"', etag.upper().replace("A", "x")):
        assert full.call("GET", path, headers={"If-None-Match": sent}).status == 200


@both
def test_a_commit_makes_the_etag_old_and_a_restart_does_not(full: LocalCatalog, path: str) -> None:
    etag = full.call("GET", path).headers["etag"]
    full.restart()
    assert full.call("GET", path, headers={"If-None-Match": etag}).status == 304

    ok(full.call("POST", path, a_commit(set_properties(a="b"))))

    answer = full.call("GET", path, headers={"If-None-Match": etag})
    assert answer.status == 200
    assert answer.headers["etag"] != etag


def test_a_table_dropped_and_made_again_has_another_etag(full: LocalCatalog) -> None:
    etag = full.call("GET", T).headers["etag"]
    assert full.call("DELETE", T).status == 204
    full.table("ns", "t")

    assert full.call("GET", T, headers={"If-None-Match": etag}).status == 200


def test_a_missing_table_is_404_whatever_the_client_has(full: LocalCatalog) -> None:
    etag = full.call("GET", T).headers["etag"]
    assert full.call("DELETE", T).status == 204

    assert full.call("GET", T, headers={"If-None-Match": etag}).status == 404


def test_the_modes_of_snapshots_have_etags_of_their_own(full: LocalCatalog) -> None:
    ok(full.call("POST", T, a_commit(add_snapshot(1), set_branch(1))))
    whole, refs = full.call("GET", f"{T}?snapshots=all"), full.call("GET", f"{T}?snapshots=refs")

    assert full.call("GET", T).headers["etag"] == whole.headers["etag"] != refs.headers["etag"]
    for path, mine, other in ((T, whole, refs), (f"{T}?snapshots=refs", refs, whole)):
        assert full.call("GET", path, headers={"If-None-Match": mine.headers["etag"]}).status == 304
        assert full.call("GET", path, headers={"If-None-Match": other.headers["etag"]}).status == 200


def test_refs_leaves_out_the_snapshots_that_no_branch_or_tag_needs(full: LocalCatalog) -> None:
    line = [add_snapshot(1), set_branch(1), add_snapshot(2, parent=1, sequence=2), set_branch(2)]
    line += [add_snapshot(3, parent=2, sequence=3), set_branch(3), set_branch(1, "old")]
    ok(full.call("POST", T, a_commit(*line)))
    whole = ok(full.call("GET", T))["metadata"]

    for _ in range(2):  # made anew, then from memory
        refs = ok(full.call("GET", f"{T}?snapshots=refs"))
        assert [snapshot["snapshot-id"] for snapshot in refs["metadata"]["snapshots"]] == [1, 3]
        assert refs["metadata"] | {"snapshots": whole["snapshots"]} == whole
        assert refs["metadata-location"] == ok(full.call("GET", T))["metadata-location"]
        assert refs["config"] == {}
    assert [snapshot["snapshot-id"] for snapshot in ok(full.call("GET", T))["metadata"]["snapshots"]] == [1, 2, 3]


# Compression


def unpacked(answer: Answer) -> bytes:
    encoding = answer.headers.get("content-encoding")
    assert answer.headers["content-length"] == str(len(answer.body))
    if encoding == "gzip":
        return gzip.decompress(answer.body)
    if encoding == "zstd":
        return zstandard.decompress(answer.body)
    assert encoding is None
    return answer.body


@pytest.mark.parametrize(
    ("accepted", "used"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "gzip"),
        ("zstd;q=1.0, gzip;q=0", "zstd"),
        ("GZIP", "gzip"),
        ("br", None),
        ("identity", None),
        ("gzip;q=0", None),
        ("", None),
    ],
)
def test_a_large_answer_is_packed_as_the_client_accepts(full: LocalCatalog, accepted: str, used: str | None) -> None:
    ok(full.call("POST", T, a_commit(set_properties(**{f"key{number}": "x" * 100 for number in range(300)}))))
    plain = full.call("GET", T)

    for _ in range(2):  # packed anew, then from memory
        answer = full.call("GET", T, headers={"Accept-Encoding": accepted})
        assert answer.headers.get("content-encoding") == used
        assert unpacked(answer) == plain.body
        assert answer.headers["etag"] == plain.headers["etag"]
        if used:
            assert len(answer.body) < len(plain.body) / 2
            assert answer.headers["vary"] == "accept-encoding"


def test_a_small_answer_is_not_packed(full: LocalCatalog) -> None:
    answer = full.call("GET", T, headers={"Accept-Encoding": "gzip"})

    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "zstd", "identity", "GZIP", " gzip ", "identity "])
def test_a_packed_request_is_understood(full: LocalCatalog, encoding: str) -> None:
    plain = json.dumps(a_commit(set_properties(packed=encoding))).encode()
    kind = encoding.strip().lower().removeprefix("x-")
    packers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}
    body = packers.get(kind, bytes)(plain)

    ok(full.call("POST", T, body, {"Content-Encoding": encoding}))

    assert full.load("ns", "t")["metadata"]["properties"]["packed"] == encoding


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_request_packed_in_pieces_is_read_whole(full: LocalCatalog, pack: object) -> None:
    """Both formats allow several members or frames one after the other."""
    assert callable(pack)
    plain = json.dumps(a_commit(set_properties(pieces="all"))).encode()
    body = b"".join(pack(plain[start : start + 20]) for start in range(0, len(plain), 20))

    ok(full.call("POST", T, body, {"Content-Encoding": "gzip" if pack is gzip.compress else "zstd"}))

    assert full.load("ns", "t")["metadata"]["properties"]["pieces"] == "all"


def test_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog(max_body_bytes="1000")
    body = json.dumps({"namespace": ["large"]}).encode()

    for pack, headers in ((bytes, {}), (gzip.compress, {"Content-Encoding": "gzip"})):
        assert catalog.call("POST", "/v1/namespaces", pack(body.ljust(1001)), headers).error == (
            413,
            "PayloadTooLargeException",
            "Request body is larger than 1000 bytes",
        )
    ok(catalog.call("POST", "/v1/namespaces", body.ljust(1000)))


# The request's id


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", T, None), ("GET", "/v1/nothing", None), ("HEAD", T, None),
     ("POST", "/v1/namespaces", {"namespace": ["r"]}), ("POST", "/v1/namespaces", []), ("DELETE", T, None)],
    ids=["a load", "an error", "a head", "a create", "a refusal", "a drop"],
)  # fmt: skip
def test_the_request_id_is_echoed(full: LocalCatalog, method: str, path: str, body: object) -> None:
    answer = full.call(method, path, body, {"X-Request-Id": "trace-42/a b"})

    assert answer.headers["x-request-id"] == "trace-42/a b"


def test_the_request_id_of_a_change_is_in_the_commit_log(full: LocalCatalog) -> None:
    ok(full.call("POST", T, a_commit(set_properties(a="b")), {"X-Request-Id": "trace-42"}))

    assert full.rows("SELECT request_id FROM nunatak_commits ORDER BY sequence DESC LIMIT 1") == [("trace-42",)]


def test_an_answer_without_a_request_id_has_none(full: LocalCatalog) -> None:
    assert "x-request-id" not in full.call("GET", T).headers


def test_the_headers_that_clients_send_with_everything_change_no_answer(full: LocalCatalog) -> None:
    """002-53"""
    headers = {
        "Authorization": "Bearer any",
        "Content-Type": "application/json",
        "X-Request-Id": "trace-42",
        "X-Iceberg-Access-Delegation": "vended-credentials",
    }

    answer = full.call("GET", T, headers=headers)

    assert (answer.status, answer.body) == (200, full.call("GET", T).body)
    assert answer.headers["x-request-id"] == "trace-42"
