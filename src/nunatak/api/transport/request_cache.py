"""A bounded cache by the bytes of a request: clients send the same bytes repeatedly."""

from typing import Generic, TypeVar

from nunatak.access.known_sessions import digest_of

Value = TypeVar("Value")


class RequestCache(Generic[Value]):
    """Values by request. One with a token is found by a digest, so that no token is held in memory as a key."""

    def __init__(self, most: int, longest_bytes: int) -> None:
        self._most = most
        self._longest_bytes = longest_bytes
        self._plain: dict[bytes, Value] = {}
        self._with_tokens: dict[bytes, Value] = {}

    def __len__(self) -> int:
        return len(self._plain) + len(self._with_tokens)

    def find(self, request: bytes) -> Value | None:
        """Returns the value of exactly these bytes, or None."""
        found = self._plain.get(request)
        if found is None and self._with_tokens and len(request) <= self._longest_bytes:
            return self._with_tokens.get(digest_of(request))
        return found

    def keep(self, request: bytes, value: Value, *, has_token: bool) -> None:
        """Keeps a value, unless the request is too long; a full cache is emptied first."""
        if len(request) > self._longest_bytes:
            return
        if len(self) >= self._most:
            self._plain.clear()
            self._with_tokens.clear()
        if has_token:
            self._with_tokens[digest_of(request)] = value
        else:
            self._plain[request] = value
