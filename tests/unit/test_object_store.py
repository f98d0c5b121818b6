"""The object store finds the storage of a location: the longest place wins, and what is detached is served no more."""

import asyncio
from pathlib import Path

import pytest

from nunatak.errors import Forbidden
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.store import ObjectStore
from tests.support.local_store import local_store


def other_storage(folder: Path) -> LocalStorage:
    """A storage of its own for an inner folder, as a second warehouse has."""
    storage = LocalStorage()
    storage.allow(parse_location(f"file://{folder}"))
    return storage


def test_the_longest_place_decides_which_storage_serves_a_file(tmp_path: Path) -> None:
    objects = local_store(str(tmp_path))
    inner = other_storage(tmp_path / "inner")
    objects.attach(inner, [parse_location(f"file://{tmp_path}/inner")])

    def storage_of(path: str) -> object:
        return objects.storage_of(parse_location(f"file://{tmp_path}/{path}"))

    assert storage_of("inner/a/b") is inner
    assert storage_of("inner") is inner
    assert storage_of("inner2/a") is objects.local
    assert storage_of("a") is objects.local


@pytest.mark.parametrize("location", ["s3://bucket/a/b", "file:///elsewhere/a", "gs://bucket/a"])
def test_a_location_of_no_warehouse_is_forbidden(tmp_path: Path, location: str) -> None:
    objects = local_store(str(tmp_path))

    async def call_all() -> None:
        for call in (objects.read, objects.read_metadata, objects.exists, objects.delete):
            with pytest.raises(Forbidden, match="outside what this server may touch"):
                await call(location)
        with pytest.raises(Forbidden):
            await objects.write_new(location, b"")
        with pytest.raises(Forbidden):
            await objects.delete_many([f"file://{tmp_path}/a", location])
        with pytest.raises(Forbidden):
            await objects.list_files(location, "")

    asyncio.run(call_all())


def test_a_replaced_storage_serves_nothing_new_and_its_counts_stay(tmp_path: Path) -> None:
    objects = local_store(str(tmp_path))
    place, location = parse_location(f"file://{tmp_path}/inner"), f"file://{tmp_path}/inner/a"
    first, second = other_storage(tmp_path / "inner"), other_storage(tmp_path / "inner")

    async def write_and_read() -> None:
        objects.attach(first, [place])
        await objects.write_new(location, b"12345")
        assert await objects.read(location) == b"12345"
        objects.attach(second, [place])
        assert await objects.read(location) == b"12345"

    asyncio.run(write_and_read())

    assert (first.counts["read"], second.counts["read"]) == (1, 1)
    assert objects.counts["read"] == 2
    assert objects.counts["write"] == 1
    assert objects.written_bytes == 5


def test_a_detached_place_is_served_no_more(tmp_path: Path) -> None:
    objects: ObjectStore = local_store(str(tmp_path / "a"))
    objects.attach(objects.local, [parse_location(f"file://{tmp_path}/b")])
    location = f"file://{tmp_path}/a/file"

    async def write_detach_read() -> None:
        await objects.write_new(location, b"1")
        objects.detach([parse_location(f"file://{tmp_path}/a")])
        with pytest.raises(Forbidden):
            await objects.read(location)
        with pytest.raises(Forbidden):
            await objects.local.read(parse_location(location), location)
        await objects.write_new(f"file://{tmp_path}/b/file", b"1")

    asyncio.run(write_detach_read())


def test_walking_finds_every_file_and_follows_no_link(tmp_path: Path) -> None:
    objects = local_store(str(tmp_path / "a"))
    for name in ("a/x", "a/b/y", "a/b/c/z", "outside/secret"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "a" / "b" / "file-link").symlink_to(tmp_path / "outside" / "secret")

    async def walk(folder: Path) -> list[tuple[str, int]]:
        return sorted([(str(place), file.size_bytes) async for place, file in objects.walk(f"file://{folder}")])

    assert asyncio.run(walk(tmp_path / "a")) == [
        (f"file://{tmp_path}/a/b/c/z", 7),
        (f"file://{tmp_path}/a/b/y", 5),
        (f"file://{tmp_path}/a/x", 3),
    ]
    assert asyncio.run(walk(tmp_path / "a" / "missing")) == []


def test_files_are_deleted_at_once_and_those_that_stay_are_named(tmp_path: Path) -> None:
    objects = local_store(str(tmp_path))
    locations = [f"file://{tmp_path}/f{number}" for number in range(100)]
    for location in locations[:99]:  # a missing one is no error
        Path(location.removeprefix("file://")).touch()
    too_long = f"file://{tmp_path}/{'x' * 300}"

    failed = asyncio.run(objects.delete_many([*locations, too_long]))

    assert failed == [too_long]
    assert list(tmp_path.iterdir()) == []
