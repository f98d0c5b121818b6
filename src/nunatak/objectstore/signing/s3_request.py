"""Checks a request to S3 that a client wants signed: it may touch the places of one table, and nothing else.

The path and the query are decoded once, checked, and encoded again for the signature; the client sends the URI as it
was given. A URI that another reader could decode differently is refused.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote, unquote_to_bytes

import msgspec

from nunatak.errors import Forbidden, show_text
from nunatak.objectstore.location import MAX_DECODINGS, Location
from nunatak.objectstore.profile import S3Profile
from nunatak.objectstore.signing.delete_objects import read_keys
from nunatak.objectstore.storage import AccessLevel, CredentialScope, SigningRequest

UNRESERVED = "-_.~"
MAX_URI_LENGTH = 8192
MAX_HEADERS = 100
MAX_HEADER_LENGTH = 4096
_URI = re.compile(r"(https?)://([A-Za-z0-9.\-]+(?::[0-9]{1,5})?)(/[^?#]*)?(?:\?([^?#]*))?")
# Not `+`, which S3 itself reads as a space, and not `;`, behind which some servers cut the path.
_PATH = re.compile(r"(?:[A-Za-z0-9\-_.~!$&'()*,=:@/]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9\-_.~!$'()*,:@/=&]|%[0-9A-Fa-f]{2})*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9\-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")

# What a request to one object may do, by method: the parameters of its query, each set complete.
_OBJECT_QUERIES: dict[str, tuple[frozenset[str], ...]] = {
    "GET": (frozenset(),),
    "HEAD": (frozenset(),),
    "PUT": (frozenset(), frozenset({"partNumber", "uploadId"})),
    "POST": (frozenset({"uploads"}), frozenset({"uploadId"})),
    "DELETE": (frozenset(), frozenset({"uploadId"})),
}
_LIST_REQUIRED = frozenset({"list-type", "prefix"})
_LIST_ALLOWED = _LIST_REQUIRED | {
    "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type", "fetch-owner"
}  # fmt: skip
_READING = ("GET", "HEAD")
_UPWARDS = frozenset({".", ".."})
# Headers of Amazon with an effect on the request itself. x-amz-copy-source, for one, would read any other object.
_SIGNED = re.compile(
    r"x-amz-(?:checksum-[a-z0-9\-]+|sdk-checksum-algorithm|te|trailer|decoded-content-length|content-sha256|"
    r"server-side-encryption(?:-aws-kms-key-id|-bucket-key-enabled|-context)?|storage-class|expected-bucket-owner|"
    r"request-payer|user-agent|meta-[a-z0-9\-_]+)"
)
_REPLACED = frozenset({"x-amz-date", "authorization", "host"})


class CheckedRequest(msgspec.Struct, frozen=True):
    """A request inside its scope, in the parts that are signed; `uri` is the one that was checked."""

    method: str
    uri: str
    host: str
    path: str  # percent-encoded, as the signature takes it
    query: str
    headers: dict[str, str]  # to be signed, by lower-case name
    body: bytes | None  # of a request that deletes several objects


def check_request(profile: S3Profile, request: SigningRequest, scope: CredentialScope) -> CheckedRequest:
    """Returns the parts to sign; raises Forbidden if the request leaves the scope or cannot be read in one way."""
    if request.region != profile.region:
        raise _refusal(f"the region is {profile.region}")
    parts = _URI.fullmatch(request.uri) if len(request.uri) <= MAX_URI_LENGTH else None
    if parts is None:
        raise _refusal("the URI is not a plain http or https address")
    scheme, host, raw_path, raw_query = parts[1], parts[2], parts[3] or "/", parts[4]
    bucket, key_path = _bucket(profile, scheme, host, raw_path, scope.places)
    query = _read_query(raw_query or "")
    body = None
    if key_path in ("", "/"):
        body = _check_bucket_request(profile, request, bucket, query, scope)
    else:
        _check_object_request(request.method, bucket, key_path, query, scope)
    if scope.level is not AccessLevel.READ_WRITE and request.method not in _READING:
        raise _refusal("the caller may not write to the table")
    return CheckedRequest(
        request.method,
        request.uri,
        host.lower(),
        "/".join(_encode(_decode(segment)) for segment in raw_path.split("/")),
        "&".join(f"{name}={value}" for name, value in sorted((_encode(n), _encode(v)) for n, v in query.items())),
        _headers_to_sign(request.headers),
        body,
    )


def _bucket(profile: S3Profile, scheme: str, host: str, raw_path: str, places: Sequence[Location]) -> tuple[str, str]:
    """Returns the bucket and the path behind it; the address must be the warehouse's own."""
    if not _PATH.fullmatch(raw_path):
        raise _refusal("the path holds a character that must be percent-encoded")
    if profile.endpoint is not None:
        own_scheme, _, own_host = profile.endpoint.rstrip("/").partition("://")
        hosts = {_with_port(own_scheme, own_host)}
    else:
        own_scheme = "https"
        hosts = {f"s3.{profile.region}.amazonaws.com:443", "s3.amazonaws.com:443"}
    if scheme != own_scheme:
        raise _refusal("it is not addressed to the warehouse's endpoint")
    address = _with_port(scheme, host)
    # A store without virtual hosts would take the first folder of the path for the bucket, and the other way round.
    # Only Amazon's own addresses say by themselves which of both they are.
    by_host = profile.is_aws or not profile.uses_path_style
    by_path = profile.is_aws or profile.uses_path_style
    for bucket in dict.fromkeys(place.authority for place in places):
        if by_host and address in {f"{bucket.lower()}.{each}" for each in hosts}:
            return bucket, raw_path
        if by_path and address in hosts and (raw_path == f"/{bucket}" or raw_path.startswith(f"/{bucket}/")):
            return bucket, raw_path[len(bucket) + 1 :]
    raise _refusal("it is not addressed to a bucket of the table at the warehouse's endpoint")


