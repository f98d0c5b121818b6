"""Which requests to S3 are signed: those inside the table's places that every store reads in one way."""

import pytest

from nunatak.errors import Forbidden
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.profile import S3Profile
from nunatak.objectstore.signing.s3_request import check_request
from nunatak.objectstore.storage import AccessLevel, CredentialScope, SigningRequest

ENDPOINT = "http://127.0.0.1:9000"
TABLE = f"{ENDPOINT}/lake/wh/t1"
PROFILE = S3Profile(endpoint=ENDPOINT, verifies_bodies=True)
DELETE = '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{}</Delete>'


def scope(level: AccessLevel = AccessLevel.READ_WRITE, *places: str) -> CredentialScope:
    return CredentialScope("ada", "u", tuple(map(parse_location, places or ("s3://lake/wh/t1",))), level)


def request(method: str, uri: str, body: str | None = None, **headers: str) -> SigningRequest:
    listed = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return SigningRequest(method, uri, "us-east-1", listed, body)


def objects(*keys: str) -> str:
    return DELETE.format("".join(f"<Object><Key>{key}</Key></Object>" for key in keys))


INSIDE = [
    ("GET", f"{TABLE}/data/a.parquet"),
    ("HEAD", f"{TABLE}/metadata/snap-1.avro"),
    ("PUT", f"{TABLE}/data/day%3D2026-01-01/a%20b%2Bc.parquet"),
    ("PUT", f"{TABLE}/data/name=x%252Fy/a.parquet"),  # a partition value with a slash, encoded by the writer
    ("PUT", f"{TABLE}/data/a.parquet?partNumber=1&uploadId=abc"),
    ("POST", f"{TABLE}/data/a.parquet?uploads"),
    ("POST", f"{TABLE}/data/a.parquet?uploads="),
    ("POST", f"{TABLE}/data/a.parquet?uploadId=abc"),
    ("DELETE", f"{TABLE}/data/a.parquet"),
    ("DELETE", f"{TABLE}/data/a.parquet?uploadId=abc"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=wh%2Ft1%2F"),
    ("GET", f"{ENDPOINT}/lake/?list-type=2&prefix=wh/t1/data/&max-keys=10&continuation-token=x%2By"),
]

OUTSIDE = [
    ("GET", f"{ENDPOINT}/lake/wh/t10/data/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/"),
    ("GET", f"{ENDPOINT}/lake/wh/a.parquet"),
    ("GET", f"{ENDPOINT}/other/wh/t1/data/a.parquet"),
    ("GET", f"{ENDPOINT}/lake2/wh/t1/data/a.parquet"),
    ("GET", f"{ENDPOINT}//lake/wh/t1/data/a.parquet"),
    ("GET", f"{ENDPOINT}/lake//wh/t1/data/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1//../t2/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/../t2/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/%2e%2e/t2/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/%2e%2e%2ft2/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/%252e%252e%252ft2/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/%25252e%25252e/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/..%5ct2/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/%00/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/%0aa.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/%ff.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/a+b.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/a;x=y/b.parquet"),
    ("GET", f"{ENDPOINT}/lake/wh/t1/a b.parquet"),
    ("GET", f"{TABLE}/data/a.parquet?versionId=1"),
    ("GET", f"{TABLE}/data/a.parquet?acl"),
    ("GET", f"{TABLE}/data/a.parquet?tagging"),
    ("GET", f"{TABLE}/data/a.parquet?X-Amz-Security-Token=x"),
    ("PUT", f"{TABLE}/data/a.parquet?acl"),
    ("PUT", f"{TABLE}/data/a.parquet?partNumber=1"),
    ("PUT", f"{TABLE}/data/a.parquet?partNumber=1&uploadId=a&uploadId=b"),
    ("DELETE", f"{TABLE}/data/a.parquet?versionId=1"),
    ("POST", f"{TABLE}/data/a.parquet"),
    ("POST", f"{TABLE}/data/a.parquet?select&select-type=2"),
    ("POST", f"{TABLE}/data/a.parquet?restore"),
    ("PATCH", f"{TABLE}/data/a.parquet"),
    ("OPTIONS", f"{TABLE}/data/a.parquet"),
    ("get", f"{TABLE}/data/a.parquet"),
    ("GET", f"{ENDPOINT}/"),
    ("GET", f"{ENDPOINT}/lake"),
    ("PUT", f"{ENDPOINT}/lake"),
    ("DELETE", f"{ENDPOINT}/lake"),
    ("GET", f"{ENDPOINT}/lake?versions&prefix=wh/t1/"),
    ("GET", f"{ENDPOINT}/lake?uploads&prefix=wh/t1/"),
    ("GET", f"{ENDPOINT}/lake?policy"),
    ("GET", f"{ENDPOINT}/lake?list-type=2"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=wh/t1"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix="),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=wh/t10/"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=wh/t1/&prefix=wh/"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=wh/t1/&pre%66ix=wh/"),
    ("GET", f"{ENDPOINT}/lake?list-type=1&prefix=wh/t1/"),
    ("GET", "https://127.0.0.1:9000/lake/wh/t1/data/a.parquet"),
    ("GET", "http://127.0.0.1:9001/lake/wh/t1/data/a.parquet"),
    ("GET", "http://169.254.169.254/lake/wh/t1/data/a.parquet"),
    ("GET", "http://127.0.0.1:9000@evil/lake/wh/t1/data/a.parquet"),
    ("GET", f"{TABLE}/data/a.parquet#x"),
    ("GET", f"{TABLE}/data/a.parquet?" + "a" * 9000),
]


@pytest.mark.parametrize(("method", "uri"), INSIDE)
def test_requests_inside_the_table_are_signed(method: str, uri: str) -> None:
    assert check_request(PROFILE, request(method, uri), scope()).uri == uri


@pytest.mark.parametrize(("method", "uri"), OUTSIDE)
def test_everything_else_is_refused(method: str, uri: str) -> None:
    with pytest.raises(Forbidden):
        check_request(PROFILE, request(method, uri), scope())


@pytest.mark.parametrize(("method", "uri"), INSIDE)
def test_readers_get_no_signature_for_a_write(method: str, uri: str) -> None:
    if method in ("GET", "HEAD"):
        assert check_request(PROFILE, request(method, uri), scope(AccessLevel.READ)).uri == uri
        return
    with pytest.raises(Forbidden):
        check_request(PROFILE, request(method, uri), scope(AccessLevel.READ))


def test_a_delete_of_several_objects_is_checked_key_by_key() -> None:
    uri = f"{ENDPOINT}/lake?delete"
    checked = check_request(PROFILE, request("POST", uri, objects("wh/t1/a", "wh/t1/b%2Fc")), scope())
    assert checked.body == objects("wh/t1/a", "wh/t1/b%2Fc").encode()


def test_no_delete_of_several_objects_is_signed_for_a_store_that_may_not_compare_its_hash() -> None:
    asked = request("POST", f"{ENDPOINT}/lake?delete", objects("wh/t1/a"))
    with pytest.raises(Forbidden, match="signed hash"):
        check_request(S3Profile(endpoint=ENDPOINT), asked, scope())
    own = "https://s3.us-east-1.amazonaws.com/lake?delete"
    assert check_request(S3Profile(), request("POST", own, objects("wh/t1/a")), scope()).body is not None


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "no xml",
        objects(),
        objects("wh/t1/a", "wh/t10/a"),
        objects("wh/t1/../t2/a"),
        objects("wh/t1"),
        objects("/wh/t1/a"),
        objects("wh/t1//a"),
        objects("wh&#47;t2/a"),
        objects("wh/t1/a") + "<!-- -->",
        "<!DOCTYPE x [<!ENTITY k 'wh/t2/a'>]>" + objects("&k;"),
        '<?xml version="1.0" encoding="UTF-16"?>' + objects("wh/t1/a"),
        objects("<![CDATA[wh/t1/a]]>"),
        DELETE.format("<Object><Key>wh/t1/a</Key><VersionId>1</VersionId></Object>"),
        DELETE.format("<Object><Key>wh/t1/a</Key><Key>wh/t2/a</Key></Object>"),
        DELETE.format("<Object><Key>wh/t1/<b>a</b></Key></Object>"),
        DELETE.format("<Other><Key>wh/t1/a</Key></Other>"),
        "<Remove><Object><Key>wh/t1/a</Key></Object></Remove>",
        objects(*(f"wh/t1/{number}" for number in range(1001))),
    ],
)
def test_other_bodies_of_a_delete_are_refused(body: str | None) -> None:
    with pytest.raises(Forbidden):
        check_request(PROFILE, request("POST", f"{ENDPOINT}/lake?delete", body), scope())


