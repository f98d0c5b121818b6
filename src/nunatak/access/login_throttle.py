"""Throttles clients after repeated failed logins; per process, and in bounded memory."""

from collections.abc import Callable, Hashable

WINDOW_MS = 60_000
MAX_COUNTED = 10_000


class Failures:
    """Each key may fail `most` times in a minute, which begins with its first failure."""

    def __init__(self, most: int, now_ms: Callable[[], int]) -> None:
        self._most = most
        self._now_ms = now_ms
        self._counts: dict[
            Hashable, tuple[int, int]
        ] = {}  # number of failures, and end of the minute; least recently failed first

    def wait_ms(self, key: Hashable) -> int:
        """Returns how long the key must wait; 0 if it may try."""
        count, over_ms = self._counts.get(key, (0, 0))
        return max(0, over_ms - self._now_ms()) if count >= self._most else 0

    def add(self, key: Hashable) -> None:
        now_ms = self._now_ms()
        # Removed and inserted again, so that the dictionary stays ordered by the last failure.
        count, over_ms = self._counts.pop(key, (0, 0))
        if over_ms <= now_ms:
            count, over_ms = 0, now_ms + WINDOW_MS
        self._counts[key] = (count + 1, over_ms)
        if len(self._counts) > MAX_COUNTED:
            del self._counts[next(iter(self._counts))]


class LoginThrottle:
    """Limits failures per client and address, and per address; behind a proxy many users may share an address.

    A client that has logged in from an address is delayed there only by its own failures, not by those of others.
    """

    def __init__(self, client_failures: int, address_failures: int, now_ms: Callable[[], int]) -> None:
        self._clients = Failures(client_failures, now_ms)
        self._addresses = Failures(address_failures, now_ms)
        self._welcome: dict[tuple[str, str], None] = {}  # oldest first

    def wait_ms(self, client_id: str, address: str) -> int:
        """Returns how long this client must wait; 0 if it may try."""
        own = self._clients.wait_ms((client_id, address))
        if client_id and (client_id, address) in self._welcome:
            return own
        return max(own, self._addresses.wait_ms(address))

    def failed(self, client_id: str, address: str) -> None:
        self._clients.add((client_id, address))
        self._addresses.add(address)

    def succeeded(self, client_id: str, address: str) -> None:
        self._welcome.pop((client_id, address), None)
        self._welcome[client_id, address] = None
        if len(self._welcome) > MAX_COUNTED:
            del self._welcome[next(iter(self._welcome))]
