"""Names and locations of metadata files, and the folders of new tables; text only, no I/O."""

import re
from collections.abc import Mapping

from nunatak.iceberg.identifiers import Identifier

_VERSION = re.compile(r"v?(\d{1,9})(?:-[^/]*)?(?:\.gz)?\.metadata\.json$")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_SLUG_LENGTH = 48  # enough for people to recognise; the UUID makes the folder unique


def new_metadata_location(
    location: str, properties: Mapping[str, str], previous: str | None, metadata_uuid: str
) -> str:
    """Return the location of the next metadata file: numbered for people, unique by its UUID."""
    folder = properties.get("write.metadata.path", f"{location.rstrip('/')}/metadata").rstrip("/")
    before = version_of(previous) if previous is not None else None
    version = before + 1 if before is not None else 0
    codec = properties.get("write.metadata.compression-codec", "none").lower()
    extension = ".gz.metadata.json" if codec == "gzip" else ".metadata.json"
    return f"{folder}/{version:05d}-{metadata_uuid}{extension}"


def version_of(metadata_location: str) -> int | None:
    """Return the number in a metadata file's name, or None."""
    found = _VERSION.match(metadata_location, metadata_location.rfind("/") + 1)
    return int(found[1]) if found else None


def new_folder(base: str, identifier: Identifier | None, table_uuid: str) -> str:
    """Return a folder that no other table ever had. Names are reduced to safe characters: they are for people only."""
    if identifier is None:
        return f"{base}/{table_uuid}"
    levels = [slug(level) for level in identifier.namespace]
    return "/".join([base, *levels, f"{slug(identifier.name)}-{table_uuid}"])


def plain_folder(base: str, identifier: Identifier) -> str | None:
    """Return the folder that JDBC catalogs use, `<namespace>/<table>`, or None if a slug would change a name."""
    names = (*identifier.namespace, identifier.name)
    return None if any(slug(name) != name for name in names) else "/".join((base, *names))


def slug(name: str) -> str:
    return _UNSAFE.sub("_", name)[:_SLUG_LENGTH] or "_"
