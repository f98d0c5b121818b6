"""One promise of every storage: the local one, two makes of S3, Azure's blob service and Google Cloud Storage."""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from nunatak.errors import BadRequest, Forbidden, InternalError, NotFound
from nunatak.objectstore import cloud_storage
from nunatak.objectstore.cloud_storage import CloudStorage
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.location import Location, parse_location
from nunatak.objectstore.profile import S3Secret
from nunatak.objectstore.storage import AccessLevel, CredentialScope, SigningRequest, Storage
from nunatak.objectstore.store import ObjectStore
from tests.support.object_stores import S3Emulator

T = TypeVar("T")
STORES = ["local", "ministack", "seaweedfs", "azure", "gcs"]
SPELLED = "as the client wrote it"
# Names that some stores decode, or join differently; every name must lead to its own object and to no other.
HARD_NAMES = ["a b+c", "ä&=", "%41", "a*b", "a'b", "a(b)", "a;b,c", "~", "x.", "é", "a$b{c}"]


class Home:
    """An empty folder of a store, and how to open it as often as a test wants to."""

    def __init__(self, location: str, open_storage: Callable[[Location], Storage]) -> None:
        self.location = location
        self.place = parse_location(location)
        self._open = open_storage

    def file(self, path: str) -> Location:
        return parse_location(f"{self.location}/{path}")

    def run(self, work: Callable[[Storage], Awaitable[T]]) -> T:
        """Opens the storage, works with it and closes it, each time in an event loop of its own."""

        async def opened() -> T:
            storage = self._open(self.place)
            try:
                return await work(storage)
            finally:
                await storage.close()

        return asyncio.run(opened())


