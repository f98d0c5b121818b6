"""What both versions of HTTP know of a connection: how a request may arrive, and whose certificate was shown."""

import asyncio
from dataclasses import dataclass

from nunatak.errors import HeadTooLarge, TooLarge, TooSlow

MAX_HEAD_BYTES = 32 * 1024  # tokens of large directories reach 16 KiB


@dataclass(frozen=True)
class Arrival:
    """How long a request may take to arrive, and how much may come."""

    seconds: float
    body_bytes: int
    head_bytes: int = MAX_HEAD_BYTES

    def too_slow(self) -> TooSlow:
        return TooSlow(f"The request did not arrive within {self.seconds:g} s; nothing was done")

    def head_too_large(self) -> HeadTooLarge:
        return HeadTooLarge(f"The request's URL and headers are larger than {self.head_bytes} bytes")

    def body_too_large(self) -> TooLarge:
        return TooLarge(f"Request body is larger than {self.body_bytes} bytes")


def certificate_name(transport: asyncio.BaseTransport) -> str | None:
    """The common name of the client's verified certificate; None without one, or if it has several names."""
    tls = transport.get_extra_info("ssl_object")
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:  # empty if the client showed none
        return None
    names = [value for relative in certificate.get("subject", ()) for field, value in relative if field == "commonName"]
    return names[0] if len(names) == 1 else None
