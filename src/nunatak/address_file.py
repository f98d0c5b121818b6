"""The address file of a data folder: written by `serve`, read by commands that log in as the administrator.

The administrator's secret is sent only to an address that a running server of this data folder has written here. The
server holds a lock on the file, so a file left behind by a crash is ignored.
"""

import contextlib
import fcntl
import ipaddress
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

FILE_MODE = 0o600
# A server that listens on every address answers on the loopback address of the same family.
LOOPBACK_OF = {"0.0.0.0": {"127.0.0.1"}, "::": {"::1", "127.0.0.1"}}
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """One listening server: `catalog` names its database without a password, `uri` is where it listens."""

    catalog: str
    uri: str

    def answers(self, uri: str) -> bool:
        """Whether `uri` can only reach this server: same scheme and port, and every resolved address is its own."""
        own, asked = _split(self.uri), _split(uri)
        if own is None or asked is None or own[0] != asked[0] or own[2] != asked[2]:
            return False
        listens = LOOPBACK_OF.get(own[1], {own[1]})
        try:
            # `localhost` may also resolve to an address where another program listens on the same port.
            found = {str(each[4][0]) for each in socket.getaddrinfo(asked[1], asked[2], type=socket.SOCK_STREAM)}
        except OSError:
            return False
        return bool(found) and found <= listens


@contextlib.contextmanager
def publish_address(data: Path, address: Address) -> Iterator[None]:
    """Writes the address file and keeps it locked while the server runs; removes it at the end."""
    split = _split(address.uri)
    assert split is not None, address.uri
    _remove_stale(data)
    path = _path(data, split[2])
    new = data / f".{path.name}.{os.getpid()}"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        # Locked and complete before the rename: another server that starts now must not treat it as stale.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, json.dumps({"catalog": address.catalog, "uri": address.uri}).encode())
        new.rename(path)
        yield
    finally:
        with contextlib.suppress(OSError):
            # A later server on the same port may have replaced the file by its own.
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                path.unlink()
        os.close(descriptor)


def find_address(data: Path, uri: str) -> Address | None:
    """Returns the running server of the data folder that listens on the port of `uri`, or None."""
    split = _split(uri)
    return None if split is None else _read(_path(data, split[2]))


def list_addresses(data: Path) -> list[Address]:
    """Returns the running servers of the data folder."""
    found = (_read(path) for path in sorted(data.glob("address-*.json")))
    return [address for address in found if address is not None]


def _path(data: Path, port: int) -> Path:
    return data / f"address-{port}.json"


def _split(uri: str) -> tuple[str, str, int] | None:
    """Returns scheme, host and port; None if the URI is not the address of a catalog."""
    try:
        parts = urlsplit(uri if "//" in uri else f"http://{uri}")
        host, port = parts.hostname, parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    if host is None:
        return None
    with contextlib.suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    return parts.scheme, host, port


def _read(path: Path) -> Address | None:
    """Reads an address file; None if it is missing, not owned by this user or root, or its server no longer runs."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid not in {os.geteuid(), 0} or not _is_locked(file.fileno()):
                return None
            kept = json.loads(file.read())
            return Address(str(kept["catalog"]), str(kept["uri"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _remove_stale(data: Path) -> None:
    """Removes address files left behind by crashed servers."""
    for path in data.glob("address-*.json"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if not _is_locked(file.fileno()):
                path.unlink()
