"""Documents of migrations on every database: added once, replaced by compare and swap, listed by their names."""

from typing import Any

import pytest

from nunatak.catalog.migration_documents import drop_document, list_documents, load_document, save_document
from nunatak.database.store import Store
from nunatak.errors import Conflict, NotFound
from tests.backends.conftest import Run


def save(store: Store, run: Run[Any], name: str, content: str, version: int, migration: str = "m") -> None:
    run(store.apply([save_document(migration, name, content, version, 7)]))


def test_a_document_is_replaced_only_by_whoever_read_it_last(store: Store, run: Run[Any]) -> None:
    save(store, run, "table:1", '{"a":1}', 0)
    save(store, run, "table:1", '{"a":"ä\\u0000"}', 1)

    for version in (0, 1, 3):
        with pytest.raises(Conflict, match=f"no longer at version {version}"):
            save(store, run, "table:1", '{"a":3}', version)

    found = run(load_document(store, "m", "table:1"))
    assert (found.version, found.content, found.changed_ms) == (2, '{"a":"ä\\u0000"}'.encode(), 7)


def test_a_document_is_dropped_only_as_it_was_read(store: Store, run: Run[Any]) -> None:
    save(store, run, "lease", "{}", 0)
    with pytest.raises(Conflict):
        run(store.apply([drop_document("m", "lease", 2)]))

    run(store.apply([drop_document("m", "lease", 1)]))

    with pytest.raises(NotFound, match="has no document lease"):
        run(load_document(store, "m", "lease"))
    save(store, run, "lease", "{}", 0)  # which may be there again


def test_documents_are_listed_by_prefix_in_pages_and_by_migration(store: Store, run: Run[Any]) -> None:
    names = ["log:1", "table:A", "table:a", "table:b", "tables:x"]
    for name in names:
        save(store, run, name, "{}", 0)
    save(store, run, "table:z", "{}", 0, migration="M")  # another one than m

    def listed(prefix: str, after: str = "", limit: int = 10) -> list[str]:
        return [each.name for each in run(list_documents(store, "m", prefix, after, limit))]

    assert listed("") == names
    assert listed("table:") == ["table:A", "table:a", "table:b"]
    assert listed("table:", after="table:A", limit=1) == ["table:a"]
    assert listed("nothing") == []


def test_a_large_document_comes_back_whole(store: Store, run: Run[Any]) -> None:
    content = '"' + "x" * ((1 << 20) - 2) + '"'
    save(store, run, "evidence:1", content, 0)

    assert run(load_document(store, "m", "evidence:1")).content == content.encode()
