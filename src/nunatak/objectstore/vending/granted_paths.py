"""Checks the path that a policy is to open; refuses every path that a store could understand in more than one way.

A path becomes part of an IAM policy, a CEL expression or a SAS token. A character with a meaning there would open more
than the table. Folders made by the catalog hold only letters, digits, `_` and `-`; these checks matter for imported and
client-given locations.
"""

import re
import unicodedata

from nunatak.errors import Forbidden, show_text
from nunatak.objectstore.location import Location

# Letters and digits of ASCII and marks without a meaning in policies, patterns, URLs or templates. Not among them:
# * ? $ { } ' " \ % and everything outside ASCII, which some stores normalise.
_PLAIN = re.compile(r"[A-Za-z0-9 _.,=+@:~!()&-]+")
_BUCKET = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){1,61}[A-Za-z0-9]")
_NO_NAMES = frozenset({"", ".", ".."})
# Unicode categories of characters that cannot be seen: control, format, surrogate, private, unassigned, separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class UngrantablePath(Forbidden):
    """No credential can be limited to this path; the table can still be read by clients with their own credentials."""


def granted_path(place: Location, scheme: str, *, literal_keys: bool = False) -> str:
    """Returns the path of the place without a slash at either end; raises UngrantablePath.

    With `literal_keys` the store compares keys byte by byte and knows escapes for its wildcards, as Amazon S3 does:
    then any visible character is allowed that has no look-alike by Unicode normalisation.
    """
    if place.scheme != scheme:
        raise _refusal(place, f"it is not a {scheme}: location")
    if not place.segments:
        raise _refusal(place, "it is a whole bucket")
    for segment in place.segments:
        if segment in _NO_NAMES or "/" in segment:
            raise _refusal(place, "it has an empty segment, '.' or '..'")
        if segment[-1] in ". " or segment[0] == " ":
            raise _refusal(place, "a segment ends with a dot or begins or ends with a space")
        if literal_keys:
            _check_visible(place, segment)
        elif not _PLAIN.fullmatch(segment):
            raise _refusal(place, "it holds a character that the store may interpret")
    return "/".join(place.segments)


def granted_bucket(place: Location) -> str:
    """Returns the bucket of an S3 or GCS location; raises UngrantablePath."""
    if not _BUCKET.fullmatch(place.authority):
        raise _refusal(place, "its bucket has no valid name")
    return place.authority


def _check_visible(place: Location, segment: str) -> None:
    if segment.isascii() and segment.isprintable():
        return
    if any(unicodedata.category(each) in _INVISIBLE for each in segment):
        raise _refusal(place, "it holds an invisible character")
    # Catches full-width slashes and stars, ligatures, and letters written with combining marks.
    if unicodedata.normalize("NFKC", segment) != segment:
        raise _refusal(place, "it holds a character that looks like another one")


def _refusal(place: Location, reason: str) -> UngrantablePath:
    return UngrantablePath(
        f"No credential can be limited to {show_text(ascii(str(place)))}: {reason}",
        hint="Move the table to a folder with a plain name, or use remote signing.",
    )
