"""Lists of definitions and files while a commit changes them: what is found, stays in place, is remembered."""

from typing import Any

import pytest

from nunatak.errors import IllegalArgument
from nunatak.iceberg import definitions, schema
from nunatak.iceberg.definitions import Definitions, Keyed, digest
from nunatak.iceberg.table_metadata import decode, encode
from tests.unit.iceberg.builders import a_field, a_schema, a_table, commit, update

Json = dict[str, Any]


def some(*pairs: tuple[int, str]) -> Definitions:
    """Items of an id and a content."""
    items = tuple({"id": each, "content": content} for each, content in pairs)
    return Definitions("item", items, lambda item: item["id"], lambda item: digest(item["content"]))


def test_the_first_of_equal_definitions_is_found_and_the_next_when_it_is_gone() -> None:
    found = some((3, "a"), (1, "b"), (2, "a"))
    assert found.find_equal(digest("a")) == 3

    found.remove([3])
    assert found.find_equal(digest("a")) == 2

    found.remove([2])
    assert found.find_equal(digest("a")) is None


def test_ids_go_on_after_the_highest_that_is_there() -> None:
    found = some((3, "a"), (7, "b"))
    assert (found.next_id(0), found.next_id(20)) == (8, 20)

    found.remove([7])
    assert found.next_id(0) == 4


def test_an_untouched_list_is_the_same_object() -> None:
    base = a_table().schemas
    found = Definitions("schema", base, lambda item: item["schema-id"], schema.schema_digest)
    found.find_equal(digest("nothing"))
    found.remove([99])

    assert found.finished() is base


def test_a_table_has_a_bounded_number_of_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MAX_DEFINITIONS", 2)
    found = some((1, "a"), (2, "b"))

    with pytest.raises(IllegalArgument, match="at most 2 are allowed"):
        found.add(3, {"id": 3, "content": "c"}, digest("c"))


def test_digests_are_computed_once_and_not_again_by_the_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    added = [
        update("add-schema", schema=a_schema(a_field(1, "id", required=True), a_field(number, f"c{number}")))
        for number in range(10, 40)
    ]
    table = decode(encode(commit(a_table(), added)))
    computed = []
    real = schema.content_digest

    def counted(parsed: schema.Schema) -> bytes:
        computed.append(parsed.schema_id)
        return real(parsed)

    monkeypatch.setattr(schema, "content_digest", counted)
    table = commit(table, [update("add-schema", schema=a_schema(a_field(1, "x")))])
    first = len(computed)
    commit(table, [update("add-schema", schema=a_schema(a_field(1, "y")))])

    assert first == 32, "31 that were there, and a new one"
    assert len(computed) == first + 1


def files(*pairs: tuple[int, str]) -> tuple[Json, ...]:
    return tuple({"snapshot-id": each, "path": path} for each, path in pairs)


def test_a_new_file_takes_the_place_of_all_of_its_key() -> None:
    base = files((1, "a"), (2, "b"), (1, "c"), (3, "d"))
    found = Keyed(base, "snapshot-id")
    assert found.finished() is base, "two of one key stay until somebody says otherwise"

    found.put({"snapshot-id": 1, "path": "new"})
    assert found.finished() == files((1, "new"), (2, "b"), (3, "d"))


def test_all_files_of_a_key_are_removed() -> None:
    found = Keyed(files((1, "a"), (2, "b"), (1, "c")), "snapshot-id")
    found.remove({1, 9})

    assert found.finished() == files((2, "b"))
    found.put({"snapshot-id": 1, "path": "again"})
    assert found.finished() == files((2, "b"), (1, "again"))
