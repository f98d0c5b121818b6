"""Whom an address stands for, where requests of one sender are counted together."""

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
