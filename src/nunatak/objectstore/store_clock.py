"""Asks an object store for its time by one unsigned request, and names what keeps the server from reaching it."""

import http.client
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import AdlsProfile, GcsProfile, S3Profile

TIMEOUT_SECONDS = 5


class StoreUnreachable(Exception):
    """No HTTP answer came; the message names the cause in words."""


def store_url(profile: S3Profile | AdlsProfile | GcsProfile, home: Location) -> str:
    """Returns the address of the store itself."""
    if profile.endpoint is not None:
        return profile.endpoint
    if isinstance(profile, S3Profile):
        suffix = ".cn" if profile.region.startswith("cn-") else ""
        return f"https://s3.{profile.region}.amazonaws.com{suffix}"
    if isinstance(profile, AdlsProfile):
        return f"https://{home.authority.rpartition('@')[2]}"
    return "https://storage.googleapis.com"


def clock_skew_seconds(profile: S3Profile | AdlsProfile | GcsProfile, home: Location) -> float | None:
    """Returns by how much this machine's clock is ahead of the store's; None if the store does not tell its time."""
    url = store_url(profile, home)
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(host, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        now = time.time()
        told, said = answer.getheader("Date"), answer.read(500)
    except (OSError, http.client.HTTPException) as error:
        raise StoreUnreachable(f"{_cause(error, url, host)}") from error
    finally:
        connection.close()
    if parts.scheme == "http" and answer.status == 400 and b"HTTPS server" in said:
        raise StoreUnreachable(f"The store at {url} speaks TLS: write https:// in the endpoint")
    try:
        return None if told is None else now - parsedate_to_datetime(told).timestamp()
    except ValueError:
        return None


def _cause(error: Exception, url: str, host: str) -> str:
    if isinstance(error, socket.gaierror):
        return f"The host {host} of the endpoint {url} is not known: is the endpoint or the region mistyped?"
    if isinstance(error, ConnectionRefusedError):
        return f"Nothing listens at {url}: is the port of the endpoint right, and does the store run?"
    if isinstance(error, TimeoutError):
        return f"No answer from {url} within {TIMEOUT_SECONDS} s: does a firewall stop the server?"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"The certificate of {url} is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"The store at {url} does not speak TLS: write http:// in the endpoint, if the network is private"
    return f"The store at {url} cannot be reached: {type(error).__name__}"
