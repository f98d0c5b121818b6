"""Pages of a list: signed tokens that say where the next page starts, bound to the list they came from."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from nunatak.api.http import MAX_PAGE
from nunatak.errors import BadRequest

_MAC_BYTES = 12
EVERYTHING = 1_000_000_000  # a list asked for without paging has no end of its own


@dataclass(frozen=True)
class Page:
    """Which part of a list is wanted."""

    after: str
    limit: int


class Tokens:
    """Makes and reads page tokens; a token changed by hand or used on another list is refused."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, resource: str, after: str) -> str:
        data = after.encode("utf-8")
        return base64.urlsafe_b64encode(self._mac(resource, data) + data).decode("ascii").rstrip("=")

    def read(self, resource: str, token: str) -> str:
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            mac, data = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
            if hmac.compare_digest(mac, self._mac(resource, data)):
                return data.decode("utf-8")
        except (binascii.Error, UnicodeError, ValueError):
            pass
        raise BadRequest("Invalid pageToken", hint="Use the next-page-token of the previous answer to the same list.")

    def page(self, resource: str, query: Mapping[str, str]) -> Page:
        """No pageToken and no pageSize means everything at once."""
        token, size = query.get("pageToken"), query.get("pageSize")
        if token is None and size is None:
            return Page("", EVERYTHING)
        return Page(self.read(resource, token) if token else "", _size(size))

    def _mac(self, resource: str, data: bytes) -> bytes:
        return hmac.new(self._secret, resource.encode("utf-8") + b"\0" + data, hashlib.sha256).digest()[:_MAC_BYTES]


def _size(text: str | None) -> int:
    if text is None:
        return MAX_PAGE
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise BadRequest(f"Invalid pageSize: {text[:50]!r} is not a positive number")
    return min(int(text), MAX_PAGE)
