"""A front for fake-gcs-server, which authorizes nobody: exchanges tokens and enforces the boundary of each one.

It adds Google's token exchange (`POST /v1/token`), checks every request against the boundary of its bearer token,
and translates the `PUT /bucket/object` of the XML API, which the emulator refuses, into an upload of the JSON API.
"""

import contextlib
import json
import re
import secrets
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.evaluator import gcs as boundaries
from tests.support.evaluator.gcs import Boundary, InvalidBoundary, Operation
from tests.support.forwarding import Answer, ForwardingHandler, forward, json_headers, serving

TOKEN_SECONDS = 3600
ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"
_BATCH_PART = re.compile(rb"\r?\n(?=(?:GET|DELETE|PATCH|POST|PUT) \S+ HTTP/1\.1)")
_INNER_TOKEN = re.compile(rb"(?im)^authorization: *Bearer (\S+)")


class Denied(Exception):
    """The request is answered with 403; the message says why."""


@dataclass
class GcsFront:
    """`root_token` may do everything; others are made by the exchange."""

    backend: str
    root_token: str
    endpoint: str = ""
    denied: list[str] = field(default_factory=list)  # what was refused, and why
    exchanges: int = 0
    _tokens: dict[str, tuple[float, Boundary]] = field(default_factory=dict)
    _sessions: set[str] = field(default_factory=set)  # resumable uploads that were permitted when they began
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def exchange(self, form: Mapping[str, str]) -> Answer:
        """Answers a token exchange as Google's does."""
        try:
            if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange":
                raise InvalidBoundary("grant_type is not token-exchange")
            if {form.get("subject_token_type"), form.get("requested_token_type")} != {ACCESS_TOKEN_TYPE}:
                raise InvalidBoundary("both token types are access tokens")
            if form.get("subject_token") != self.root_token:
                raise InvalidBoundary("unknown subject token")
            boundary = Boundary(_decoded_options(form.get("options", "")))
        except InvalidBoundary as error:
            refused = {"error": "invalid_request", "error_description": str(error)}
            return Answer(400, json_headers(), json.dumps(refused).encode())
        token = f"downscoped-{secrets.token_hex(12)}"
        with self._lock:
            self.exchanges += 1
            self._tokens[token] = (time.time() + TOKEN_SECONDS, boundary)
        made = {
            "access_token": token,
            "issued_token_type": ACCESS_TOKEN_TYPE,
            "token_type": "Bearer",
            "expires_in": TOKEN_SECONDS,
        }
        return Answer(200, json_headers(), json.dumps(made).encode())

    def expire(self, token: str) -> None:
        """Ends a token's life, so that tests need not wait for it."""
        with self._lock:
            self._tokens[token] = (0.0, self._tokens[token][1])

    def require(self, token: str, operations: Sequence[Operation] | None) -> None:
        """Raises Denied unless the token permits all of them; None is what only the root token may do."""
        if token == self.root_token:
            return
        ends, boundary = self._tokens.get(token, (0.0, None))
        if boundary is None or ends < time.time():
            raise Denied("unknown or expired token")
        if operations is None:
            raise Denied("the request is not one that a boundary can permit")
        for operation in operations:
            if not boundary.permits(operation):
                raise Denied(f"the boundary does not permit {operation}")

    def open_session(self, address: str) -> None:
        with self._lock:
            self._sessions.add(_session_of(address) or address)

    def is_session(self, target: str) -> bool:
        return _session_of(target) in self._sessions


def _decoded_options(text: str) -> Any:
    try:
        return json.loads(text if text.startswith("{") else urllib.parse.unquote(text))
    except ValueError as error:
        raise InvalidBoundary("options is not JSON") from error


def _session_of(target: str) -> str | None:
    """Returns the id of a resumable upload; the emulator gives out two forms of its address."""
    found = re.search(r"[?&]upload_id=([^&]+)", target) or re.search(r"/upload/resumable/([^/?]+)", target)
    return found[1] if found else None


def operations_of(method: str, target: str, body: bytes) -> list[Operation] | None:
    """Returns what a request of the JSON or XML API does; None for what no downscoped token may do."""
    path, _, query_text = target.partition("?")
    query = dict(urllib.parse.parse_qsl(query_text, keep_blank_values=True))
    parts = [urllib.parse.unquote(part) for part in path.removeprefix("/").split("/")]
    match parts:
        case ["upload", "storage", "v1", "b", bucket, "o"] if method in ("POST", "PUT"):
            names = {*_name_in(body), *([query["name"]] if "name" in query else [])}
            return [boundaries.create(bucket, name) for name in names] or None
        case ["storage", "v1", "b", bucket] if method == "GET":
            return [boundaries.get_bucket(bucket)]
        case ["storage", "v1", "b", bucket, "o"] if method == "GET":
            return [boundaries.list_objects(bucket, query.get("prefix", ""))]
        case ["storage", "v1", "b", bucket, "o", name] | ["download", "storage", "v1", "b", bucket, "o", name]:
            return _on_object(method, bucket, name)
        case ["storage", "v1", "b", source, "o", name, "rewriteTo" | "copyTo", "b", bucket, "o", copy]:
            return [boundaries.get(source, name), boundaries.create(bucket, copy)]
        case ["storage" | "upload" | "download" | "batch", *_]:
            return None
        case [bucket] | [bucket, ""] if bucket and method == "GET":
            return [boundaries.list_objects(bucket, query.get("prefix", ""))]
        case [bucket, *rest] if bucket and rest and set(query) <= {"alt", "generation"}:
            return _on_object(method, bucket, "/".join(rest))
    return None


