"""Classifies IP addresses: the network of a sender, and loopback."""

import ipaddress
from functools import lru_cache


@lru_cache(10_000)
def network_of(address: str) -> str:
    """Returns the address, or the /64 network of an IPv6 address: a sender with one address of it has them all."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


def is_loopback(host: str) -> bool:
    """Returns whether an address or host name is this machine, so that traffic to it cannot be intercepted."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
