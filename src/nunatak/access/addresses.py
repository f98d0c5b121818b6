"""What an address stands for: the network of a sender, or this machine."""

import ipaddress
from functools import lru_cache


@lru_cache(10_000)
def network_of(address: str) -> str:
    """The address itself; of an IPv6 address its /64 network: who has one address of it has all of them."""
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
    """Whether an address or host name is this machine, so that nobody listens in between."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
