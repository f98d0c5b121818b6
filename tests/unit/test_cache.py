"""Metadata in memory: the newest are kept up to a number of bytes, and nothing is parsed before it is needed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nunatak.catalog.cache import Loaded, MetadataCache
from nunatak.database.records import Key
from nunatak.iceberg import table_metadata
from tests.unit.iceberg.builders import a_table as a_table_value


def key(name: str) -> Key:
    return Key("default", "ns", name)


def loaded(size: int = 100, name: str = "t") -> Loaded:
    return Loaded(f"file:///w/{name}.json", [b'"', b"x" * (size - 2), b'"'], None)


METADATA = {
    "format-version": 2, "table-uuid": "00000000-0000-4000-8000-000000000001", "location": "file:///w/t",
    "last-sequence-number": 2, "last-updated-ms": 2, "last-column-id": 0, "current-schema-id": 0,
    "schemas": [{"type": "struct", "schema-id": 0, "fields": []}], "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999, "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}], "current-snapshot-id": 2,
    "snapshots": [{"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": 1, "manifest-list": "a", "summary": {}},
                  {"snapshot-id": 2, "sequence-number": 2, "timestamp-ms": 2, "manifest-list": "b", "summary": {}}],
    "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
}  # fmt: skip


def a_table() -> Loaded:
    return Loaded("file:///w/t.json", [json.dumps(METADATA).encode()], None)


def test_an_answer_is_the_bytes_with_their_location_around_them() -> None:
    entry = Loaded('file:///w/"odd".json', [b'{"a": ', b"1}"], None)

    assert json.loads(entry.answer) == {"metadata-location": 'file:///w/"odd".json', "metadata": {"a": 1}, "config": {}}
    assert bytes(entry.data) == b'{"a": 1}'


def test_a_tag_belongs_to_a_location_and_a_mode() -> None:
    one, same, other = loaded(), loaded(200), loaded(name="u")

    assert one.etag == same.etag != other.etag
    assert len({one.etag, one.refs_etag, other.etag, other.refs_etag}) == 4
    for tag in (one.etag, one.refs_etag):
        assert tag.startswith('"')
        assert tag.endswith('"')


def test_nothing_is_parsed_before_it_is_asked_for_and_then_once() -> None:
    table = a_table()
    assert table.parsed is None

    assert table.table() is table.table()
    assert table.parsed is table.table()


def test_the_answer_with_referenced_snapshots_only_is_made_once() -> None:
    table = a_table()

    small = table.with_refs_only()

    assert [each["snapshot-id"] for each in json.loads(small)["metadata"]["snapshots"]] == [2]
    assert table.with_refs_only() is small


def test_what_was_not_used_for_longest_goes_first() -> None:
    cache = MetadataCache(3 * loaded().weight())
    for name in ("a", "b", "c"):
        cache.keep(key(name), loaded())
    cache.find(key("a"))

    cache.keep(key("d"), loaded())

    assert [cache.find(key(name)) is not None for name in ("a", "b", "c", "d")] == [True, False, True, True]


def test_what_is_larger_than_the_cache_is_not_kept_and_drops_its_older_self() -> None:
    cache = MetadataCache(2 * loaded().weight())
    cache.keep(key("a"), loaded())
    cache.keep(key("b"), loaded())

    cache.keep(key("a"), loaded(10_000))

    assert cache.find(key("a")) is None
    assert cache.find(key("b")) is not None
    assert cache.bytes == loaded().weight()


def test_a_cache_of_nothing_keeps_nothing() -> None:
    cache = MetadataCache(0)
    cache.keep(key("a"), loaded())

    assert cache.find(key("a")) is None
    assert cache.bytes == 0


def test_what_was_added_to_an_entry_is_counted_when_it_is_kept_again() -> None:
    cache, table = MetadataCache(10**6), a_table()
    cache.keep(key("t"), table)
    before = cache.bytes

    table.with_refs_only()
    cache.keep(key("t"), table)

    assert cache.bytes == table.weight() > before


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 400)), max_size=40))
def test_the_sum_is_always_right_and_within_the_limit(steps: list[tuple[str, int]]) -> None:
    cache = MetadataCache(1000)
    kept: dict[str, int] = {}
    for name, size in steps:
        if size < 2:
            cache.forget(key(name))
        else:
            cache.keep(key(name), loaded(size))
            kept[name] = loaded(size).weight()
    there = [name for name in "abcd" if cache.find(key(name)) is not None]

    assert cache.bytes == sum(kept[name] for name in there)
    assert cache.bytes <= 1000


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_version_made_from_the_one_before_is_what_would_be_written_anew(version: int) -> None:
    metadata = replace(a_table_value(), format_version=version)
    loaded = Loaded.of_table("file:///w/0.json", metadata, None, None)
    changes: list[dict[str, Any]] = [
        {"last_updated_ms": 5}, {"properties": {"a": "b"}}, {"refs": {}, "current_snapshot_id": None},
        {"last_column_id": 7}, {"location": "file:///w/elsewhere"}, {"properties": {"a": "b"}}, {"unknown": {"x": 1}},
    ]  # fmt: skip

    for number, change in enumerate(changes, 1):
        metadata = replace(metadata, **change)
        shared = loaded.settled_for(metadata) is not None
        loaded = Loaded.of_table(f"file:///w/{number}.json", metadata, None, loaded)

        assert shared == change.keys().isdisjoint({"properties", "last_column_id"})
        assert bytes(loaded.data) == table_metadata.encode(metadata)
        assert table_metadata.decode(loaded.data) == metadata


def test_of_a_file_nothing_is_shared() -> None:
    """It may be written in another order, or spaced out."""
    table = a_table()

    assert table.settled_for(table.table()) is None
