"""What exists on both servers, as the reference's answers tell; a generator looks here for what would be valid."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Namespace = tuple[str, ...]
Name = tuple[Namespace, str]
Metadata = dict[str, Any]


@dataclass
class Thing:
    """A table or a view; requests call it by its handle, because each server gave it a UUID and a place of its own."""

    handle: str
    metadata: Metadata


@dataclass
class World:
    namespaces: dict[Namespace, dict[str, str]] = field(default_factory=dict)
    tables: dict[Name, Thing] = field(default_factory=dict)
    views: dict[Name, Thing] = field(default_factory=dict)
    staged: list[tuple[Name, Thing]] = field(default_factory=list)
    dropped: dict[str, list[Thing]] = field(default_factory=lambda: {"tables": [], "views": []})
    handles: Iterator[str] = field(default_factory=lambda: (f"T{number}" for number in itertools.count(1)))
    snapshot_ids: Iterator[int] = field(default_factory=lambda: itertools.count(3_000_000_000_000_000_001))

    def things(self, kind: str) -> dict[Name, Thing]:
        return self.tables if kind == "tables" else self.views

    def is_free(self, name: Name) -> bool:
        return name not in self.tables and name not in self.views

    def is_empty(self, namespace: Namespace) -> bool:
        return not any(name[0] == namespace for name in (*self.tables, *self.views)) and not any(
            other[: len(namespace)] == namespace for other in self.namespaces if other != namespace
        )

    def forget(self, name: Name) -> None:
        self.tables.pop(name, None)
        self.views.pop(name, None)
        self.staged = [(where, thing) for where, thing in self.staged if where != name]