@pytest.mark.parametrize(
    "header",
    [
        "x-amz-copy-source",
        "X-Amz-Copy-Source",
        "x-amz-acl",
        "x-amz-grant-read",
        "x-amz-tagging",
        "x-amz-website-redirect-location",
        "x-amz-bypass-governance-retention",
        "x-amz-object-lock-mode",
        "x-amz-security-token",
        "x-amz-rename-source",
        "x-amz-write-offset-bytes",
    ],
)
def test_headers_that_reach_beyond_the_object_are_refused(header: str) -> None:
    with pytest.raises(Forbidden):
        check_request(PROFILE, request("PUT", f"{TABLE}/a", **{header: "/lake/wh/t2/a"}), scope())


def test_only_headers_with_an_effect_are_signed() -> None:
    sent = {"User-Agent": "x", "Range": "bytes=0-1", "Content-MD5": "abc", "x-amz-te": "append-md5", "Host": "evil"}
    checked = check_request(PROFILE, request("GET", f"{TABLE}/a", **sent), scope())
    assert checked.headers == {"content-md5": "abc", "x-amz-te": "append-md5"}
    assert checked.host == "127.0.0.1:9000"


def test_headers_with_line_breaks_are_refused() -> None:
    with pytest.raises(Forbidden):
        check_request(PROFILE, request("GET", f"{TABLE}/a", **{"x-amz-te": "a\x0bb"}), scope())


