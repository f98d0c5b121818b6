"""Changes for a store that say what matters and fill in the rest."""

import itertools
from typing import Any
from urllib.parse import quote

from nunatak.database.records import (
    CommitEntry,
    CreateNamespace,
    DeletePointer,
    DropNamespace,
    InsertPointer,
    Key,
    Kind,
    MovePointer,
    RenamePointer,
    Stored,
    UpdateNamespace,
)

CATALOG = "default"
_numbers = itertools.count(1)


def key(name: str, namespace: str = "ns", catalog: str = CATALOG) -> Key:
    return Key(catalog, namespace, name)


def stored(
    version: str = "v1", *, uuid: str = "uuid", location: str = "file:///w/t", content: bytes | None = b"{}"
) -> Stored:
    return Stored(f"{location}/metadata/{version}.json", uuid, location, content)


def entry(operation: str = "test", **fields: Any) -> CommitEntry:
    return CommitEntry(f"commit-{next(_numbers)}", operation, "anonymous", 1_000, **fields)


def insert(
    name: str, namespace: str = "ns", *, kind: Kind = "TABLE", location: str | None = None, **fields: Any
) -> InsertPointer:
    place = location or f"file:///w/{namespace}/{quote(name, safe='')}"
    new = stored(uuid=fields.pop("uuid", f"uuid-of-{name}"), location=place)
    return InsertPointer(key(name, namespace), kind, new, entry("create"), f"{namespace}.{name}", namespace, **fields)


def move(name: str, before: Stored, after: Stored, namespace: str = "ns", **fields: Any) -> MovePointer:
    line = fields.pop("line", None) or entry("commit")
    return MovePointer(
        key(name, namespace), "TABLE", before.metadata_location, after, line, f"{namespace}.{name}", **fields
    )


def delete(name: str, namespace: str = "ns", *, kind: Kind = "TABLE", purge: bool = False) -> DeletePointer:
    return DeletePointer(key(name, namespace), kind, entry("drop"), f"{namespace}.{name}", purge=purge)


def rename(source: Key, to: Key, kind: Kind = "TABLE") -> RenamePointer:
    printed, printed_to = f"{source.namespace}.{source.name}", f"{to.namespace}.{to.name}"
    return RenamePointer(source, to, kind, entry("rename"), printed, printed_to, to.namespace)


def create_namespace(namespace: str = "ns", *ancestors: str, **properties: str) -> CreateNamespace:
    return CreateNamespace(CATALOG, namespace, ancestors, properties, namespace)


def drop_namespace(namespace: str) -> DropNamespace:
    return DropNamespace(CATALOG, namespace, namespace)


def update_namespace(namespace: str, removals: tuple[str, ...] = (), **updates: str) -> UpdateNamespace:
    return UpdateNamespace(CATALOG, namespace, updates, removals, namespace)
