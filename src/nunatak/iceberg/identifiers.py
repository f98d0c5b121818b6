"""Names of namespaces, tables and views: which are allowed, how they print, and how the JDBC tables store them."""

import re

import msgspec

from nunatak.errors import BadRequest, show_text

Namespace = tuple[str, ...]

MAX_NAME_BYTES = 255
MAX_NAMESPACE_LEVELS = 16
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Identifier(msgspec.Struct, frozen=True):
    """A table or view by name, inside one warehouse."""

    namespace: Namespace
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


def print_namespace(namespace: Namespace) -> str:
    """Return a namespace as the reference prints it in messages: levels joined by dots, nothing quoted."""
    return ".".join(namespace)


def check_name(name: str, what: str) -> str:
    """Return `name`; raise BadRequest if no client could address it. Paths set no limit: they only contain slugs."""
    if not name:
        raise BadRequest(f"Invalid {what} name: must not be empty")
    if name in (".", ".."):
        raise BadRequest(f"Invalid {what} name: {name!r}", hint="'.' and '..' are not names")
    if _CONTROL.search(name):
        raise BadRequest(f"Invalid {what} name: {show_text(repr(name))} holds a control character")
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise BadRequest(f"Invalid {what} name: not valid Unicode") from error
    if size > MAX_NAME_BYTES:
        raise BadRequest(f"Invalid {what} name: {size} bytes, at most {MAX_NAME_BYTES} are allowed")
    return name


def check_namespace(levels: Namespace) -> Namespace:
    if not levels:
        raise BadRequest("Invalid namespace: must have at least one level")
    if len(levels) > MAX_NAMESPACE_LEVELS:
        raise BadRequest(f"Invalid namespace: {len(levels)} levels, at most {MAX_NAMESPACE_LEVELS} are allowed")
    for level in levels:
        check_name(level, "namespace")
    return levels


# A level with a dot would be two levels in a JDBC catalog. The dot is stored as %2E, and a literal %2E or %25 with its
# percent sign escaped, so that decoding is exact and names without a dot look as JDBC clients write them.
_ESCAPED = re.compile(r"%(?:2E|25)|\.")


def _escape(match: re.Match[str]) -> str:
    found = match.group()
    return "%2E" if found == "." else "%25" + found[1:]


def to_jdbc(namespace: Namespace) -> str:
    """Return the `table_namespace` of the JDBC tables: levels joined by dots."""
    joined = ".".join(namespace)
    if len(namespace) > 1 or "." in joined or "%" in joined:
        return ".".join(_ESCAPED.sub(_escape, level) for level in namespace)
    return joined


def from_jdbc(text: str) -> Namespace:
    if "%" not in text:
        return tuple(text.split("."))
    return tuple(level.replace("%2E", ".").replace("%25", "%") for level in text.split("."))
