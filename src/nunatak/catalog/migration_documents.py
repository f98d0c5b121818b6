"""Documents that migrations store in the catalog's database: small JSON texts, replaced by compare-and-swap.

The catalog does not parse them. `nunatak migrate`, which runs in another process, defines their meaning.
"""

import re
from collections.abc import Sequence

import msgspec

from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import BadRequest, Conflict, NotFound

MAX_CONTENT_BYTES = 1 << 20
_MIGRATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DOCUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")


class Document(msgspec.Struct, frozen=True):
    name: str
    version: int
    content: bytes
    changed_ms: int


def check_migration(name: str) -> str:
    return _check(_MIGRATION, name, "migration")


def check_document(name: str) -> str:
    return _check(_DOCUMENT, name, "document")


def _check(pattern: re.Pattern[str], name: str, what: str) -> str:
    if not pattern.fullmatch(name):
        raise BadRequest(f"Invalid name of a {what}: {name[:100]!r}", hint=f"It has to match {pattern.pattern}.")
    return name


def check_content(content: bytes) -> str:
    if len(content) > MAX_CONTENT_BYTES:
        raise BadRequest(f"The document has {len(content)} bytes; at most {MAX_CONTENT_BYTES} are kept")
    return content.decode()


def save_document(migration: str, name: str, content: str, version: int, now_ms: int) -> Write:
    """Replaces version `version`, or adds the document if that is 0; Conflict if the version differs by now."""
    values = {"migration": migration, "document": name, "content": content, "changed_ms": now_ms}
    refusal = Conflict(f"Document {name} of migration {migration} is no longer at version {version}")
    if version == 0:
        return Write("add_migration_document", values, refusal)
    return Write("replace_migration_document", {**values, "version": version}, refusal)


def drop_document(migration: str, name: str, version: int) -> Write:
    refusal = Conflict(f"Document {name} of migration {migration} is no longer at version {version}")
    return Write("drop_migration_document", {"migration": migration, "document": name, "version": version}, refusal)


async def load_document(store: Store, migration: str, name: str) -> Document:
    rows = await store.rows("find_migration_document", {"migration": migration, "document": name})
    if not rows:
        raise NotFound(f"Migration {migration} has no document {name}")
    return _document(rows[0])


async def list_documents(store: Store, migration: str, prefix: str, after: str, limit: int) -> list[Document]:
    """Returns the documents whose names start with the prefix, ordered by name."""
    # The largest code point ends the range of names that start with the prefix.
    values = {"migration": migration, "first": prefix, "behind": prefix + "\U0010ffff", "after": after, "limit": limit}
    return [_document(row) for row in await store.rows("list_migration_documents", values)]


def _document(row: Sequence[object]) -> Document:
    return Document(str(row[0]), int(str(row[1])), str(row[2]).encode(), int(str(row[3])))
