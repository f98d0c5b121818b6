"""Pages of a list: encrypted tokens that say where the next page starts, bound to the caller and the list."""

import base64
import binascii
import hmac
import os
from collections.abc import Mapping
from typing import Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import UNSET, UnsetType

from nunatak.catalog.catalog import Caller
from nunatak.errors import BadRequest
from nunatak.settings import LARGEST_PAGE

MAX_PAGE = LARGEST_PAGE
EVERYTHING = 1_000_000_000  # a list asked for without paging has no end of its own
_NONCE_BYTES = 12
_PADDED_BYTES = 64  # a token tells the length of the name it holds only so exactly
_END = b"\x80"  # what follows is padding
_PAGING = frozenset({"pageToken", "pageSize"})


class Page(msgspec.Struct, frozen=True):
    """Which part of a list is wanted."""

    after: str
    limit: int


class ListRequest(Protocol):
    """A request for a list; http.py has the whole of it."""

    @property
    def caller(self) -> Caller: ...
    @property
    def query(self) -> Mapping[str, str]: ...


def list_of(request: ListRequest, *names: str) -> str:
    """What the tokens of a list are bound to: who asks, which list it is, and how the query filters it."""
    filters = sorted(pair for pair in request.query.items() if pair[0] not in _PAGING) if request.query else ()
    return msgspec.json.encode((request.caller.principal, names, filters)).decode()


class Tokens:
    """Makes and reads page tokens. One that was changed by hand or is of another list is refused, and nobody else reads
    the name in it, which may be one that the caller may not know.

    Every server on a database has the same secret, so a token is good at all of them.
    """

    def __init__(self, secret: bytes, page_size: int = MAX_PAGE) -> None:
        self._page_size = page_size
        self._cipher = AESGCM(hmac.digest(secret, b"page tokens, AES-256-GCM", "sha256"))

    def make(self, resource: str, after: str) -> str:
        nonce, data = os.urandom(_NONCE_BYTES), after.encode("utf-8") + _END
        padded = data.ljust(-(-len(data) // _PADDED_BYTES) * _PADDED_BYTES, b"\0")
        sealed = self._cipher.encrypt(nonce, padded, resource.encode("utf-8"))
        return base64.urlsafe_b64encode(nonce + sealed).decode("ascii").rstrip("=")

    def after(self, resource: str, last: str | None) -> str | UnsetType:
        """The token of the page behind `last`; unset if there is none."""
        return UNSET if last is None else self.make(resource, last)

    def read(self, resource: str, token: str) -> str:
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            padded = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], resource.encode("utf-8"))
            return padded.rstrip(b"\0").removesuffix(_END).decode("utf-8")
        except (InvalidTag, binascii.Error, UnicodeError, ValueError):
            pass
        raise BadRequest("Invalid pageToken", hint="Use the next-page-token of the previous answer to the same list.")

    def page(self, resource: str, query: Mapping[str, str]) -> Page:
        """No pageToken and no pageSize means everything at once."""
        token, size = query.get("pageToken"), query.get("pageSize")
        if token is None and size is None:
            return Page("", EVERYTHING)
        return Page(self.read(resource, token) if token else "", self._page_size if size is None else _size(size))


def _size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise BadRequest(f"Invalid pageSize: {text[:50]!r} is not a positive number")
    return min(int(text), MAX_PAGE)
