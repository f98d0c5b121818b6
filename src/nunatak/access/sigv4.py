"""Requests signed with an access key (AWS Signature Version 4), as clients with `rest.sigv4-enabled` send them.

Any region and service is accepted, since the key is valid only here; both are signed. A client's other login arrives in
`Original-Authorization` instead of `Authorization` and is ignored: the signature decides.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote, unquote_to_bytes

from nunatak.access.credentials import ACCESS_KEY, StoredCredential, check_usable, find_credential
from nunatak.access.embedded import Bearer
from nunatak.access.sessions import NEVER_MS, Proof, Session
from nunatak.access.vault import Vault
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCK_MS = 300_000  # how far the client's clock may differ, and how long a request could be replayed
REQUIRED_HEADERS = {"host", "x-amz-date"}
MAX_HEADER_LENGTH = 4096  # fifty names of signed headers, and the rest
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
# Every other service encodes the path, which is already encoded, a second time.
ENCODES_ONCE = "s3"
UNRESERVED = "-_.~"

_DATE_FORMAT = "%Y%m%dT%H%M%SZ"
_DATE = re.compile(rb"\d{8}T\d{6}Z")
_HEX = re.compile(rb"[0-9a-f]{64}")
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} +Credential=([^, /]+)/(\d{{8}}/[^, /]+/([^, /]+)/aws4_request), *"
    rf"SignedHeaders=([^, ]+), *Signature=([0-9a-f]{{64}})"
)


@dataclass(frozen=True, slots=True)
class Signature:
    """The parsed Authorization header; `scope` is date, region and service."""

    access_key: str
    scope: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str


class SigV4Authenticator:
    """Verifies signatures. A signature is valid for one request, so its session is not cached."""

    def __init__(
        self,
        store: Store,
        vault: Vault,
        now_ms: Callable[[], int],
        used: Callable[[StoredCredential], None] = lambda credential: None,
    ) -> None:
        """`used` is called with every credential that signed a request."""
        self._store = store
        self._vault = vault
        self._now_ms = now_ms
        self._used = used

    async def authenticate(self, proof: Proof) -> Session | None:
        header = proof.headers.get(b"authorization", b"")
        if not header.startswith(ALGORITHM.encode()):
            return None
        signature = parse_signature(header)
        date = self._checked_date(signature, proof.headers)
        credential = await find_credential(self._store, signature.access_key)
        if credential is None or credential.kind != ACCESS_KEY:
            raise _wrong()
        # A stated hash is compared with the body when that is read (Session.body_sha256).
        body_sha256 = body_sha256_header(proof.headers) or await _body_sha256(proof)
        secret = self._vault.open(credential.stored, credential.credential_id)
        expected = sign(secret, signature.scope, date, canonical_request(proof, signature, body_sha256))
        if not hmac.compare_digest(expected, signature.signature):
            raise _wrong()
        # After the signature: a wrong one must not reveal that a credential has expired.
        check_usable(credential, self._now_ms())
        self._used(credential)
        return _session(credential, body_sha256)

    def _checked_date(self, signature: Signature, headers: Mapping[bytes, bytes]) -> str:
        missing = REQUIRED_HEADERS - set(signature.signed_headers)
        if missing:
            raise _not_authenticated(
                f"it does not cover the header {min(missing)}", "Sign at least host and x-amz-date."
            )
        text = headers.get(b"x-amz-date", b"")
        signed_ms = _milliseconds(text)
        if signed_ms is None or text[:8] != signature.scope[:8].encode():
            raise _not_authenticated(
                "x-amz-date and the credential's date must agree", "Send both as 20260131T120000Z has them."
            )
        if abs(self._now_ms() - signed_ms) > CLOCK_MS:
            raise _not_authenticated("it was made too long ago, or too far ahead", "Check the clock of the client.")
        return text.decode()


def parse_signature(header: bytes) -> Signature:
    found = _AUTHORIZATION.fullmatch(header.decode("latin-1")) if len(header) <= MAX_HEADER_LENGTH else None
    if found is None:
        raise _not_authenticated(
            "the header Authorization is incomplete",
            f"Send `{ALGORITHM} Credential=<access key>/<date>/<region>/<service>/aws4_request, "
            "SignedHeaders=…, Signature=…`.",
        )
    access_key, scope, service, signed, signature = found.groups()
    return Signature(access_key, scope, service, tuple(signed.split(";")), signature)


def body_sha256_header(headers: Mapping[bytes, bytes]) -> str | None:
    """Returns the SHA-256 of the body that the request states, in lower-case hexadecimal; None if it states none."""
    text = headers.get(b"x-amz-content-sha256")
    if text is None:
        return None
    if _HEX.fullmatch(text):
        return text.decode()
    try:  # Iceberg's Java client writes base64 here, though it signs the hexadecimal form.
        digest = base64.b64decode(text, validate=True)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise _not_authenticated("it does not cover the body", "Send the SHA-256 of the body as x-amz-content-sha256.")
    return digest.hex()


def canonical_request(proof: Proof, signature: Signature, body_sha256: str) -> bytes:
    """Builds the signed text from the request as it arrived; not normalized, so what is checked is what is done."""
    once = signature.service == ENCODES_ONCE
    path = proof.raw_path if once else quote(proof.raw_path, safe="/" + UNRESERVED).encode()
    lines = [proof.method.encode(), path, canonical_query(proof.query_string)]
    for name in signature.signed_headers:
        value = proof.headers.get(name.encode("latin-1"))
        if value is None:
            raise _not_authenticated(
                "it covers a header that did not arrive", "Let no proxy in between remove headers."
            )
        lines.append(name.encode("latin-1") + b":" + b" ".join(value.split()))
    lines += [b"", ";".join(signature.signed_headers).encode("latin-1"), body_sha256.encode()]
    return b"\n".join(lines)


def canonical_query(query: bytes) -> bytes:
    """Returns the query with its pairs uniformly encoded and sorted; a plus sign is a space, as when it is parsed."""
    pairs = (pair.replace(b"+", b" ").partition(b"=") for pair in query.split(b"&") if pair)
    encoded = sorted((_uri_encode(name), _uri_encode(value)) for name, _, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded).encode()


def _uri_encode(text: bytes) -> str:
    return quote(unquote_to_bytes(text), safe=UNRESERVED)


def sign(secret: bytes, scope: str, date: str, request: bytes) -> str:
    key = b"AWS4" + secret
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode("latin-1"), "sha256")
    text = "\n".join((ALGORITHM, date, scope, hashlib.sha256(request).hexdigest()))
    return hmac.digest(key, text.encode("latin-1"), "sha256").hex()


async def _body_sha256(proof: Proof) -> str:
    """Returns the hash of the body itself, which the signature covers if no header states it."""
    return EMPTY_SHA256 if proof.body_sha256 is None else await proof.body_sha256()


def _session(credential: StoredCredential, body_sha256: str) -> Session:
    session = Bearer(credential, credential.limit, NEVER_MS, credential.expires_ms or NEVER_MS).session("sigv4")
    return replace(session, cached=False, body_sha256=body_sha256)


def _milliseconds(text: bytes) -> int | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = datetime.strptime(text.decode(), _DATE_FORMAT)
    except ValueError:
        return None
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1000


def _wrong() -> NotAuthenticated:
    return _not_authenticated(
        "it does not fit the request",
        "Check the access key and its secret, and that nothing in between changes the path, the query or the headers.",
    )


def _not_authenticated(why: str, hint: str) -> NotAuthenticated:
    return NotAuthenticated(f"The request's signature was refused: {why}", hint=hint)
