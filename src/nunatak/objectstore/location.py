"""Locations: scheme, authority and path segments, compared by segments and never by characters."""

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from nunatak.errors import BadRequest, NotFound

# Aliases of one scheme: Hadoop's s3a://bucket is the same bucket as s3://bucket.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f?#\\]")
_NOT_A_NAME = frozenset({"", ".", ".."})
MAX_DECODINGS = 3  # of percent signs: a path encoded more often counts as inside no allowed place
_PATTERN = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?$")
_LENIENT_PATTERN = re.compile(_PATTERN.pattern, re.DOTALL)  # a path may hold any character, even a newline


class Location(msgspec.Struct, frozen=True):
    """A file or folder of a store; `segments` are literal, nothing is percent-decoded."""

    scheme: str
    authority: str
    segments: tuple[str, ...]

    def __str__(self) -> str:
        """Returns the canonical form, the same for every spelling of the location."""
        return f"{self.scheme}://{self.authority}/{'/'.join(self.segments)}"

    def parent(self, size: int) -> "Location":
        """Returns the location of the first `size` segments."""
        return Location(self.scheme, self.authority, self.segments[:size])

    def contains(self, other: "Location") -> bool:
        """Whether `other` is this location or lies inside it."""
        return (
            self.scheme == other.scheme
            and self.authority == other.authority
            and other.segments[: len(self.segments)] == self.segments
        )


@lru_cache(maxsize=8192)  # commits parse the same few locations repeatedly
def parse_location(text: str) -> Location:
    """Parses a location; raises BadRequest for anything that readers could interpret in different ways."""
    if _FORBIDDEN.search(text):
        raise BadRequest(f"Invalid location: {text!r} holds a character that is not allowed in one")
    # Other catalogs write local paths without a scheme.
    found = _PATTERN.match(f"file://{text}" if text.startswith("/") else text)
    if found is None:
        raise BadRequest(
            f"Invalid location: {text!r}", hint="A location looks like file:///folder or s3://bucket/folder."
        )
    scheme = _SCHEMES.get(found[1].lower(), found[1].lower())
    authority = found[2] or ""
    path = (found[3] or "").strip("/") if scheme == "file" else (found[3] or "").removeprefix("/").rstrip("/")
    if scheme == "file" and authority == "localhost":
        authority = ""
    if scheme == "file" and authority:
        raise BadRequest(f"Invalid location: {text!r} names a host", hint="Write file:///folder.")
    if "@" in authority and scheme != "abfss":
        raise BadRequest(f"Invalid location: {text!r} holds credentials")
    segments = tuple(path.split("/")) if path else ()
    if not _NOT_A_NAME.isdisjoint(segments):
        raise BadRequest(f"Invalid location: {text!r} holds an empty segment, '.' or '..'")
    return Location(scheme, authority, segments)


@lru_cache(maxsize=64)  # a commit parses its new file twice, and never again
def parse_file_location(text: str) -> Location:
    """Parses the location of a new file, without a place in the large cache; only its folder is cached there."""
    folder, _, name = text.rpartition("/")
    if folder.count("/") < 3 or folder.endswith("/") or name in _NOT_A_NAME or _FORBIDDEN.search(name):
        return parse_location(text)
    place = parse_location(folder)
    return Location(place.scheme, place.authority, (*place.segments, name))


def require_inside(text: str, allowed: tuple[Location, ...], what: str) -> Location:
    """Parses a location; raises BadRequest unless one of the allowed places contains it."""
    location = parse_location(text)
    for place in allowed:
        if place.contains(location):
            return location
    places = ", ".join(str(place) for place in allowed)
    raise BadRequest(
        f"Invalid {what}: {text} lies outside the locations allowed for this warehouse ({places})",
        hint="Leave the location out to let the catalog choose one, or allow it with NUNATAK_ALLOWED_LOCATIONS.",
    )


def is_inside_any(places: Sequence[Location], text: str) -> bool:
    """Whether the file lies in one of the places for every reader, also one that decodes percent signs."""
    try:
        place = parse_file_location(text)
    except BadRequest:
        return False
    for folder in places:
        if folder.contains(place):
            return "%" not in text or all(_is_single_name(each) for each in place.segments[len(folder.segments) :])
    return False


def _is_single_name(segment: str) -> bool:
    """Whether a segment stays a single name after any number of percent-decodings."""
    for _ in range(MAX_DECODINGS):
        if segment in _NOT_A_NAME or "/" in segment or "\\" in segment:
            return False
        decoded = unquote(segment)
        if decoded == segment:
            return True
        segment = decoded
    return False


def possible_locations(text: str) -> list[Location]:
    """Returns every location that some reader may understand by the text, for paths that `parse_location` refuses or
    that hold a percent sign. Readers differ: some decode percent signs, resolve `..`, join slashes or drop a query.
    """
    spellings = [text]
    for _ in range(MAX_DECODINGS):
        spellings.append(unquote(spellings[-1]))
    found: dict[Location, None] = {}
    for spelling in dict.fromkeys(spellings):
        for cut in (spelling, re.split(r"[?#]", spelling, maxsplit=1)[0], spelling.replace("\\", "/")):
            found.update(dict.fromkeys(_resolve_dots(cut)))
    return list(found)


def _resolve_dots(text: str) -> list[Location]:
    """Resolves `.`, `..` and empty segments; returns two locations if a local path seems to name a host."""
    text = text.strip()
    match = _LENIENT_PATTERN.match(f"file://{text}" if text.startswith("/") else text)
    if match is None or "\0" in text:  # no file name holds a NUL
        return []
    scheme = _SCHEMES.get(match[1].lower(), match[1].lower())
    authority, path = match[2] or "", match[3] or ""
    if scheme == "file":
        hosted = [_normalized_segments(f"{authority}/{path}")] if authority else []
        return [Location(scheme, "", each) for each in (_normalized_segments(path), *hosted)]
    if scheme != "abfss":
        authority = authority.rpartition("@")[2]
    return [Location(scheme, authority, _normalized_segments(path))]


def _normalized_segments(path: str) -> tuple[str, ...]:
    segments: list[str] = []
    for each in path.split("/"):
        if each == "..":
            del segments[-1:]
        elif each not in _NOT_A_NAME:
            segments.append(each)
    return tuple(segments)


def path_of(location: Location) -> str:
    """Returns the local path of a file: location."""
    return "/" + "/".join(location.segments)


def missing_file(spelled: str) -> NotFound:
    return NotFound(
        f"Failed to open input stream for file: {spelled}",
        hint="The file does not exist. Restore it, or register the table again with another metadata file.",
    )
