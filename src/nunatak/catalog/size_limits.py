"""Limits on the size of requests; no regular client reaches them."""

import re
from collections.abc import Mapping

from nunatak.errors import BadRequest

MAX_TRIES = 11  # the first try and ten retries; only another process on the same database makes a retry necessary
MAX_UPDATES = 1000  # of one table or view in one request
MAX_REQUIREMENTS = 1000
MAX_PROPERTIES = 1000
MAX_PROPERTY_BYTES = 32 * 1024
# Every principal that may load a table or namespace sees its properties. Clients use these names for secrets.
_SECRETS = re.compile(
    r"^(?:token|credential|.*\.(?:secret-access-key|session-token|sas-token(?:\..+)?|account\.key|oauth2\.token|password))$"
)


def check_counts(*, updates: int, requirements: int) -> None:
    if updates <= MAX_UPDATES and requirements <= MAX_REQUIREMENTS:
        return
    what = f"updates: {updates}, at most {MAX_UPDATES}"
    if updates <= MAX_UPDATES:
        what = f"requirements: {requirements}, at most {MAX_REQUIREMENTS}"
    raise BadRequest(f"Too many {what} are allowed in one commit", hint="Send several commits, one after the other.")


def check_properties(properties: Mapping[str, str]) -> None:
    if len(properties) > MAX_PROPERTIES:
        raise BadRequest(f"Too many properties: {len(properties)}, at most {MAX_PROPERTIES} are allowed")
    for key, value in properties.items():
        if not key:
            raise BadRequest("Invalid property: its key is empty")
        if _SECRETS.match(key):
            raise BadRequest(
                f"Invalid property {key[:64]!r}: the name suggests a secret, which every reader of the table would see",
                hint="Set it in the configuration of the client.",
            )
        if len(key.encode("utf-8", "surrogatepass")) + len(value.encode("utf-8", "surrogatepass")) > MAX_PROPERTY_BYTES:
            raise BadRequest(f"Invalid property {key[:64]!r}: larger than {MAX_PROPERTY_BYTES} bytes")
