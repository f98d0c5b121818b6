"""Refuses endpoints of object stores that would make the server connect to itself, its cloud's metadata or its network.

The name is resolved when a warehouse is created, changed or checked. The client libraries resolve it again for each
connection, so whoever controls the name's DNS can still change the address later: only administrators may name an
endpoint, and a firewall for outgoing connections is the remedy where they are not trusted that far.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from nunatak.errors import BadRequest

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Iterable[str]]

# Addresses where clouds tell a machine its own credentials, beside the link-local 169.254.169.254.
METADATA = {ip_address(text) for text in ("fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")}
# IPv6 networks that carry an IPv4 address in their last 32 bits.
_TRANSLATED = [ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")]
_PORTS = {"http": 80, "https": 443}


async def check_endpoints(urls: Iterable[str], *, allow_private: bool, resolve: Resolve | None = None) -> None:
    """Raises BadRequest for an endpoint that the server must not connect to; `allow_private` is a setting."""
    for url in urls:
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError) as error:
            raise BadRequest(f"Invalid endpoint: {url}", hint="Write https://HOST or https://HOST:PORT.") from error
        if not host:
            raise BadRequest(f"Invalid endpoint: {url} names no host")
        try:
            found = list(await asyncio.to_thread(resolve or resolve_host, host, port))
        except (OSError, UnicodeError) as error:
            raise BadRequest(f"The host of the endpoint {url} cannot be resolved: {error}") from error
        for text in found:
            _check_address(url, parts.scheme, text, allow_private=allow_private)


def resolve_host(host: str, port: int) -> list[str]:
    """Returns all addresses of a host, as the client libraries would find them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


def _check_address(url: str, scheme: str, text: str, *, allow_private: bool) -> None:
    address = embedded_address(ip_address(text.partition("%")[0]))
    if (
        address in METADATA
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (address.is_reserved and not address.is_loopback)
    ):
        raise BadRequest(f"The endpoint {url} leads to {text}, where no object store can be: it is not connected to")
    if address.is_global:
        if scheme == "http":
            raise BadRequest(
                f"The endpoint {url} leads to the public address {text} without TLS", hint="Write https://."
            )
    elif not allow_private:
        raise BadRequest(
            f"The endpoint {url} leads to {text}, an address of this machine or a private network",
            hint="If the store is there, set NUNATAK_PRIVATE_ENDPOINTS=true on every server.",
        )


def embedded_address(address: Address) -> Address:
    """Returns the IPv4 address inside an IPv6 address that stands for one, else the address itself."""
    if not isinstance(address, IPv6Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is not None:
        return inner
    if any(address in network for network in _TRANSLATED) and int(address) & 0xFFFFFFFF > 1:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
