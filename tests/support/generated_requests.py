"""Generated requests to sign for S1: the usual ones of clients, and hostile ones around the same table."""

import random
from urllib.parse import quote

from nunatak.objectstore.storage import SigningRequest
from tests.support.generated_scopes import GeneratedTable, inside_keys, outside_buckets, outside_keys, outside_prefixes

REGION = "us-east-1"
_QUERIES = [
    "", "", "", "uploads", "uploads=", "uploadId=1", "partNumber=1&uploadId=1", "acl", "tagging", "versionId=1",
    "policy", "delete", "list-type=2", "list-type=2&prefix={}", "prefix={}", "list-type=2&prefix={}&prefix=", "&",
    "list-type=2&prefix={}&delimiter=/", "list-type=1&prefix={}", "versions&prefix={}", "location", "torrent",
    "attributes", "legal-hold", "select&select-type=2", "X-Amz-Signature=x", "response-content-type=text/html",
    "uploadId=1&acl", "append", "renameObject", "list-type=2&prefix={}&start-after={}", "list-type=2&Prefix={}",
    "restore", "x-id=GetObject",
]  # fmt: skip
_DOTS = ["..", ".", "%2e%2e", "..%2f", "..\\", "%252e%252e"]
_METHODS = ["GET", "GET", "HEAD", "PUT", "PUT", "POST", "POST", "DELETE", "PATCH", "get"]


def usual_requests(endpoint: str, table: GeneratedTable) -> list[tuple[SigningRequest, bool]]:
    """Returns what clients send for their own table, each with whether it changes something."""
    found = []
    for key in (each for each in inside_keys(table) if "?" not in each):
        at = f"{endpoint}/{table.bucket}/{quote(key, safe='/')}"
        found += [(_request("GET", at), False), (_request("HEAD", at), False), (_request("PUT", at), True)]
        found += [(_request("DELETE", at), True), (_request("POST", f"{at}?uploads"), True)]
        found += [(_request("PUT", f"{at}?partNumber=1&uploadId=abc"), True)]
    prefix = quote(f"{table.path}/", safe="")
    found.append((_request("GET", f"{endpoint}/{table.bucket}?list-type=2&prefix={prefix}"), False))
    body = delete_body([key for key in inside_keys(table) if "?" not in key])
    found.append((_request("POST", f"{endpoint}/{table.bucket}?delete", body=body), True))
    return found


def hostile_request(chance: random.Random, endpoint: str, table: GeneratedTable) -> SigningRequest:
    """Returns a request that mixes inside and outside, spellings, queries, headers and hosts, most often a few only."""
    bucket, key = _target(chance, table)
    prefix = chance.choice([*(each or "" for each in outside_prefixes(table)), f"{table.path}/"])
    query = "" if chance.random() < 0.5 else chance.choice(_QUERIES)
    query = query.replace("{}", quote(prefix, safe=chance.choice(["", "/"])))
    is_list = "prefix" in query or "delete" in query
    path = f"/{bucket}" if chance.random() < (0.8 if is_list else 0.1) else f"/{bucket}/{_spelled(chance, key)}"
    uri = f"{_host(chance, endpoint, bucket)}{path}{'?' + query if query or chance.random() < 0.1 else ''}"
    keys = [_target(chance, table)[1] for _ in range(chance.randint(1, 3))]
    body = delete_body([*inside_keys(table)[:2], *keys]) if "delete" in query or chance.random() < 0.1 else None
    return _request(chance.choice(_METHODS), uri, _headers(chance, table), body)


def _target(chance: random.Random, table: GeneratedTable) -> tuple[str, str]:
    inside = (table.bucket, chance.choice(inside_keys(table)))
    outside = (table.bucket, chance.choice(outside_keys(table)))
    climbing = (table.bucket, f"{table.path}/{chance.choice(_DOTS)}/x/data/f")
    elsewhere = chance.choice(list(outside_buckets(table)))
    return chance.choice([inside, inside, inside, outside, outside, climbing, elsewhere])


def _spelled(chance: random.Random, key: str) -> str:
    kind = chance.randrange(12)
    if kind == 0:
        return quote(key, safe="")
    if kind == 1:
        return quote(key, safe="/").lower()
    if kind == 2:
        return key
    if kind == 3:
        return quote(quote(key, safe="/"), safe="/")
    if kind == 4:
        return "".join(f"%{byte:02X}" if chance.random() < 0.3 else chr(byte) for byte in key.encode() if byte < 128)
    if kind == 5:
        return quote(key, safe="/").replace("/", chance.choice(["//", "/./", "%2F", "/x/../", "\\"]), 1)
    return quote(key, safe="/")


def _host(chance: random.Random, endpoint: str, bucket: str) -> str:
    if chance.random() < 0.9:
        return endpoint
    scheme, _, host = endpoint.partition("://")
    return chance.choice(
        [
            f"{scheme}://{bucket}.{host}",
            f"{scheme}://user@{host}",
            f"{scheme}://{host}.example.com",
            f"{scheme}://example.com",
            f"{scheme}://{host}@example.com",
            f"ftp://{host}",
            f"//{host}",
            host,
            f"{scheme}://{host}\\@example.com",
            f"{scheme}://{host}#",
        ]
    )


def _headers(chance: random.Random, table: GeneratedTable) -> dict[str, list[str]]:
    if chance.random() < 0.8:
        return {}
    bucket, key = _target(chance, table)
    source = f"/{bucket}/{quote(key, safe='/')}"
    return chance.choice(
        [
            {"x-amz-copy-source": [source]},
            {"X-Amz-Copy-Source": [source], "x-amz-copy-source-range": ["bytes=0-9"]},
            {"x-amz-acl": ["public-read"]},
            {"x-amz-grant-read": ["uri=http://acs.amazonaws.com/groups/global/AllUsers"]},
            {"x-amz-website-redirect-location": ["/elsewhere"]},
            {"Host": ["example.com"]},
            {"x-amz-security-token": ["theirs"]},
            {"Content-Type": ["text/plain"], "x-amz-meta-a": ["b"]},
        ]
    )


def delete_body(keys: list[str]) -> str:
    objects = "".join(f"<Object><Key>{_escaped(key)}</Key></Object>" for key in keys)
    return f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}<Quiet>true</Quiet></Delete>'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _request(
    method: str, uri: str, headers: dict[str, list[str]] | None = None, body: str | None = None
) -> SigningRequest:
    return SigningRequest(method=method, uri=uri, region=REGION, headers=headers or {}, body=body)
