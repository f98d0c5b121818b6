"""Storage profiles and secrets: what is shown and what is refused."""

import asyncio
from typing import Any

import pytest

from nunatak.errors import BadRequest
from nunatak.objectstore.cloud_stores import open_bucket
from nunatak.objectstore.endpoints import check_endpoints
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.profile import (
    AdlsProfile,
    AdlsSecret,
    GcsProfile,
    GcsSecret,
    LocalProfile,
    S3Profile,
    S3Secret,
    StorageProfile,
    StorageSecret,
)
from nunatak.objectstore.profile_checks import check_profile, check_residency, endpoints_of

CANARY = "c4n4ry-of-a-secret"


@pytest.mark.parametrize(
    "secret",
    [
        S3Secret("AKIA", CANARY, CANARY),
        AdlsSecret(account_key=CANARY, client_id="id", client_secret=CANARY),
        GcsSecret(service_account_key=CANARY, access_token=CANARY),
    ],
)
def test_a_printed_secret_does_not_show_itself(secret: StorageSecret) -> None:
    assert CANARY not in f"{secret} {secret!r} {[secret]} {(secret,)!s}"


S3, ADLS, GCS = S3Profile(), AdlsProfile(), GcsProfile()
KEYS = S3Secret("AKIA", "x")
CONTAINER = "c01@account.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("profile", "secret", "location"),
    [
        (LocalProfile(), None, "file:///data/x y"),
        (S3, None, "s3a://bucket/a/b_c=d"),
        (S3, KEYS, "s3://bucket"),
        (S3Profile(role_arn="arn:aws:iam::000000000000:role/vend"), KEYS, "s3://my.bucket-1/x"),
        (ADLS, AdlsSecret(client_id="i", client_secret="s"), f"abfss://{CONTAINER}/x"),
        (GCS, None, "gs://bucket_1/x"),
        (GCS, GcsSecret(service_account_key='{"type":"service_account"}'), "gs://bucket/x"),
    ],
)
def test_a_profile_with_its_secret_and_location_is_accepted(
    profile: StorageProfile, secret: StorageSecret | None, location: str
) -> None:
    check_profile(profile, secret, [parse_location(location)])


