"""Shared access signatures of Azure storage that are signed with a user delegation key: whether one permits a request.

Written from Microsoft's "Create a user delegation SAS". As the service does, the check takes the directory out of the
request's own path, by the signed depth, and compares the signature: a token of another directory has another one.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import parse_qsl

# The parameters that a token of ours may have; others would be accepted unread by this check.
_KNOWN = frozenset(
    {"sv", "sr", "sdd", "st", "se", "sp", "sip", "spr", "ses", "sig"}
    | {"skoid", "sktid", "skt", "ske", "sks", "skv", "skdutid"}
    | {"saoid", "suoid", "scid", "sduoid"}
)
# What an operation needs: one of these letters.
READ, CREATE, WRITE, DELETE, LIST = "r", "cw", "w", "d", "l"
MOVE, SET_OWNER, SET_PERMISSIONS = "m", "o", "p"
# Versions of the service at which the string to sign got more lines.
_DELEGATED_USER, _REQUEST_LINES = "2025-07-05", "2026-04-06"
_DIRECTORIES_SINCE = "2020-02-10"


class InvalidSas(Exception):
    """The service would refuse the token whatever the request, or it holds something this check does not know."""


@dataclass(frozen=True)
class DelegationKey:
    """The key that the service gave out for the account, and to whom."""

    value: str  # base64
    object_id: str
    tenant_id: str


@dataclass(frozen=True)
class Request:
    """A request on a path of a container, decoded once; a list names the directory or prefix that it lists."""

    container: str
    path: str
    permission: str  # the letters of which one is needed
    https: bool = True


class Sas:
    """A parsed token of one account."""

    def __init__(self, account: str, token: str, key: DelegationKey) -> None:
        pairs = parse_qsl(token, keep_blank_values=True, strict_parsing=True)
        self._fields = dict(pairs)
        if len(pairs) != len(self._fields) or not set(self._fields) <= _KNOWN:
            raise InvalidSas(f"repeated or unknown parameters: {sorted(name for name, _ in pairs)}")
        self._account, self._key = account, key
        for name in ("sv", "sr", "se", "sp", "sig", "skoid", "sktid", "skt", "ske", "sks", "skv"):
            if not self._fields.get(name):
                raise InvalidSas(f"{name} is missing")
        if (self._fields["skoid"], self._fields["sktid"]) != (key.object_id, key.tenant_id):
            raise InvalidSas("signed for another principal")
        if self._fields["sr"] not in ("c", "b", "d"):
            raise InvalidSas(f"unknown resource {self._fields['sr']!r}")
        if self._fields["sr"] == "d" and (self._fields["sv"] < _DIRECTORIES_SINCE or not self._depth):
            raise InvalidSas("a directory needs its depth, and a version that knows directories")

    @property
    def _depth(self) -> int:
        depth = self._fields.get("sdd", "0")
        return int(depth) if depth.isdecimal() else 0

    def permits(self, request: Request, now: datetime) -> bool:
        if not self._starts() <= now < _time(self._fields["se"]):
            return False
        if self._fields.get("spr") == "https" and not request.https:
            return False
        if not set(request.permission) & set(self._fields["sp"]):
            return False
        resource = self._resource(request)
        return resource is not None and hmac.compare_digest(self._signature(resource), self._fields["sig"])

    def _starts(self) -> datetime:
        started = _time(self._fields["skt"])
        return max(started, _time(self._fields["st"])) if "st" in self._fields else started

    def _resource(self, request: Request) -> str | None:
        """Returns what the token must have been signed for to permit the request."""
        container = f"/blob/{self._account}/{request.container}"
        if self._fields["sr"] == "c":
            return container
        if self._fields["sr"] == "b":
            return f"{container}/{request.path}"
        segments = request.path.split("/")
        if request.permission == LIST and not request.path.endswith("/"):
            segments = segments[:-1]  # the end of a prefix may be the beginning of several names
        if len(segments) < self._depth or not all(segments[: self._depth]):
            return None
        return "/".join([container, *segments[: self._depth]])

    def _signature(self, resource: str) -> str:
        fields: Mapping[str, str] = self._fields
        lines = [*(fields.get(name, "") for name in ("sp", "st", "se")), resource]
        lines += [fields.get(name, "") for name in ("skoid", "sktid", "skt", "ske", "sks", "skv")]
        lines += [fields.get(name, "") for name in ("saoid", "suoid", "scid")]
        if fields["sv"] >= _DELEGATED_USER:
            lines += [fields.get(name, "") for name in ("skdutid", "sduoid")]
        # The snapshot's time is no part of a token for a container, a directory or a blob.
        lines += [*(fields.get(name, "") for name in ("sip", "spr", "sv", "sr")), "", fields.get("ses", "")]
        if fields["sv"] >= _REQUEST_LINES:
            lines += ["", ""]
        lines += [
            ""
        ] * 5  # headers that the answer would be given: cache control, disposition, encoding, language, type
        digest = hmac.new(base64.b64decode(self._key.value), "\n".join(lines).encode(), hashlib.sha256).digest()
        return base64.b64encode(digest).decode()


@lru_cache(maxsize=1024)
def _time(text: str) -> datetime:
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise InvalidSas(f"no time: {text!r}")
