"""Floods over one HTTP/2 connection by a stranger, as bytes: what they cost until the server closes the connection."""

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import hpack
import trustme

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
MANY = 10_000
WAIT_SECONDS = 20


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def head(method: str = "GET", path: str = "/v1/namespaces", *more: tuple[str, str]) -> bytes:
    fields = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "x"), *more]
    encoded: bytes = hpack.Encoder().encode(fields, huffman=False)
    return encoded


def streams(count: int) -> range:
    return range(1, 2 * count, 2)


def floods() -> Iterator[tuple[str, bytes]]:
    """Name, and what is sent behind the preface."""
    start = PREFACE + frame(SETTINGS, 0, 0)
    cancel = struct.pack(">I", 8)
    yield (
        "10,000 requests that are cancelled at once",
        start + b"".join(
            frame(HEADERS, END_HEADERS | END_STREAM, number, head()) + frame(RST_STREAM, 0, number, cancel)
            for number in streams(MANY)
        ),
    )  # fmt: skip
    more = frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b" * 10)
    yield "headers that go on for 10,000 frames", start + frame(HEADERS, 0, 1, head()) + more * MANY
    yield "10,000 settings", start + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * MANY
    yield "10,000 pings", start + frame(PING, 0, 0, b"12345678") * MANY
    yield "10,000 window updates", start + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * MANY
    opened = frame(HEADERS, END_HEADERS, 1, head("POST"))
    yield "10,000 empty pieces of a body", start + opened + frame(DATA, 0, 1) * MANY
    bodies = b"".join(frame(HEADERS, END_HEADERS, number, head("POST", "/v1/oauth/tokens")) for number in streams(1000))
    yield "1,000 requests without their bodies", start + bodies
    tiny = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1))
    asked = b"".join(frame(HEADERS, END_HEADERS | END_STREAM, number, head()) for number in streams(100))
    yield "100 requests with a window of one byte", tiny + asked
    fields = head("GET", "/v1/config", *((f"x-{number}", "y") for number in range(2000)))
    parts = [fields[at : at + 16_000] for at in range(0, len(fields), 16_000)]
    large = frame(HEADERS, END_STREAM, 1, parts[0]) + b"".join(
        frame(CONTINUATION, END_HEADERS if part is parts[-1] else 0, 1, part) for part in parts[1:]
    )
    yield "2,000 header fields", start + large
    yield "no HTTP/2 at all", b"x" * 1000


def certificate(folder: Path) -> dict[str, str]:
    """Settings of a server that speaks TLS."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    chain = folder / "server.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(chain))
    chain.chmod(0o600)
    return {"NUNATAK_TLS_CERTIFICATE": str(chain)}


def flood(port: int, sent: bytes) -> bool:
    """Send all of it; whether the server closed the connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as plain, context.wrap_socket(plain) as sock:
        sock.settimeout(1.0)
        try:
            sock.sendall(sent)
            while sock.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
    return True