@pytest.mark.parametrize(
    ("profile", "secret", "location"),
    [
        (S3, None, "gs://bucket/x"),  # another cloud
        (S3, None, "file:///x"),
        (LocalProfile(), None, "s3://bucket/x"),
        (LocalProfile(), KEYS, "file:///x"),
        (S3, GcsSecret(access_token="t"), "s3://bucket/x"),  # another cloud's secret
        (S3, None, "s3://evil.example:8080/x"),  # a host and port in place of a bucket
        (S3, None, "s3://Bucket/x"),  # another spelling of a bucket would be a second warehouse on it
        (S3, None, "s3://a/x"),
        (S3, None, "s3://bu..cket/x"),
        (S3Profile(region="us.evil.example/#"), None, "s3://bucket/x"),  # the region is part of the host name
        (S3Profile(region="us-east-1@evil"), None, "s3://bucket/x"),
        (S3Profile(region="ＵＳ"), None, "s3://bucket/x"),
        (S3Profile(role_arn="role"), None, "s3://bucket/x"),
        (S3Profile(external_id="a\nb"), None, "s3://bucket/x"),
        (S3Profile(static_keys=True), None, "s3://bucket/x"),
        *((S3, None, f"s3://bucket/a/{name}") for name in ("*", "a*b", "${x}", "'", "a%2Fb", "ä", "a.", "a b", "{a}")),
        (ADLS, None, "abfss://c01@evil.example/x"),
        (ADLS, None, "abfss://c01@account.blob.core.windows.net/x"),  # a second name of the same container
        (ADLS, None, "abfss://c01@dfs.core.windows.net/x"),
        (ADLS, None, "abfss://account.dfs.core.windows.net/x"),
        (AdlsProfile(endpoint="https://evil.example"), None, f"abfss://{CONTAINER}/x"),  # would get the server's token
        (AdlsProfile(tenant_id="a/../b"), None, f"abfss://{CONTAINER}/x"),
        (GcsProfile(endpoint="https://evil.example"), None, "gs://bucket/x"),
        (GCS, GcsSecret(service_account_key="no JSON"), "gs://bucket/x"),
        (GCS, GcsSecret(service_account_key='{"type":"external_account"}'), "gs://bucket/x"),  # may run a command
        (GCS, GcsSecret(service_account_key='{"type":"service_account","token_uri":"http://x"}'), "gs://bucket/x"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    profile: StorageProfile, secret: StorageSecret | None, location: str
) -> None:
    with pytest.raises(BadRequest):
        check_profile(profile, secret, [parse_location(location)])


def test_every_address_that_a_profile_or_its_secret_names_is_checked() -> None:
    key = GcsSecret(service_account_key='{"type":"service_account","token_uri":"https://t.example/"}')

    assert endpoints_of(S3Profile(endpoint="https://a", sts_endpoint="https://b"), None) == ["https://a", "https://b"]
    assert endpoints_of(AdlsProfile(endpoint="https://a"), None) == ["https://a"]
    assert endpoints_of(GcsProfile(endpoint="https://a", token_endpoint="https://b"), key) == [
        "https://a",
        "https://b",
        "https://t.example/",
    ]
    assert endpoints_of(S3, KEYS) == []
    in_host, by_path = S3Profile(endpoint="https://a:9", path_style=False), S3Profile(endpoint="https://a:9")
    places = [parse_location("s3://bucket/x")]
    assert endpoints_of(in_host, KEYS, places) == ["https://a:9", "https://bucket.a:9"]
    assert endpoints_of(by_path, KEYS, places) == ["https://a:9"]


def test_a_warehouse_lies_in_the_region_that_it_declares() -> None:
    check_residency(S3Profile(region="eu-central-1"), "eu-central-1")
    check_residency(S3Profile(region="eu-central-1"), None)
    with pytest.raises(BadRequest, match="must lie in eu-west-1"):
        check_residency(S3Profile(region="eu-central-1"), "eu-west-1")


# Endpoints


def check(url: str, *addresses: str, allow_private: bool = False) -> None:
    asyncio.run(check_endpoints([url], allow_private=allow_private, resolve=lambda host, port: addresses))


NEVER = [
    "169.254.169.254",
    "169.254.1.1",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "240.0.0.1",
    "::ffff:169.254.169.254",  # the same addresses as IPv6 writes them
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "::169.254.169.254",
]
PRIVATE = ["127.0.0.1", "127.9.9.9", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "fd12::1", "100.64.0.1"]
PRIVATE += ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1"]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("allow_private", [False, True])
def test_no_endpoint_leads_to_metadata_of_the_cloud(address: str, allow_private: bool) -> None:
    with pytest.raises(BadRequest, match="no object store can be"):
        check("https://store.example", "93.184.216.34", address, allow_private=allow_private)


@pytest.mark.parametrize("address", PRIVATE)
def test_an_endpoint_in_a_private_network_needs_the_setting(address: str) -> None:
    with pytest.raises(BadRequest, match="private network"):
        check("http://store.example:9000/s3", address)

    check("http://store.example:9000/s3", address, allow_private=True)


def test_a_public_endpoint_needs_tls() -> None:
    check("https://store.example", "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")
    with pytest.raises(BadRequest, match="without TLS"):
        check("http://store.example", "93.184.216.34", allow_private=True)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f000001", "017700000001", "127.1", "localhost", "[::1]"]
)
def test_every_spelling_of_this_machine_is_known(host: str) -> None:
    with pytest.raises(BadRequest):
        asyncio.run(check_endpoints([f"https://{host}/"], allow_private=False))


@pytest.mark.parametrize("url", ["https://:443", "https://a:99999", "ftp://a", "https://a..b.invalid"])
def test_an_endpoint_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        asyncio.run(check_endpoints([url], allow_private=True))


def test_a_bucket_by_virtual_host_is_named_in_its_address() -> None:
    place = parse_location("s3://bucket/x")

    def endpoint(**fields: Any) -> str:
        opened: str = open_bucket(S3Profile(**fields), KEYS, place).config["endpoint"]
        return opened

    assert endpoint(endpoint="https://s3.example:9", path_style=False) == "https://bucket.s3.example:9"
    assert endpoint(endpoint="https://s3.example:9") == "https://s3.example:9"
    for address in ("http://127.0.0.1:9", "https://[::1]:9"):
        with pytest.raises(BadRequest, match="set path-style=true"):
            endpoint(endpoint=address, path_style=False)
