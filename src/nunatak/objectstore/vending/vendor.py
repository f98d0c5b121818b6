"""What all vendors of credentials share: threads for the blocking client libraries, a limit, and the errors."""

import asyncio
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Protocol, TypeVar

from nunatak.errors import ServiceUnavailable
from nunatak.objectstore.storage import CredentialScope, VendedCredential

T = TypeVar("T")

THREADS = 8  # for each warehouse: a call waits for the network most of the time
MAX_WAITING = 200  # calls of one warehouse; more would wait longer than clients do
CONNECT_SECONDS, READ_SECONDS = 2, 5
_UNSAFE = re.compile(r"[^A-Za-z0-9_+=,.@-]")
MAX_SESSION_NAME = 64


class Vendor(Protocol):
    """Issues credentials for one warehouse."""

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        """Returns a new credential; raises Forbidden if none can be limited to the scope, or NoCredential."""

    async def close(self) -> None: ...


class NoCredential(ServiceUnavailable):
    """The store issues no credential now: it is unreachable, or refuses the server's own keys."""


class VendingThreads:
    """A few threads for the calls of one warehouse, so that a slow token service delays only its own callers."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="vend")
        self._max_waiting = max_waiting
        self._waiting = 0

    async def run(self, call: Callable[[], T]) -> T:
        if self._waiting >= self._max_waiting:
            raise NoCredential("Too many requests wait for credentials of this warehouse")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class MadeOnce:
    """A client that is made by the first thread that needs it."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: list[object] = []

    def get(self) -> object:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


def session_name(principal: str) -> str:
    """Returns the principal as a session name of AWS; distinct principals get distinct names.

    A name that had to be changed ends with a hash of the principal.
    """
    plain = _UNSAFE.sub("_", principal)
    if plain == principal and 2 <= len(plain) <= MAX_SESSION_NAME:
        return plain
    digest = blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{plain[: MAX_SESSION_NAME - len(digest) - 1]}-{digest}"
