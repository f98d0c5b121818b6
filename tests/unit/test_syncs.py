"""Files reach the disk together: whoever comes while a sync is on its way is covered by the next one."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from nunatak.errors import ServiceUnavailable
from nunatak.objectstore import calls, local
from nunatak.objectstore.location import Location, parse_location
from nunatak.objectstore.store import ObjectStore
from nunatak.objectstore.syncs import SharedSyncs


def places(root: Path, count: int) -> list[Location]:
    return [parse_location(f"file://{root}/t{number}/file.json") for number in range(count)]


def test_those_of_one_moment_share_a_sync_and_those_who_come_later_the_next() -> None:
    groups: list[int] = []

    async def run() -> None:
        gate = asyncio.Event()

        async def sync(group: Sequence[Location]) -> None:
            groups.append(len(group))
            await gate.wait()

        syncs = SharedSyncs(sync)
        first = [asyncio.create_task(syncs.wait_for(place)) for place in places(Path("/w"), 5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.create_task(syncs.wait_for(place)) for place in places(Path("/w"), 7)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in (*first, *later))
        gate.set()
        await asyncio.gather(*first, *later)

    asyncio.run(run())

    assert groups == [5, 7]


def test_a_sync_that_fails_is_told_to_everybody_it_was_for_and_to_nobody_else() -> None:
    outcomes = [OSError(errno.EIO, "broken"), None]

    async def run() -> None:
        async def sync(group: Sequence[Location]) -> None:
            await asyncio.sleep(0)
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome

        syncs = SharedSyncs(sync)
        tasks = [asyncio.create_task(syncs.wait_for(place)) for place in places(Path("/w"), 3)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [OSError] * 3
        await syncs.wait_for(places(Path("/w"), 1)[0])

    asyncio.run(run())

    assert outcomes == []


def test_one_who_goes_away_leaves_the_others_their_sync() -> None:
    async def run() -> None:
        gate = asyncio.Event()

        async def sync(group: Sequence[Location]) -> None:
            await gate.wait()

        syncs = SharedSyncs(sync)
        tasks = [asyncio.create_task(syncs.wait_for(place)) for place in places(Path("/w"), 2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        gate.set()
        await asyncio.wait(tasks)
        assert (tasks[0].cancelled(), tasks[1].result()) == (True, None)

    asyncio.run(run())


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore((parse_location(f"file://{tmp_path}"),))


def test_a_file_that_cannot_be_synced_is_refused_and_not_left(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "t").mkdir()
    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(ServiceUnavailable, match="No space left"):
        asyncio.run(store.write_synced(f"file://{tmp_path}/t/file.json", b"{}"))
    assert list((tmp_path / "t").iterdir()) == []
    store.close()


class Disk:
    """Counts what is synced and how, and can be slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        self.filesystems = 0
        self.now = 100.0
        self.seconds = 0.0
        monkeypatch.setattr(os, "fsync", lambda file: self.files.append(os.readlink(f"/proc/self/fd/{file}")))
        monkeypatch.setattr(calls, "sync_filesystem", self._sync)
        monkeypatch.setattr(local.time, "monotonic", lambda: self.now)

    def _sync(self, folder: int) -> None:
        self.filesystems += 1
        self.now += self.seconds


def written(root: Path, count: int) -> list[Location]:
    for place in places(root, count):
        Path("/", *place.segments).parent.mkdir(parents=True, exist_ok=True)
        Path("/", *place.segments).write_bytes(b"{}")
    return places(root, count)


def synced(store: ObjectStore, files: Sequence[Location]) -> None:
    """Wait for all of them at once, as commits of one moment do."""

    async def wait() -> None:
        await asyncio.gather(*(store._syncs.wait_for(place) for place in files))

    asyncio.run(wait())


def test_few_files_are_synced_one_by_one_and_many_by_one_call(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = written(tmp_path, local.FEW), written(tmp_path, 20)
    disk = Disk(monkeypatch)

    synced(store, few)
    folders = [f"{tmp_path}/t{number}" for number in range(local.FEW)]
    assert sorted(disk.files) == sorted([*folders, *(f"{folder}/file.json" for folder in folders)])
    synced(store, many)
    assert disk.filesystems == 1
    store.close()


@pytest.mark.parametrize("count", [1, 20], ids=["one by one", "together"])
def test_a_file_that_is_gone_is_not_called_synced(tmp_path: Path, store: ObjectStore, count: int) -> None:
    """A pointer is about to move to it: whoever waits must not go on."""
    files = written(tmp_path, count)
    (tmp_path / "t0" / "file.json").unlink()
    (tmp_path / "t0").rmdir()

    with pytest.raises(FileNotFoundError):
        synced(store, files)
    store.close()


def test_a_filesystem_busy_with_others_is_not_waited_for_again_at_once(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = written(tmp_path, 20)
    disk = Disk(monkeypatch)
    disk.seconds = local.SLOW_SECONDS * 2

    synced(store, many)
    synced(store, many)
    assert (disk.filesystems, len(disk.files)) == (1, 2 * 20)
    disk.now += local.ONE_BY_ONE_SECONDS
    synced(store, many)
    assert disk.filesystems == 2
    store.close()


def test_one_file_that_cannot_be_synced_refuses_all_of_its_moment(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was one or the other is not known to those who wait: none of them may go on."""
    few = written(tmp_path, 2)

    def broken(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("t1/file.json"):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)

    async def wait() -> list[BaseException | None]:
        return await asyncio.gather(*(store._syncs.wait_for(place) for place in few), return_exceptions=True)

    assert [type(outcome) for outcome in asyncio.run(wait())] == [OSError, OSError]
    store.close()
