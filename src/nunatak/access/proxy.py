"""Identity and client address from the headers of a proxy, accepted only from trusted addresses."""

import ipaddress
from collections.abc import Mapping
from dataclasses import replace

from nunatak.access.principals import find_roles, is_name, merge_roles
from nunatak.access.sessions import JoinedHeaders, Proof, Session, session_of
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import Settings, SettingsError

FORWARDED_FOR = b"x-forwarded-for"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    """The networks of `trusted_proxies`; without any, no address is trusted."""

    def __init__(self, settings: Settings) -> None:
        self.networks = tuple(_network(text) for text in settings.trusted_proxies)

    def include(self, address: str | None) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self.networks)

    def client_address(self, address: str | None, headers: Mapping[bytes, bytes]) -> str | None:
        """Returns the client's address: the last on the request's way (X-Forwarded-For) that is not a trusted proxy's.

        Each proxy appends the address of its peer, so anything further left was written by the client.
        """
        if not self.networks or not self.include(address):
            return address
        way = headers.get(FORWARDED_FOR, b"").decode("latin-1").split(",")
        for hop in reversed(way):
            found = _address(hop.strip())
            if found is None:
                return address  # not an address: the last trusted hop is all that is known
            address = str(found)
            if not self.include(address):
                break
        return address


def read_trusted_proxies(settings: Settings) -> TrustedProxies:
    """Returns the trusted proxies; raises SettingsError if the proxies or the principal's header are not set."""
    if not settings.trusted_proxies:
        raise SettingsError(
            "auth proxy needs trusted_proxies: the addresses or networks of the trusted proxies; "
            "without it every client could name any principal"
        )
    if not settings.proxy_header:
        raise SettingsError("auth proxy needs proxy_header: the header in which the proxy names the principal")
    return TrustedProxies(settings)


class ProxyAuthenticator:
    """Trusts `proxy_header` from a trusted proxy; ignores it from any other address."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._trusted = read_trusted_proxies(settings)
        self._store = store
        self._name_header = settings.proxy_header.lower().encode()
        self._roles_header = settings.proxy_roles_header.lower().encode()

    async def authenticate(self, proof: Proof) -> Session | None:
        if not self._trusted.include(proof.address):
            return None
        given = _single(proof.headers, self._name_header).strip()
        if not given:
            return None
        principal = given.decode("utf-8", "replace")
        if not is_name(principal):
            raise NotAuthenticated(
                f"The proxy's header {self._name_header.decode()} is no name of a principal",
                hint="The proxy must set it once, and remove what the client sent under this name.",
            )
        kept = await find_roles(self._store, principal)
        # The headers apply to this request only: the next one through the same proxy may be another principal's.
        return replace(session_of(principal, merge_roles(self._roles(proof), kept), method="proxy"), cached=False)

    def _roles(self, proof: Proof) -> list[str]:
        if not self._roles_header:
            return []
        listed = _single(proof.headers, self._roles_header).decode("utf-8", "replace")
        return [role.strip() for role in listed.split(",")]


def _single(headers: Mapping[bytes, bytes], name: bytes) -> bytes:
    """Returns the value of a trusted header; raises NotAuthenticated if it came twice, in whatever spelling.

    Some proxies treat an underscore as a hyphen: the header they remove or set may not be the one that is read here.
    """
    spelled = name.replace(b"_", b"-")
    spellings = [each for each in headers if each.replace(b"_", b"-") == spelled]
    repeated = isinstance(headers, JoinedHeaders) and name in headers.repeated
    if len(spellings) > 1 or repeated:
        raise NotAuthenticated(
            f"The proxy's header {name.decode()} came more than once",
            hint="The proxy must set it once, and remove what the client sent under this name.",
        )
    return headers.get(name, b"")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise SettingsError(f"trusted_proxies: {text!r} is neither an address nor a network: {error}") from error
    if network.prefixlen == 0:
        raise SettingsError(f"trusted_proxies: {text!r} covers every address; name the proxies' own addresses")
    return network


def _address(text: str | None) -> Address | None:
    """Parses an address, or returns None; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    try:
        found = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
