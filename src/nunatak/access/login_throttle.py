"""Counts failed logins, so that whoever keeps failing is asked to wait; in this process only, and in bounded memory."""

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
        ] = {}  # how many, and when the minute is over; longest untouched first

    def wait_ms(self, key: Hashable) -> int:
        """How long the key has to wait; 0 if it may try."""
        count, over_ms = self._counts.get(key, (0, 0))
        return max(0, over_ms - self._now_ms()) if count >= self._most else 0

    def add(self, key: Hashable) -> None:
        now_ms = self._now_ms()
        count, over_ms = self._counts.pop(key, (0, 0))
        if over_ms <= now_ms:
            count, over_ms = 0, now_ms + WINDOW_MS
        self._counts[key] = (count + 1, over_ms)
        if len(self._counts) > MAX_COUNTED:
            del self._counts[next(iter(self._counts))]


class LoginThrottle:
    """Failures of one client at one address, and of all clients there; behind a proxy an address may be many people's.

    A client that has logged in from an address is not held up there by the failures of others, only by its own.
    """

    def __init__(self, client_failures: int, address_failures: int, now_ms: Callable[[], int]) -> None:
        self._clients = Failures(client_failures, now_ms)
        self._addresses = Failures(address_failures, now_ms)
        self._welcome: dict[tuple[str, str], None] = {}  # longest ago first

    def wait_ms(self, client_id: str, address: str) -> int:
        """How long this client has to wait; 0 if it may try."""
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
