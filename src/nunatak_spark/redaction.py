"""Removes secrets from everything that leaves a Spark program: errors, job results, progress, printed lines.

Known secrets are those of session logins and of the environment. Passwords in URLs and settings are found by pattern.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
MIN_SECRET_LENGTH = 6  # shorter values also occur as ordinary words
SECRET_NAME = re.compile(r"SECRET|PASSW|PWD$|TOKEN|(?:API|ACCESS|ACCOUNT|PRIVATE)_?KEY|CREDENTIAL", re.IGNORECASE)
NO_SECRET_NAME = re.compile(r"_(?:FILE|PATH|DIR|FOLDER|UR[IL]|ID|TYPE|PROVIDER|EXPIRATION)$", re.IGNORECASE)
PATTERNS = (
    # user:password@ in a URL, also after jdbc:
    (re.compile(r"([a-z][a-z0-9+.\-]*://)[^\s/@'\"]*:[^\s/'\"]*@", re.IGNORECASE), rf"\1{MASK}@"),
    # password=x; &token=x, 'secret' = 'x', "s3.secret-access-key":"x" and oracle's user/password@
    (
        re.compile(
            r"((?:secret|passw(?:or)?d|passwd|pwd|token|(?:api|access|account|private)[-_.]?key|credential|signature|\bsig)"
            r"[\w.\-]*[\"']?\s*(?:=>|[=:](?=\S)|=\s|:\s(?=[\"']))\s*)(\"[^\"]*\"|'[^']*'|[^\s&;,\"'}\])]+)",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(jdbc:oracle:\w+:)[^\s/@]+/[^\s@]+@", re.IGNORECASE), rf"\1{MASK}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=\-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"), MASK),  # a JSON web token
)

_known: set[str] = set()


def remember_secret(*values: str | None) -> None:
    """Redacts these values from now on; of ID:SECRET also the second part alone."""
    for value in values:
        if value:
            _known.update(part for part in (value, value.partition(":")[2]) if len(part) >= MIN_SECRET_LENGTH)


def environment_secrets(environment: Mapping[str, str]) -> set[str]:
    found = {
        value for name, value in environment.items() if SECRET_NAME.search(name) and not NO_SECRET_NAME.search(name)
    }
    return {part for value in found for part in (value, value.partition(":")[2]) if len(part) >= MIN_SECRET_LENGTH}


def redact_text(text: str) -> str:
    for secret in sorted({*_known, *environment_secrets(os.environ)}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text


def redact(value: Any) -> Any:
    """Returns a JSON value with its strings and keys redacted."""
    match value:
        case str():
            return redact_text(value)
        case dict():
            return {redact(key): redact(each) for key, each in value.items()}
        case list() | tuple():
            return [redact(each) for each in value]
        case _:
            return value
