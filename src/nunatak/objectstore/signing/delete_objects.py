"""The body of an S3 DeleteObjects request: the keys that it deletes."""

from xml.etree import ElementTree

from nunatak.errors import Forbidden

MAX_OBJECTS = 1000  # Amazon's own limit
MAX_BODY_BYTES = 2 * 1024 * 1024
_NAMESPACES = ("", "{http://s3.amazonaws.com/doc/2006-03-01/}")


def read_keys(body: bytes) -> list[str]:
    """Returns the keys; raises Forbidden for a body that deletes versions or that readers could parse differently."""
    if len(body) > MAX_BODY_BYTES:
        raise _refusal("is too large")
    text = body.removeprefix(b'<?xml version="1.0" encoding="UTF-8"?>').removeprefix(
        b"<?xml version='1.0' encoding='UTF-8'?>"
    )
    # No declaration, comment, entity or section: a parser that treats one differently would see other keys.
    if b"<!" in text or b"<?" in text:
        raise _refusal("holds a declaration, a comment or a section")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise _refusal("is not well-formed XML") from error
    namespace = next((each for each in _NAMESPACES if root.tag == f"{each}Delete"), None)
    if namespace is None:
        raise _refusal("is no Delete element")
    keys = []
    for element in root:
        if element.tag == f"{namespace}Quiet":
            continue
        if element.tag != f"{namespace}Object":
            raise _refusal("holds an unexpected element")
        # A VersionId would delete data that a versioned bucket keeps for its owner.
        if [child.tag for child in element] != [f"{namespace}Key"] or len(element[0]):
            raise _refusal("may name each object by its key alone")
        keys.append(element[0].text or "")
    if not 0 < len(keys) <= MAX_OBJECTS:
        raise _refusal(f"must name 1 to {MAX_OBJECTS} objects")
    return keys


def _refusal(why: str) -> Forbidden:
    return Forbidden(f"The request to the store is not signed: its body {why}")
