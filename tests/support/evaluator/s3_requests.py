"""What a signed request does to an S3 store, read from the request alone, as the store and careless clients read it.

Written from the S3 API reference. A request that is not one of those that clients of tables send counts as `other`.
"""

import enum
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree


class Kind(enum.Enum):
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    LIST = "list"
    OTHER = "other"


@dataclass(frozen=True)
class Effect:
    """One thing that a request does; `key` is the prefix of a list."""

    kind: Kind
    bucket: str
    key: str


# By method and the names in its query: what it does to an object.
_ON_OBJECTS = {
    ("GET", frozenset()): Kind.READ,
    ("HEAD", frozenset()): Kind.READ,
    ("PUT", frozenset()): Kind.WRITE,
    ("PUT", frozenset({"partNumber", "uploadId"})): Kind.WRITE,
    ("POST", frozenset({"uploads"})): Kind.WRITE,
    ("POST", frozenset({"uploadId"})): Kind.WRITE,
    ("GET", frozenset({"uploadId"})): Kind.READ,
    ("DELETE", frozenset({"uploadId"})): Kind.WRITE,
    ("DELETE", frozenset()): Kind.DELETE,
}
_LIST_QUERY = frozenset(
    {"list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type"}
    | {"fetch-owner"}
)
# The SDK of AWS names its operation here; the store ignores it.
_IGNORED_QUERY = frozenset({"x-id"})


def effects(
    method: str, uri: str, headers: Mapping[str, Sequence[str]], body: str | None, endpoint: str
) -> list[Effect]:
    """Returns everything that the request may do at the endpoint, for every reading of its path."""
    split = urlsplit(uri)
    if f"{split.scheme}://{split.netloc}" != endpoint or split.fragment or not split.path.startswith("/"):
        return [Effect(Kind.OTHER, split.netloc, uri)]
    bucket, _, raw_key = split.path[1:].partition("/")
    pairs = parse_qsl(split.query, keep_blank_values=True)
    query = dict(pairs)
    names = frozenset(query) - _IGNORED_QUERY
    if len(pairs) != len(query):
        return [Effect(Kind.OTHER, unquote(bucket), "a repeated parameter")]
    if not raw_key:
        return _on_bucket(method, unquote(bucket), query, names, body)
    kind = _ON_OBJECTS.get((method, names), Kind.OTHER)
    found = [Effect(kind, unquote(bucket), key) for key in _readings(raw_key)]
    return found + _copied(headers)


def _readings(raw_key: str) -> list[str]:
    """S3 decodes once and keeps the rest; some clients and proxies resolve dots before they send."""
    key = unquote(raw_key)
    segments = key.split("/")
    if any(unquote(unquote(segment)) in (".", "..") for segment in segments):
        resolved = posixpath.normpath(f"/{unquote(unquote(key))}").lstrip("/")
        return [key, resolved]
    return [key]


def _on_bucket(
    method: str, bucket: str, query: Mapping[str, str], names: frozenset[str], body: str | None
) -> list[Effect]:
    if method == "GET" and query.get("list-type") == "2" and names <= _LIST_QUERY:
        return [Effect(Kind.LIST, bucket, query.get("prefix", ""))]
    if method == "POST" and names == {"delete"} and body is not None:
        return [Effect(Kind.DELETE, bucket, key) for key in _deleted_keys(body)]
    return [Effect(Kind.OTHER, bucket, "")]


def _deleted_keys(body: str) -> list[str]:
    root = ElementTree.fromstring(body)
    objects = [each for each in root if each.tag.rpartition("}")[2] == "Object"]
    return ["".join(child.itertext()) for each in objects for child in each if child.tag.rpartition("}")[2] == "Key"]


def _copied(headers: Mapping[str, Sequence[str]]) -> list[Effect]:
    """A PUT with a source reads that, too; everything else about access in a header is no work of a table's client."""
    found = []
    for name, values in headers.items():
        if name.lower() == "x-amz-copy-source":
            for value in values:
                bucket, _, key = unquote(value.partition("?")[0]).removeprefix("/").partition("/")
                found.append(Effect(Kind.READ, bucket, key))
        elif name.lower().startswith(("x-amz-acl", "x-amz-grant", "x-amz-website", "x-amz-object-lock")):
            found.append(Effect(Kind.OTHER, "", name))
    return found