def _with_port(scheme: str, host: str) -> str:
    host = host.lower()
    return host if ":" in host else f"{host}:{443 if scheme == 'https' else 80}"


def _check_object_request(
    method: str, bucket: str, key_path: str, query: Mapping[str, str], scope: CredentialScope
) -> None:
    if frozenset(query) not in _OBJECT_QUERIES.get(method, ()):
        raise _refusal("only reads, writes, deletes and multipart uploads of an object are signed")
    if query.get("uploads"):
        raise _refusal("the parameter uploads has no value")
    _check_key([_decode(segment) for segment in key_path[1:].split("/")], bucket, scope)


def _check_key(segments: Sequence[str], bucket: str, scope: CredentialScope) -> None:
    """Raises Forbidden unless the object lies inside a place, for every reader of its name."""
    if not all(each and _stays_below(each) and not _CONTROL.search(each) for each in segments):
        raise _refusal("the key has an empty segment, '.', '..' or a control character")
    key = Location("s3", bucket, tuple(segments))
    if not any(place.contains(key) and place.segments and place != key for place in scope.places):
        raise _refusal(f"{show_text(str(key))} lies outside the table's location")


def _stays_below(segment: str) -> bool:
    """Whether a segment leads no folder up, even for a store that decodes it again.

    Partition values are percent-encoded in folder names, so `a%2Fb` is a good segment; `..%2F` is none.
    """
    for _ in range(MAX_DECODINGS):
        if not _UPWARDS.isdisjoint(re.split(r"[/\\]", segment)):
            return False
        decoded = unquote(segment)
        if decoded == segment:
            return True
        segment = decoded
    return False


def _check_bucket_request(
    profile: S3Profile, request: SigningRequest, bucket: str, query: Mapping[str, str], scope: CredentialScope
) -> bytes | None:
    """Checks a list, or a delete of several objects, whose body is returned."""
    if request.method == "GET" and _LIST_REQUIRED <= query.keys() <= _LIST_ALLOWED and query["list-type"] == "2":
        _check_prefix(query["prefix"], bucket, scope)
        return None
    if request.method == "POST" and query == {"delete": ""}:
        if not (profile.is_aws if profile.verifies_bodies is None else profile.verifies_bodies):
            # The client could show one list of objects and send another.
            raise _refusal(
                "the store is not known to compare a body with its signed hash",
                hint="Delete objects one by one, drop the table with purgeRequested=true, or set verifies-bodies in "
                "the storage profile if the store answers XAmzContentSHA256Mismatch.",
            )
        if request.body is None:
            raise _refusal("a request that deletes several objects must be sent with its body")
        body = request.body.encode("utf-8")
        for key in read_keys(body):
            _check_key(key.split("/"), bucket, scope)
        return body
    raise _refusal(
        "of requests to a bucket only lists below the table's location and deletes of its objects are signed"
    )


def _check_prefix(prefix: str, bucket: str, scope: CredentialScope) -> None:
    """A store compares prefixes as text: `t1` would also list `t10`, so the prefix must go past the table's slash."""
    for place in scope.places:
        if place.authority == bucket and place.segments and prefix.startswith("/".join(place.segments) + "/"):
            return
    raise _refusal("the prefix of the list does not end behind the table's location and a slash")


def _read_query(raw: str) -> dict[str, str]:
    if not _QUERY.fullmatch(raw):
        raise _refusal("the query holds a character that must be percent-encoded")
    query: dict[str, str] = {}
    for pair in raw.split("&") if raw else ():
        name, _, value = pair.partition("=")
        name = _decode(name)
        if not name or name in query:
            raise _refusal("a parameter of the query has no name or occurs twice")
        query[name] = _decode(value)
    return query


def _decode(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refusal("the URI is not UTF-8") from error


def _encode(text: str) -> str:
    return quote(text, safe=UNRESERVED)


def _headers_to_sign(headers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns the headers with an effect on the store; raises Forbidden for those of Amazon that are not expected."""
    if len(headers) > MAX_HEADERS:
        raise _refusal(f"it has more than {MAX_HEADERS} headers")
    signed: dict[str, str] = {}
    for name, values in headers.items():
        lower = name.lower()
        text = ",".join(values)
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text) or len(text) > MAX_HEADER_LENGTH:
            raise _refusal("a header is not printable or too long")
        if lower in _REPLACED or (not lower.startswith("x-amz-") and lower != "content-md5"):
            continue
        if lower in signed or (lower != "content-md5" and not _SIGNED.fullmatch(lower)):
            raise _refusal(f"the header {show_text(lower)} is not signed")
        signed[lower] = " ".join(text.split())
    return signed


def _refusal(why: str, hint: str | None = None) -> Forbidden:
    return Forbidden(f"The request to the store is not signed: {why}", hint=hint)