def test_another_region_is_refused() -> None:
    with pytest.raises(Forbidden):
        check_request(PROFILE, SigningRequest("GET", f"{TABLE}/a", "eu-west-1", {}), scope())


@pytest.mark.parametrize(
    ("uri", "is_signed"),
    [
        ("https://lake.s3.eu-west-1.amazonaws.com/wh/t1/a", True),
        ("https://s3.eu-west-1.amazonaws.com/lake/wh/t1/a", True),
        ("http://lake.s3.eu-west-1.amazonaws.com/wh/t1/a", False),
        ("https://lake.s3.eu-west-2.amazonaws.com/wh/t1/a", False),
        ("https://lake2.s3.eu-west-1.amazonaws.com/wh/t1/a", False),
        ("https://lake.s3.eu-west-1.amazonaws.com.evil.example/wh/t1/a", False),
    ],
)
def test_amazon_has_addresses_by_region_and_bucket(uri: str, is_signed: bool) -> None:
    asked = SigningRequest("GET", uri, "eu-west-1", {})
    if is_signed:
        assert check_request(S3Profile(region="eu-west-1"), asked, scope()).uri == uri
        return
    with pytest.raises(Forbidden):
        check_request(S3Profile(region="eu-west-1"), asked, scope())


def test_only_the_addressing_of_the_profile_is_signed() -> None:
    """A store without virtual hosts would read lake/x of the bucket lake as x: outside the table."""
    by_host, by_path = "http://lake.127.0.0.1:9000/lake/x", f"{ENDPOINT}/lake/lake/x"
    place = scope(AccessLevel.READ, "s3://lake/lake")
    virtual = S3Profile(endpoint=ENDPOINT, path_style=False)

    assert check_request(PROFILE, request("GET", by_path), place)
    assert check_request(virtual, request("GET", by_host), place)
    for profile, uri in ((PROFILE, by_host), (virtual, by_path)):
        with pytest.raises(Forbidden):
            check_request(profile, request("GET", uri), place)


def test_a_table_may_have_several_places() -> None:
    wide = scope(AccessLevel.READ, "s3://lake/wh/t1", "s3://data/x/y")
    assert check_request(PROFILE, request("GET", f"{ENDPOINT}/data/x/y/a"), wide)
    with pytest.raises(Forbidden):
        check_request(PROFILE, request("GET", f"{ENDPOINT}/data/wh/t1/a"), wide)


def test_a_whole_bucket_is_no_place() -> None:
    with pytest.raises(Forbidden):
        check_request(PROFILE, request("GET", f"{ENDPOINT}/lake/a"), scope(AccessLevel.READ, "s3://lake"))
