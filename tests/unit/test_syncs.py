"""Files reach the disk together: whoever comes while a sync is running is covered by the next one."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nunatak.errors import InternalError, ServiceUnavailable
from nunatak.objectstore.linux import aio_fsync
from nunatak.objectstore.linux.aio_fsync import LoopFsync
from nunatak.objectstore.linux.shared_fsync import SharedFsync
from nunatak.objectstore.location import Location, parse_location
from nunatak.objectstore.plain_fsync import ThreadFsync
from nunatak.objectstore.store import ObjectStore
from tests.support.local_store import local_store
from tests.support.syncs import forbid_linux_calls, replace_syncs


def places(root: Path, count: int) -> list[Location]:
    return [parse_location(f"file://{root}/t{number}/file.json") for number in range(count)]


def test_those_of_one_moment_share_a_sync_and_those_who_come_later_the_next() -> None:
    groups: list[int] = []

    async def run() -> None:
        gate = asyncio.Event()

        async def sync(group: Sequence[Location]) -> None:
            groups.append(len(group))
            await gate.wait()

        syncs = SharedFsync(sync)
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

        syncs = SharedFsync(sync)
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

        syncs = SharedFsync(sync)
        tasks = [asyncio.create_task(syncs.wait_for(place)) for place in places(Path("/w"), 2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        gate.set()
        await asyncio.wait(tasks)
        assert (tasks[0].cancelled(), tasks[1].result()) == (True, None)

    asyncio.run(run())


WAYS = ["from the loop", "no AIO", "switched off"]


@pytest.fixture(params=WAYS)
def linux_syscalls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The switch in both positions, and a system that refuses: all of them keep the same promises."""
    if request.param == "switched off":
        forbid_linux_calls(monkeypatch)
        return False
    if request.param == "no AIO":
        monkeypatch.setattr(aio_fsync, "_AioContext", Mock(side_effect=OSError(errno.EPERM, "Operation not permitted")))
        monkeypatch.setattr(aio_fsync, "_thread_local", threading.local())
    elif aio_fsync._context_of_thread() is None:
        pytest.skip("this system has no AIO")
    return True


@pytest.fixture
def store(tmp_path: Path, linux_syscalls: bool) -> Iterator[ObjectStore]:
    opened = local_store(str(tmp_path), linux_syscalls=linux_syscalls)
    yield opened
    asyncio.run(opened.close())


def written_at_once(store: ObjectStore, root: Path, count: int) -> list[BaseException | None]:
    """Write so many files in folders of their own, all at the same time, as commits of one moment do."""

    async def write_all() -> list[BaseException | None]:
        writes = (store.write_new(f"file://{root}/t{number}/file.json", b"{}") for number in range(count))
        return await asyncio.gather(*writes, return_exceptions=True)

    return asyncio.run(write_all())