@pytest.fixture(params=STORES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "local":
        (tmp_path / "home").mkdir()
        return Home(f"file://{tmp_path}/home", open_local)
    store = request.getfixturevalue(f"{request.param}_store")
    location = store.location(store.new_bucket(), f"folder/{uuid.uuid4()}")
    return Home(location, lambda place: CloudStorage(store.profile(), store.secret(), place))


def open_local(place: Location) -> Storage:
    storage = LocalStorage()
    storage.allow(place)
    return storage


@pytest.mark.parametrize("size", [0, 1, 100_000, 6_000_000], ids=str)
def test_what_was_written_is_read_back(home: Home, size: int) -> None:
    data, place = os.urandom(size), home.file("a/b/file.json")

    async def write_and_read(storage: Storage) -> bytes:
        await storage.write_new(place, memoryview(data))
        assert await storage.exists(place)
        return await storage.read(place, SPELLED)

    assert home.run(write_and_read) == data


def test_a_file_is_never_overwritten(home: Home) -> None:
    place = home.file("file.json")

    async def write_twice(storage: Storage) -> bytes:
        await storage.write_new(place, b"first")
        with pytest.raises(InternalError, match="Cannot write"):
            await storage.write_new(place, b"second")
        return await storage.read(place, SPELLED)

    assert home.run(write_twice) == b"first"


def test_of_many_writers_of_one_name_one_wins(home: Home) -> None:
    place = home.file("file.json")

    async def race(storage: Storage) -> tuple[list[int], bytes]:
        writes = [storage.write_new(place, str(number).encode()) for number in range(20)]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        return [number for number, each in enumerate(outcomes) if each is None], await storage.read(place, SPELLED)

    winners, content = home.run(race)
    assert [str(number).encode() for number in winners] == [content]


def test_a_missing_file_is_not_found_by_the_name_the_client_wrote(home: Home) -> None:
    async def read_and_look(storage: Storage) -> bool:
        for path in ("missing", "a/missing", "b"):
            with pytest.raises(NotFound, match=f"Failed to open input stream for file: {SPELLED}"):
                await storage.read(home.file(path), SPELLED)
        await storage.write_new(home.file("b/c"), b"")
        return await storage.exists(home.file("b"))  # a folder is no file

    assert home.run(read_and_look) is False


def test_a_deleted_file_is_gone_and_a_missing_one_is_no_error(home: Home) -> None:
    place = home.file("a/file.json")

    async def delete_twice(storage: Storage) -> bool:
        await storage.write_new(place, b"x")
        await storage.delete(place)
        await storage.delete(place)
        await storage.delete(home.file("never/was"))
        return await storage.exists(place)

    assert home.run(delete_twice) is False


def test_many_files_are_deleted_also_if_some_are_missing(home: Home) -> None:
    places = [home.file(f"a/f{number}") for number in range(40)]

    async def delete_all(storage: Storage) -> tuple[list[Location], list[str]]:
        await asyncio.gather(*(storage.write_new(place, b"x") for place in places[::2]))
        await storage.write_new(home.file("a/kept"), b"x")
        failed = await storage.delete_many(places)
        return failed, [file.name for file in await storage.list_files(home.file("a"), "")]

    assert home.run(delete_all) == ([], ["kept"])
    assert home.run(lambda storage: storage.delete_many([])) == []


def test_a_listing_holds_the_files_of_the_folder_and_of_no_other(home: Home) -> None:
    async def write_and_list(storage: Storage) -> list[tuple[str, int]]:
        for path in ("t/a.json", "t/b.json", "t/c.txt", "t/inner/d.json", "t2/e.json", "te/f.json"):
            await storage.write_new(home.file(path), path.encode())
        found = await storage.list_files(home.file("t"), ".json")
        assert await storage.list_files(home.file("missing"), "") == []
        now_ms = 1000 * (await storage.list_files(home.file("t2"), ""))[0].modified_ms
        assert all(abs(file.modified_ms * 1000 - now_ms) < 600_000_000 for file in found)
        return sorted((file.name, file.size_bytes) for file in found)

    assert home.run(write_and_list) == [("a.json", 8), ("b.json", 8)]


def test_walking_finds_every_file_below_a_folder(home: Home) -> None:
    inside = ["t/a", "t/b/c", "t/b/d/e"]

    async def write_and_walk(storage: Storage) -> list[Location]:
        for path in [*inside, "t2/f"]:
            await storage.write_new(home.file(path), b"x")
        assert [each async for each in storage.walk(home.file("missing"))] == []
        return sorted([place async for place, _ in storage.walk(home.file("t"))], key=str)

    assert home.run(write_and_walk) == [home.file(path) for path in inside]


def test_a_listing_of_more_than_one_page_is_whole(home: Home) -> None:
    names = {f"f{number:04}" for number in range(1100)}  # S3 lists a thousand at a time

    async def write_and_list(storage: Storage) -> tuple[set[str], set[str]]:
        some = sorted(names)
        for start in range(0, len(some), 100):
            await asyncio.gather(*(storage.write_new(home.file(f"t/{name}"), b"") for name in some[start:][:100]))
        listed = await storage.list_files(home.file("t"), "")
        walked = [file async for _, file in storage.walk(home.file("t"))]
        return {file.name for file in listed}, {file.name for file in walked}

    assert home.run(write_and_list) == (names, names)


def test_hard_names_lead_to_their_own_files(home: Home) -> None:
    async def write_and_read(storage: Storage) -> None:
        for name in HARD_NAMES:
            await storage.write_new(home.file(f"{name}/{name}"), name.encode())
        for name in HARD_NAMES:
            assert await storage.read(home.file(f"{name}/{name}"), SPELLED) == name.encode()
            assert [file.name for file in await storage.list_files(home.file(name), "")] == [name]
        assert await storage.delete_many([home.file(f"{name}/{name}") for name in HARD_NAMES]) == []
        assert [each async for each in storage.walk(home.place)] == []

    home.run(write_and_read)


def test_a_renamed_file_frees_its_name(home: Home) -> None:
    async def rename(storage: Storage) -> tuple[bool, bytes]:
        await storage.write_new(home.file("a/old"), b"content")
        await storage.rename_file(home.file("a/old"), "new")
        return await storage.exists(home.file("a/old")), await storage.read(home.file("a/new"), SPELLED)

    assert home.run(rename) == (False, b"content")


def test_a_storage_without_vendor_and_signer_gives_nothing_away(home: Home) -> None:
    scope = CredentialScope("alice", "uuid", (home.file("t"),), AccessLevel.READ)

    async def ask(storage: Storage) -> dict[str, str]:
        with pytest.raises(Forbidden):
            await storage.vend(scope)
        with pytest.raises(BadRequest if isinstance(storage, LocalStorage) else Forbidden):
            storage.sign(SigningRequest("GET", "https://example.test/", "us-east-1", {}), scope)
        return storage.client_config()

    told = " ".join(home.run(ask).values())
    assert "secret" not in told


def test_a_file_beyond_the_limit_is_not_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nunatak.objectstore.local.MAX_READ_BYTES", 1000)
    monkeypatch.setattr(cloud_storage, "MAX_READ_BYTES", 1000)

    async def read(storage: Storage) -> None:
        await storage.write_new(home.file("fits"), bytes(1000))
        await storage.write_new(home.file("large"), bytes(1001))
        assert len(await storage.read(home.file("fits"), SPELLED)) == 1000
        with pytest.raises(InternalError, match="larger than"):
            await storage.read(home.file("large"), SPELLED)

    home.run(read)


def test_a_rotated_secret_takes_over_while_requests_run(ministack_store: S3Emulator) -> None:
    place = parse_location(ministack_store.location(ministack_store.new_bucket(), "home"))
    files = [f"{place}/f{number}" for number in range(60)]

    async def write_while_rotating() -> int:
        objects = ObjectStore(LocalStorage())
        objects.serve(ministack_store.profile(), ministack_store.secret(), [place])
        first = objects.storage_of(place)
        writes = [asyncio.ensure_future(objects.write_new(location, b"x")) for location in files[:30]]
        await asyncio.sleep(0)
        objects.serve(ministack_store.profile(), ministack_store.secret(), [place])
        assert objects.storage_of(place) is not first
        await asyncio.gather(*writes, *(objects.write_new(location, b"x") for location in files[30:]))
        found = len(await objects.list_files(str(place), ""))
        await objects.close()
        return found

    assert asyncio.run(write_while_rotating()) == 60


def test_a_wrong_secret_is_told_plainly_and_without_the_secret(
    s3_store: S3Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    place = parse_location(s3_store.location(s3_store.new_bucket(), "home"))

    async def try_all() -> list[str]:
        storage = CloudStorage(s3_store.profile(), S3Secret("AKIAWRONGWRONG00", "wrong-secret-key"), place)
        told = []
        for call in (storage.read(place, SPELLED), storage.write_new(place, b"x"), storage.list_files(place, "")):
            with pytest.raises(Forbidden, match="does not allow this server to") as refused:
                await call
            told.append(refused.value.message)
        await storage.close()
        return told

    told = " ".join([*asyncio.run(try_all()), caplog.text])
    assert "wrong-secret-key" not in told
    assert "<Error>" not in told
    assert "http://" not in told
    assert "status 403" in caplog.text
