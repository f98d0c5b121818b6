"""Limits and identity of a connection: how a request may arrive, who may connect, the client certificate's name."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from nunatak.addresses import network_of
from nunatak.api.app import App
from nunatak.errors import HeadTooLarge, ServiceUnavailable, TooSlow
from nunatak.settings import Settings

MAX_HEAD_BYTES = 32 * 1024  # tokens of large directories reach 16 KiB
MAX_HEAD_FIELDS = 200  # browsers and proxies send thirty; a field costs more than its bytes


def _everybody(_: bytes | None) -> bool:
    return True


def _nobody(_: str) -> bool:
    return False


def _count_nothing(_: str) -> None:
    """Without authentication no requests are counted."""


@dataclass
class ConnectionGate:
    """Decides whether an address may open one more connection, and how much of its unread data is tolerated.

    `knows` returns whether an Authorization header was authenticated before; `is_proxy` whether an address is a trusted
    proxy's, which may open any number of connections; `count` counts a refused request.
    """

    most_of_address: int = 0  # 0: no limit
    knows: Callable[[bytes | None], bool] = _everybody
    is_proxy: Callable[[str], bool] = _nobody
    count: Callable[[str], None] = _count_nothing
    _open: dict[str, int] = field(default_factory=dict)

    def enter(self, host: str) -> bool:
        """Returns whether the connection may stay; if so, the caller must call `leave` when it ends."""
        network = network_of(host)
        count = self._open.get(network, 0)
        if self.most_of_address and count >= self.most_of_address and not self.is_proxy(host):
            return False
        self._open[network] = count + 1
        return True

    def leave(self, host: str) -> None:
        network = network_of(host)
        count = self._open.pop(network) - 1
        if count:
            self._open[network] = count

    def refuse(self, host: str) -> None:
        """Counts a request that was refused before the application saw it, unless it came from a trusted proxy."""
        if not self.is_proxy(host):
            self.count(host)

    def too_many(self) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"This address has {self.most_of_address} connections already",
            hint="Reuse connections, or raise address_connections; list proxies in trusted_proxies.",
        )


def gate_of(settings: Settings, app: App) -> ConnectionGate:
    """Returns the gate for the settings; without authentication every client is known and none is counted."""
    access, rates = app.access_setup, app.rates
    gate = ConnectionGate(settings.address_connections)
    if access is not None:
        gate.knows = lambda authorization: access.guard.known(authorization) is not None
        gate.is_proxy = access.proxies.include
    if rates is not None:

        def count(host: str) -> None:
            rates.take("", host)

        gate.count = count
    return gate


@dataclass(frozen=True)
class ArrivalLimits:
    """The time within which a request must arrive, and the size of its head; bodies are limited in api/bodies.py."""

    seconds: float
    head_bytes: int = MAX_HEAD_BYTES
    head_fields: int = MAX_HEAD_FIELDS

    def too_slow(self) -> TooSlow:
        return TooSlow(f"The request did not arrive within {self.seconds:g} s; nothing was done")

    def head_too_large(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"The request's URL and headers are larger than {self.head_bytes} bytes, or more than {self.head_fields}"
        )


def certificate_name(transport: asyncio.BaseTransport) -> str | None:
    """Returns the common name of the client's verified certificate; None without one, or if it has several."""
    tls = transport.get_extra_info("ssl_object")
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:  # empty if the client presented none
        return None
    names = [value for relative in certificate.get("subject", ()) for field, value in relative if field == "commonName"]
    return names[0] if len(names) == 1 else None
