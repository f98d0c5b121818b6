"""Paging: encrypted tokens with the start of the next page, bound to the caller and the list."""

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
from nunatak.settings import MAX_PAGE_SIZE

MAX_PAGE = MAX_PAGE_SIZE
EVERYTHING = 1_000_000_000  # the limit of a list that is requested without paging
_NONCE_BYTES = 12
_PADDED_BYTES = 64  # tokens are padded to a multiple of this, which hides the length of the name inside
_END = b"\x80"  # the padding starts after it
_PAGING = frozenset({"pageToken", "pageSize"})


class Page(msgspec.Struct, frozen=True):
    """The requested part of a list: at most `limit` entries after the position `after`."""

    after: str
    limit: int


class ListRequest(Protocol):
    """The part of http.Request that paging uses."""

    @property
    def caller(self) -> Caller: ...
    @property
    def query(self) -> Mapping[str, str]: ...


def list_of(request: ListRequest, *names: str) -> str:
    """Returns what the tokens of a list are bound to: the principal, the list and the filters of the query."""
    filters = sorted(pair for pair in request.query.items() if pair[0] not in _PAGING) if request.query else ()
    return msgspec.json.encode((request.caller.principal, names, filters)).decode()


class Tokens:
    """Makes and reads page tokens; a token that was modified or belongs to another list is refused.

    Tokens are encrypted because the name inside may be one that the caller may not see. All servers on a database
    share the secret, so each accepts the tokens of the others.
    """

    def __init__(self, secret: bytes, page_size: int = MAX_PAGE) -> None:
        self._page_size = page_size
        self._cipher = AESGCM(hmac.digest(secret, b"page tokens, AES-256-GCM", "sha256"))

    def make(self, resource: str, after: str) -> str:
        nonce, data = os.urandom(_NONCE_BYTES), after.encode("utf-8") + _END
        padded = data.ljust(-(-len(data) // _PADDED_BYTES) * _PADDED_BYTES, b"\0")
        # The list is the associated data: decryption fails for a token of another list or caller.
        sealed = self._cipher.encrypt(nonce, padded, resource.encode("utf-8"))
        return base64.urlsafe_b64encode(nonce + sealed).decode("ascii").rstrip("=")

    def after(self, resource: str, last: str | None) -> str | UnsetType:
        """Returns the token of the page after `last`; UNSET if `last` is None, after the last page."""
        return UNSET if last is None else self.make(resource, last)

    def read(self, resource: str, token: str) -> str:
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            padded = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], resource.encode("utf-8"))
            return padded.rstrip(b"\0").removesuffix(_END).decode("utf-8")
        except (InvalidTag, binascii.Error, UnicodeError, ValueError):
            pass
        raise BadRequest("Invalid pageToken", hint="Use the next-page-token of the previous response to the same list.")

    def page(self, resource: str, query: Mapping[str, str]) -> Page:
        """Returns the page that the query requests; without pageToken and pageSize, the whole list."""
        token, size = query.get("pageToken"), query.get("pageSize")
        if token is None and size is None:
            return Page("", EVERYTHING)
        return Page(self.read(resource, token) if token else "", self._page_size if size is None else _size(size))


def _size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise BadRequest(f"Invalid pageSize: {text[:50]!r} is not a positive number")
    return min(int(text), MAX_PAGE)
