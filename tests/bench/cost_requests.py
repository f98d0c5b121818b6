"""Requests that were made to cost much: by a stranger, who has no credentials, and by somebody known."""

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import zstandard

from tests.api.wire import SCHEMA, a_commit, a_table, path_of, set_properties

STRANGER, KNOWN = "stranger", "known"
T = path_of("ns", "tables", "t")
MIB = 1024 * 1024
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Costly:
    """One request as bytes; `send` replaces the plain way of sending it and is given the server."""

    name: str
    who: str
    request: bytes
    send: Callable[[Any], int] | None = None


def http1(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def gzip_of(pattern: bytes, size: int) -> bytes:
    return gzip.compress(pattern * (size // len(pattern)), 9, mtime=0)


def zstd_of(pattern: bytes, size: int) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(pattern * (size // len(pattern)))


@cache
def bodies() -> tuple[tuple[str, bytes, dict[str, str]], ...]:
    """Of any POST: name, bytes as sent, headers."""
    return tuple(_bodies())


def _bodies() -> Iterator[tuple[str, bytes, dict[str, str]]]:
    yield "gzip bomb of zeros, 32 MiB", gzip_of(b"\0", 32 * MIB - 1), {"Content-Encoding": "gzip"}
    yield "gzip of [] pairs, 32 MiB", gzip_of(b"[],", 32 * MIB - 1), {"Content-Encoding": "gzip"}
    yield "gzip of empty strings, 32 MiB", gzip_of(b'"",', 32 * MIB - 1), {"Content-Encoding": "gzip"}
    yield "gzip of 160,000 members", gzip.compress(b"", mtime=0) * 160_000, {"Content-Encoding": "gzip"}
    yield "zstd bomb of zeros, 32 MiB", zstd_of(b"\0", 32 * MIB - 1), {"Content-Encoding": "zstd"}
    yield (
        "zstd of 300,000 frames",
        zstandard.ZstdCompressor(write_content_size=False).compress(b"") * 300_000,
        {"Content-Encoding": "zstd"},
    )
    yield "an encoding nobody knows", b"x" * 1000, {"Content-Encoding": "br" * 5000}
    yield "a million opening brackets", b"[" * MIB, {}
    yield "a million brackets in a string", b'{"a":"' + b"[" * MIB + b'"}', {}
    yield "1 MiB of quotes", b'"' * MIB, {}
    yield "1 MiB of backslashes", b'"' + b"\\" * MIB, {}
    yield "16 MiB of spaces", b" " * (16 * MIB), {}


def of_strangers() -> Iterator[Costly]:
    for name, body, headers in bodies():
        sent = http1("POST", "/v1/oauth/tokens", body, {**FORM, **headers})
        yield Costly(f"token: {name}", STRANGER, sent)
        yield Costly(f"commit: {name}", STRANGER, http1("POST", T, body, {**JSON, **headers}))
    forms = {
        "a 60 kB secret": b"grant_type=client_credentials&client_id=a&client_secret=" + b"x" * 60_000,
        "30 fields": b"grant_type=client_credentials&" + b"&".join(b"f%d=%b" % (n, b"x" * 2000) for n in range(29)),
        "60 kB of ampersands": b"&" * 60_000,
        "60 kB of percent signs": b"grant_type=" + b"%41" * 20_000,
        "a wrong secret": b"grant_type=client_credentials&client_id=a&client_secret=b",
        "a forged subject token": b"grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token="
        + forged_token().encode(),
    }
    for name, form in forms.items():
        yield Costly(f"token form: {name}", STRANGER, http1("POST", "/v1/oauth/tokens", form, FORM))
    basic = base64.b64encode(b"a" * 20_000).decode()
    yield Costly(
        "token: 20 kB of HTTP Basic",
        STRANGER,
        http1("POST", "/v1/oauth/tokens", b"", {"Authorization": f"Basic {basic}"}),
    )
    for name, value in authorizations().items():
        yield Costly(f"load with {name}", STRANGER, http1("GET", T, headers={"Authorization": value}))
    for name, request in odd_heads("").items():
        yield Costly(name, STRANGER, request)


def forged_token(claims: int = 1) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    body = {"iss": "nunatak", "sub": "root", **{f"c{number}": "x" for number in range(claims)}}
    return f"{part({'alg': 'ES256', 'kid': 'nobody', 'typ': 'at+jwt'})}.{part(body)}.{'A' * 86}"


def authorizations() -> dict[str, str]:
    nested = base64.urlsafe_b64encode(b"[" * 9000).decode()
    scope = "Credential=AKIA/20260101/us-east-1/execute-api/aws4_request"
    return {
        "a forged token": f"Bearer {forged_token()}",
        "a forged token of 14 kB": f"Bearer {forged_token(800)}",
        "a token of deep JSON": f"Bearer {nested}.{nested}.A",
        "a token of 12 kB of dots": f"Bearer {'.' * 12_000}",
        "a wrong API key": "Bearer nnk_" + "a" * 40,
        "30 kB of nothing": "Bearer " + "x" * 30_000,
        "a false signature": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}",
        "a signature of 4,000 headers": (
            f"AWS4-HMAC-SHA256 {scope}, SignedHeaders={';'.join(f'h{number}' for number in range(4000))}, "
            f"Signature={'0' * 64}"
        ),
    }


def odd_heads(key: str) -> dict[str, bytes]:
    who = {"Authorization": f"Bearer {key}"} if key else {}
    long = "a" * 30_000
    return {
        "GET: a path of 30 kB": http1("GET", "/v1/" + long, headers=who),
        "GET: a path of 15,000 slashes": http1("GET", "/v1/namespaces" + "/a" * 15_000, headers=who),
        "GET: a name of 30 kB": http1("GET", f"/v1/namespaces/{long}", headers=who),
        "GET: a name of 10,000 percent codes": http1("GET", f"/v1/namespaces/{'%C3%A4' * 5000}", headers=who),
        "GET: 1,000 levels": http1("GET", f"/v1/namespaces/{'%1F'.join(['a'] * 7000)}", headers=who),
        "GET: 5,000 headers": http1("GET", T, headers={**who, **{f"x{n}": "" for n in range(5000)}}),
        "GET: one header 5,000 times": b"GET %b HTTP/1.1\r\nHost: x\r\n%b%b\r\n"
        % (T.encode(), f"Authorization: Bearer {key}\r\n".encode() if key else b"", b"x: \r\n" * 6000),
        "GET: 10,000 query parameters": http1("GET", "/v1/namespaces?" + "a&" * 15_000, headers=who),
        "GET: a page token of 30 kB": http1("GET", "/v1/namespaces?pageToken=" + long, headers=who),
        "GET: 15,000 accepted encodings": http1("GET", T, headers={**who, "Accept-Encoding": "a," * 15_000}),
        "a method of 30 kB": f"{'A' * 30_000} / HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        "POST: an idempotency key of 30 kB": http1("POST", T, b"{}", {**who, "Idempotency-Key": long}),
        "GET: a request id of 30 kB": http1("GET", T, headers={**who, "X-Request-ID": long}),
        "GET /metrics": http1("GET", "/metrics"),
        "GET /management/v1/openapi.json": http1("GET", "/management/v1/openapi.json"),
        "GET /ready": http1("GET", "/ready"),
        "GET /v1/config": http1("GET", "/v1/config", headers=who),
        "GET the public keys": http1("GET", "/.well-known/jwks.json"),
        "GET: a user agent of 30 kB": http1("GET", T, headers={**who, "User-Agent": long}),
    }


def of_known(key: str) -> Iterator[Costly]:
    who = {"Authorization": f"Bearer {key}"}
    for name, body, headers in bodies():
        yield Costly(f"commit: {name}", KNOWN, http1("POST", T, body, {**JSON, **who, **headers}))
    yield Costly("namespace: gzip of [] pairs", KNOWN, http1(
        "POST", "/v1/namespaces", gzip_of(b"[],", 32 * MIB - 1), {**JSON, **who, "Content-Encoding": "gzip"}
    ))  # fmt: skip
    for name, request in odd_heads(key).items():
        yield Costly(name, KNOWN, request)
    for name, value in commits().items():
        yield Costly(f"commit: {name}", KNOWN, http1("POST", T, json.dumps(value).encode(), {**JSON, **who}))
    long = {"namespace": ["\0" * 46_000], "properties": {}}
    yield Costly(
        "namespace: an invalid name of 46 kB", KNOWN,
        http1("POST", "/v1/namespaces", json.dumps(long).encode(), {**JSON, **who}),
    )  # fmt: skip
    report = {"report-type": "scan-report", "table-name": "t", "snapshot-id": 1, "metrics": {"a": "x" * 200_000}}
    yield Costly(
        "metrics report of 200 kB", KNOWN, http1("POST", T + "/metrics", json.dumps(report).encode(), {**JSON, **who})
    )
    deep = {"report-type": "scan-report", "metrics": [[]] * 2_000_000}
    yield Costly(
        "metrics report of 8 MB", KNOWN, http1("POST", T + "/metrics", json.dumps(deep).encode(), {**JSON, **who})
    )
    wide = [{"id": n, "name": f"c{n}", "type": "long", "required": False} for n in range(1, 10_001)]
    wide_table = a_table("wide", stage_create=True) | {"schema": {"type": "struct", "fields": wide}}
    yield Costly("staged create of 10,000 columns", KNOWN, http1(
        "POST", path_of("ns", "tables"), json.dumps(wide_table).encode(), {**JSON, **who}
    ))  # fmt: skip
    yield Costly("search for one letter", KNOWN, http1("GET", "/v1/search?query=a", headers=who))


def commits() -> dict[str, dict[str, Any]]:
    schemas = [
        {"action": "add-schema", "schema": SCHEMA | {"fields": [*SCHEMA["fields"], _column(number)]}}
        for number in range(300)
    ]
    specs = [{"action": "add-spec", "spec": {"fields": [_partition(number)]}} for number in range(600)]
    sorts = [
        {"action": "add-sort-order", "sort-order": {"order-id": number + 1, "fields": [_sorting(number)]}}
        for number in range(600)
    ]
    # Refused in the end: what they cost is measured again and again, and the table stays as it is.
    refused = {"action": "set-current-schema", "schema-id": 9999}
    return {
        "300 schemas": a_commit(*schemas, refused),
        "600 partition specs": a_commit(*specs, refused),
        "600 sort orders": a_commit(*sorts, refused),
        "1,000 properties": a_commit(set_properties(**{f"k{n}": "v" for n in range(1000)}), refused),
        "1,000 updates of one property": a_commit(*[set_properties(a=str(n)) for n in range(999)], refused),
        "1,000 removed snapshots": a_commit(
            {"action": "remove-snapshots", "snapshot-ids": list(range(100_000))}, refused
        ),
    }


def _column(number: int) -> dict[str, Any]:
    return {"id": 3 + number, "name": f"c{number}", "type": "long", "required": False}


def _partition(number: int) -> dict[str, Any]:
    return {"source-id": 1, "name": f"p{number}", "transform": f"bucket[{number + 1}]"}


def _sorting(number: int) -> dict[str, Any]:
    transform = f"bucket[{number + 1}]"
    return {"source-id": 1, "transform": transform, "direction": "asc", "null-order": "nulls-first"}


@cache
def costly_requests(key: str) -> tuple[Costly, ...]:
    return (*of_strangers(), *of_known(key))
