"""Signs requests to S3 with the warehouse's own keys (AWS Signature Version 4)."""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import UTC, datetime

from nunatak.errors import Forbidden
from nunatak.objectstore.profile import S3Profile, S3Secret
from nunatak.objectstore.signing.s3_request import CheckedRequest, check_request
from nunatak.objectstore.storage import CredentialScope, SignedRequest, SigningRequest

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
_PAYLOAD = re.compile(r"[0-9a-f]{64}|UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER")


class S3Signer:
    """Checks and signs requests; `keys` returns the keys at the time of the call, so that they can be rotated."""

    def __init__(self, profile: S3Profile, keys: Callable[[], S3Secret], now_ms: Callable[[], int]) -> None:
        self._profile = profile
        self._keys = keys
        self._now_ms = now_ms
        self._derived: tuple[tuple[str, str, str], bytes] | None = None  # one key a day: four HMACs are saved

    def sign(self, request: SigningRequest, scope: CredentialScope) -> SignedRequest:
        """Returns the URI as it was given and the headers to send; raises Forbidden."""
        checked = check_request(self._profile, request, scope)
        keys = self._keys()
        moment = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        date = moment.strftime("%Y%m%dT%H%M%SZ")
        headers = dict(checked.headers)
        headers["host"] = checked.host
        headers["x-amz-date"] = date
        headers["x-amz-content-sha256"] = payload = _payload_hash(checked)
        if keys.session_token is not None:
            headers["x-amz-security-token"] = keys.session_token
        names = sorted(headers)
        signed_names = ";".join(names)
        lines = [checked.method, checked.path, checked.query, *(f"{name}:{headers[name]}" for name in names)]
        canonical = "\n".join([*lines, "", signed_names, payload])
        scope_text = f"{date[:8]}/{self._profile.region}/s3/aws4_request"
        text = "\n".join((ALGORITHM, date, scope_text, hashlib.sha256(canonical.encode()).hexdigest()))
        signature = hmac.digest(self._key(keys, date[:8]), text.encode(), "sha256").hex()
        # Only what was added: PyIceberg appends the headers of the answer to its own.
        added = {
            "Authorization": f"{ALGORITHM} Credential={keys.access_key_id}/{scope_text}, "
            f"SignedHeaders={signed_names}, Signature={signature}",
            "X-Amz-Date": date,
        }
        if "x-amz-content-sha256" not in checked.headers:
            added["X-Amz-Content-SHA256"] = payload
        if keys.session_token is not None:
            added["X-Amz-Security-Token"] = keys.session_token
        return SignedRequest(checked.uri, {name: [value] for name, value in added.items()})

    def _key(self, keys: S3Secret, day: str) -> bytes:
        known = (keys.access_key_id, keys.secret_access_key, day)
        if self._derived is None or self._derived[0] != known:
            key = b"AWS4" + keys.secret_access_key.encode()
            for part in (day, self._profile.region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (known, key)
        return self._derived[1]


def _payload_hash(checked: CheckedRequest) -> str:
    """Returns the hash to sign. The list of a delete is signed itself: only the objects that were checked may go."""
    stated = checked.headers.get("x-amz-content-sha256")
    if checked.body is not None:
        own = hashlib.sha256(checked.body).hexdigest()
        if stated not in (None, own):
            raise Forbidden("The request to the store is not signed: x-amz-content-sha256 is not that of its body")
        return own
    if stated is None:
        return UNSIGNED
    if not _PAYLOAD.fullmatch(stated):
        raise Forbidden("The request to the store is not signed: x-amz-content-sha256 has no known form")
    return stated