def _on_object(method: str, bucket: str, name: str) -> list[Operation] | None:
    made = {
        "GET": boundaries.get,
        "HEAD": boundaries.get,
        "PUT": boundaries.create,
        "DELETE": boundaries.delete,
        "PATCH": boundaries.update,
    }.get(method)
    return [made(bucket, name)] if made else None


def _name_in(body: bytes) -> list[str]:
    """Returns the object's name in the JSON of a multipart or resumable upload."""
    start = body.lstrip()[:1]
    if start not in (b"{", b"-"):
        return []
    text = body if start == b"{" else body.partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0]
    with contextlib.suppress(ValueError):
        described = json.loads(text)
        return [described["name"]] if isinstance(described, dict) and "name" in described else []
    return []


class _Handler(ForwardingHandler):
    front: GcsFront

    def respond(self, body: bytes) -> Answer:
        if self.command == "POST" and self.path == "/v1/token":
            return self.front.exchange(dict(urllib.parse.parse_qsl(body.decode())))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        try:
            self._check(token, body)
        except Denied as reason:
            self.front.denied.append(f"{self.command} {self.path}: {reason}")
            refused = {"error": {"code": 403, "message": str(reason)}}
            return Answer(403, json_headers(), json.dumps(refused).encode())
        return self._pass_on(body)

    def _check(self, token: str, body: bytes) -> None:
        if self.path.startswith("/batch/storage/v1"):
            parts = _BATCH_PART.split(body)[1:]
            if not parts:
                raise Denied("an empty batch")
            for part in parts:
                method, target = part.split(b" ", 2)[:2]
                inner = _INNER_TOKEN.search(part)
                operations = operations_of(method.decode(), target.decode(), b"")
                self.front.require(inner[1].decode() if inner else token, operations)
        elif not self.front.is_session(self.path):  # the address of a session is a credential itself
            operations = operations_of(self.command, self.path, body)
            self.front.require(token, operations)
            self._require_delete_if_overwritten(token, operations or [])

    def _require_delete_if_overwritten(self, token: str, operations: Sequence[Operation]) -> None:
        """Google demands the permission to delete from whoever replaces an object."""
        if token == self.front.root_token or self._generation() == "0":
            return
        for operation in operations:
            if operation.permission == "storage.objects.create" and self._exists(operation):
                self.front.require(token, [boundaries.delete(operation.bucket, operation.name or "")])

    def _generation(self) -> str | None:
        found = re.search(r"[?&]ifGenerationMatch=(\d+)", self.path)
        return found[1] if found else self.headers.get("x-goog-if-generation-match")

    def _exists(self, operation: Operation) -> bool:
        name = urllib.parse.quote(operation.name or "", safe="")
        target = f"/storage/v1/b/{operation.bucket}/o/{name}"
        return forward(self.front.backend, "GET", target, [("Host", self._backend_host())], b"").status == 200

    def _backend_host(self) -> str:
        return urllib.parse.urlsplit(self.front.backend).netloc

    def _pass_on(self, body: bytes) -> Answer:
        kept = [item for item in self.headers.items() if item[0].lower() not in ("authorization", "host")]
        headers = [("Host", self._backend_host()), *kept]  # the emulator serves the XML API for its own host alone
        path, _, query = self.path.partition("?")
        xml_put = self.command == "PUT" and not query and not path.startswith(("/upload/", "/storage/"))
        if not xml_put:
            return self._translated(forward(self.front.backend, self.command, self.path, headers, body))
        bucket, _, name = urllib.parse.unquote(path.removeprefix("/")).partition("/")
        wanted = {"uploadType": "media", "name": name}
        if (generation := self._generation()) is not None:
            wanted["ifGenerationMatch"] = generation
        target = f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(wanted)}"
        answer = self._translated(forward(self.front.backend, "POST", target, headers, body))
        if answer.status != 200:
            return answer
        made = json.loads(answer.body)
        tag = made["etag"].strip('"')
        return Answer(200, (("ETag", f'"{tag}"'), ("x-goog-generation", str(made["generation"]))))

    def _translated(self, answer: Answer) -> Answer:
        """Replaces the backend's address: clients follow addresses in an answer, and must come back through here."""
        old, new = self.front.backend, self.front.endpoint
        headers = tuple((name, value.replace(old, new)) for name, value in answer.headers)
        for name, value in headers:
            if name.lower() == "location" and "upload" in value:
                self.front.open_session(value)
        return Answer(answer.status, headers, answer.body.replace(old.encode(), new.encode()))


@contextlib.contextmanager
def gcs_front(backend: str, root_token: str) -> Iterator[GcsFront]:
    front = GcsFront(backend, root_token)
    with serving(_Handler, {"front": front}) as endpoint:
        front.endpoint = endpoint
        yield front