@pytest.mark.parametrize("count", [1, 3, 200])
def test_files_of_one_moment_and_their_folders_are_synced_by_one_call(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    synced: list[list[str]] = []
    kind = type(store.local._fsync)
    honest = kind.sync_all

    async def remembered(syncs: Any, files: Sequence[int]) -> None:
        synced.append([os.readlink(f"/proc/self/fd/{file}") for file in files])
        await honest(syncs, files)

    folders = [tmp_path / f"t{number}" for number in range(count)]
    for folder in folders:
        folder.mkdir()
    assert written_at_once(store, tmp_path / "before", 1) == [None]
    opened = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(kind, "sync_all", remembered)

    assert written_at_once(store, tmp_path, count) == [None] * count

    assert [sorted(call) for call in synced] == [
        sorted(str(path) for folder in folders for path in (folder, folder / "file.json"))
    ]
    assert all((folder / "file.json").read_bytes() == b"{}" for folder in folders)
    assert len(os.listdir("/proc/self/fd")) == opened


def test_without_linux_calls_each_file_is_synced_by_os_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linux_syscalls: bool
) -> None:
    synced: list[str] = []
    honest = os.fsync

    def remembered(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        honest(file)

    (tmp_path / "t0").mkdir()
    opened = local_store(str(tmp_path), linux_syscalls=linux_syscalls)
    has_aio = linux_syscalls and not isinstance(aio_fsync._AioContext, Mock)
    monkeypatch.setattr(os, "fsync", remembered)
    try:
        assert written_at_once(opened, tmp_path, 1) == [None]
        asyncio.run(opened.write_metadata(f"file://{tmp_path}/t0/large.json", b"x" * 500_000, len))
    finally:
        asyncio.run(opened.close())

    expected = [tmp_path / "t0", tmp_path / "t0", tmp_path / "t0" / "file.json", tmp_path / "t0" / "large.json"]
    assert sorted(synced) == ([] if has_aio else sorted(map(str, expected)))


def test_a_file_that_cannot_be_synced_is_refused_and_not_left(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(files: Sequence[int]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "t0").mkdir()
    replace_syncs(full, monkeypatch.setattr)

    (outcome,) = written_at_once(store, tmp_path, 1)

    assert isinstance(outcome, ServiceUnavailable)
    assert "No space left" in outcome.message
    assert list((tmp_path / "t0").iterdir()) == []


def test_one_file_that_cannot_be_synced_refuses_all_of_its_moment(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was one or the other is not known to those who wait: none of them may go on."""

    def broken(files: Sequence[int]) -> None:
        if any(os.readlink(f"/proc/self/fd/{file}").endswith("t1/file.json") for file in files):
            raise OSError(errno.EIO, "Input/output error")

    replace_syncs(broken, monkeypatch.setattr)

    assert [type(outcome) for outcome in written_at_once(store, tmp_path, 2)] == [InternalError, InternalError]
    assert list(tmp_path.rglob("*.json")) == []


def test_a_file_that_is_gone_is_not_called_synced(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pointer is about to move to it: whoever waits must not go on."""
    replace_syncs(lambda files: (tmp_path / "t0" / "file.json").unlink(), monkeypatch.setattr)

    assert [type(outcome) for outcome in written_at_once(store, tmp_path, 2)] == [InternalError, InternalError]


async def in_thread(work: Callable[[Sequence[int]], None], files: Sequence[int]) -> None:
    await asyncio.to_thread(work, files)


def test_what_no_disk_can_take_is_an_error_however_it_is_handed_over(tmp_path: Path, linux_syscalls: bool) -> None:
    """One that fails among many is found, and those who ask next are not told of it."""
    files = [os.open(tmp_path / str(number), os.O_CREAT | os.O_WRONLY) for number in range(150)]
    ends = os.pipe()

    async def run() -> None:
        syncs = LoopFsync(in_thread) if linux_syscalls else ThreadFsync(in_thread)
        for bad, number in ((ends[0], errno.EINVAL), (max(*files, *ends) + 20, errno.EBADF)):
            for place in (0, 75, 150):
                with pytest.raises(OSError, match=os.strerror(number)):
                    await syncs.sync_all([*files[:place], bad, *files[place:]])
            await syncs.sync_all(files)
        syncs.close()

    asyncio.run(run())
    for file in (*files, *ends):
        os.close(file)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / str(number), os.O_CREAT | os.O_WRONLY) for number in range(8)]
    yield opened
    for file in opened:
        os.close(file)


@pytest.fixture
def syncs() -> Iterator[LoopFsync]:
    made = LoopFsync(in_thread)
    yield made
    made.close()


def test_what_the_kernel_does_not_take_a_thread_syncs(
    files: list[int], syncs: LoopFsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads: list[int] = []
    honest = aio_fsync._AioContext.submit
    monkeypatch.setattr(aio_fsync._AioContext, "submit", lambda queue, files, eventfd: honest(queue, files[:5], None))
    monkeypatch.setattr(aio_fsync, "sync_all", in_threads.extend)

    asyncio.run(syncs.sync_all(files))

    assert in_threads == files[5:]


def test_who_asks_while_another_waits_gets_a_thread(
    files: list[int], syncs: LoopFsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads: list[int] = []
    monkeypatch.setattr(aio_fsync, "sync_all", in_threads.extend)

    async def run() -> None:
        await asyncio.gather(syncs.sync_all(files[:4]), syncs.sync_all(files[4:]))

    asyncio.run(run())

    assert in_threads == files[4:]


def test_what_somebody_left_unfinished_is_not_told_to_the_next(
    files: list[int], syncs: LoopFsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        asked = asyncio.create_task(syncs.sync_all([*files, 10_000]))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await syncs.sync_all(files)

    asyncio.run(run())


def test_a_disk_of_which_nobody_can_tell_is_an_error_and_the_next_gets_a_new_queue(
    files: list[int], syncs: LoopFsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Mock(side_effect=OSError(errno.EINVAL, "cannot tell"))

    async def run() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(aio_fsync._AioContext, "collect", broken)
            with pytest.raises(OSError, match="cannot tell"):
                await syncs.sync_all(files)
        await syncs.sync_all(files)

    asyncio.run(run())


def test_each_loop_has_an_eventfd_of_its_own_and_leaves_none_behind(files: list[int]) -> None:
    syncs = LoopFsync(in_thread)
    opened = len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        asyncio.run(syncs.sync_all(files))
    syncs.close()

    assert len(os.listdir("/proc/self/fd")) == opened
