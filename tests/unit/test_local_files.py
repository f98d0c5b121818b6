"""Local files: created once and never replaced, on disk on return, below the allowed places and through no link."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nunatak.errors import BadRequest, Forbidden, NotFound, ServiceUnavailable
from nunatak.objectstore.linux import syscalls
from nunatak.objectstore.local import LocalFiles
from nunatak.objectstore.location import Location, parse_location
from tests.support.syncs import forbid_linux_calls, replace_syncs


@pytest.fixture(params=["Linux calls", "openat2 refused", "switched off"])
def linux_syscalls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The switch in both positions, and a system that refuses: all of them keep the same promises."""
    if request.param == "openat2 refused":
        monkeypatch.setattr(syscalls, "is_available", lambda: False)
    elif request.param == "switched off":
        forbid_linux_calls(monkeypatch)
    elif not syscalls.is_available():
        pytest.skip("this kernel opens files step by step only")
    return request.param != "switched off"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allowed place."""
    place = tmp_path / "allowed"
    place.mkdir()
    return place


@pytest.fixture
def files(root: Path, linux_syscalls: bool) -> LocalFiles:
    return LocalFiles((parse_location(f"file://{root}"),), linux_syscalls=linux_syscalls)


def at(path: Path | str) -> Location:
    return parse_location(f"file://{path}")


@pytest.mark.parametrize("size", [0, 1, 100_000, 300_000], ids=str)
@pytest.mark.parametrize("there", [True, False], ids=["folder there", "folder made"])
def test_a_file_is_written_whole_and_read_back(files: LocalFiles, root: Path, size: int, there: bool) -> None:
    if there:
        (root / "a" / "b").mkdir(parents=True)
    data = os.urandom(size)
    place = root / "a" / "b" / "file.json"

    files.write_new(at(place), data)

    assert place.read_bytes() == data
    assert files.read(at(place), "spelled") == data
    assert files.exists(at(place))
    assert stat.S_IMODE(place.stat().st_mode) & 0o133 == 0  # nobody else may write it, nobody runs it


def test_a_file_that_is_there_is_never_touched(files: LocalFiles, root: Path) -> None:
    (root / "file").write_bytes(b"first")
    (root / "link").symlink_to(root / "file")

    for name in ("file", "link"):
        with pytest.raises(Exception, match=name):
            files.write_new(at(root / name), b"second")
    assert (root / "file").read_bytes() == b"first"


def test_file_and_folder_are_on_disk_on_return(files: LocalFiles, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def remembered(*descriptors: int) -> None:
        synced.extend(os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in descriptors)

    monkeypatch.setattr(os, "fsync", remembered)
    replace_syncs(lambda descriptors: remembered(*descriptors), monkeypatch.setattr)

    files.write_new(at(root / "new" / "deep" / "file"), b"data")

    deep = root / "new" / "deep"
    assert sorted(synced) == [str(root), str(root / "new"), str(deep), str(deep / "file")]

    synced.clear()
    files.write_new(at(deep / "second"), b"data")
    assert sorted(synced) == [str(deep), str(deep / "second")]


def test_whoever_comes_before_a_new_folder_is_on_disk_brings_it_there_too(files: LocalFiles, root: Path) -> None:
    first = files.create(at(root / "new" / "a" / "file"), b"data")
    second = files.create(at(root / "new" / "b" / "file"), b"data")
    third = files.create(at(root / "new" / "a" / "other"), b"data")
    try:
        for written in (first, second, third):
            synced = {os.readlink(f"/proc/self/fd/{each}") for each in written.descriptors()}
            assert {str(root), str(root / "new")} <= synced
        files.mark_synced(first)
        fourth = files.create(at(root / "new" / "a" / "last"), b"data")
        assert [os.readlink(f"/proc/self/fd/{each}") for each in fourth.descriptors()] == [
            str(root / "new" / "a" / "last"),
            str(root / "new" / "a"),
        ]
        fourth.close()
        fifth = files.create(at(root / "new" / "b" / "last"), b"data")  # `b` is still not there for sure
        assert str(root / "new") in {os.readlink(f"/proc/self/fd/{each}") for each in fifth.descriptors()}
        fifth.close()
    finally:
        for written in (first, second, third):
            written.close()


def test_a_folder_is_made_once_and_says_what_is_to_be_synced(files: LocalFiles, root: Path) -> None:
    made = files.make_folder(at(root / "t" / "data"))
    assert {os.readlink(f"/proc/self/fd/{each}") for each in made.descriptors()} >= {str(root), str(root / "t")}
    assert made.created_folders
    files.mark_synced(made)
    made.close()

    again = files.make_folder(at(root / "t" / "data"))
    assert not again.created_folders
    again.close()


def test_a_file_that_could_not_be_written_whole_is_taken_away(
    files: LocalFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptors: Sequence[int]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (root / "a").mkdir()
    replace_syncs(full, monkeypatch.setattr)

    with pytest.raises(ServiceUnavailable, match="No space left on device"):
        files.write_new(at(root / "a" / "file"), b"data")
    assert list((root / "a").iterdir()) == []


OUTSIDE = ["/etc/passwd", "{root}-2/file", "{root}", "{parent}/file"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_the_allowed_places_is_touched(files: LocalFiles, root: Path, path: str) -> None:
    place = at(path.format(root=root, parent=root.parent))

    for touch in (lambda: files.read(place, "x"), lambda: files.write_new(place, b""), lambda: files.delete(place)):
        with pytest.raises(Forbidden, match="is outside the folders that this server may access"):
            touch()


def test_no_link_leads_anywhere(files: LocalFiles, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")

    for place in (root / "folder" / "secret", root / "file"):
        with pytest.raises(NotFound, match="Failed to open input stream for file: as it was spelled"):
            files.read(at(place), "as it was spelled")
    for place in (root / "folder" / "new", root / "folder" / "deep" / "new"):
        with pytest.raises(BadRequest, match="passes through a symbolic link or a file"):
            files.write_new(at(place), b"data")
        with pytest.raises(BadRequest, match="passes through a symbolic link or a file"):
            files.make_folder(at(place))
    files.delete(at(root / "folder" / "secret"))
    files.delete(at(root / "file"))  # the link itself may go
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]


def test_the_allowed_place_itself_may_be_a_link(tmp_path: Path, linux_syscalls: bool) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files = LocalFiles((at(tmp_path / "link"),), linux_syscalls=linux_syscalls)

    files.write_new(at(tmp_path / "link" / "a" / "file"), b"data")

    assert (tmp_path / "real" / "a" / "file").read_bytes() == b"data"


def test_what_is_no_file_is_not_found(files: LocalFiles, root: Path) -> None:
    """A pipe would keep whoever opens it waiting for ever."""
    (root / "folder").mkdir()
    (root / "file").write_bytes(b"")
    os.mkfifo(root / "pipe")

    for name in ("missing", "missing/file", "folder", "pipe", "file/below", "x" * 300):
        with pytest.raises(NotFound, match="Failed to open input stream for file: spelled"):
            files.read(at(root / name), "spelled")
        assert files.exists(at(root / name)) is False


def test_a_name_that_is_too_long_is_refused_as_such(files: LocalFiles, root: Path) -> None:
    for place in (root / ("x" * 256) / "file", root / ("x" * 256)):
        with pytest.raises(BadRequest, match="is too long"):
            files.write_new(at(place), b"")


def test_deleting_what_is_gone_is_fine(files: LocalFiles, root: Path) -> None:
    (root / "file").write_bytes(b"")
    (root / "folder").mkdir()

    for name in ("file", "file", "missing/file", "folder", "folder/file"):
        files.delete(at(root / name))

    assert [each.name for each in root.iterdir()] == ["folder"]


def test_only_empty_folders_below_an_allowed_place_are_removed(files: LocalFiles, root: Path) -> None:
    for path in ("t/metadata", "t/data/part=1", "t/kept"):
        (root / path).mkdir(parents=True)
    (root / "t" / "kept" / "file").write_bytes(b"")

    files.remove_empty_folders(at(root / "t"))
    files.remove_empty_folders(at(root))

    assert sorted(str(each.relative_to(root)) for each in root.rglob("*")) == ["t", "t/kept", "t/kept/file"]


def test_no_empty_folder_is_removed_behind_a_link(files: LocalFiles, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "t" / "empty").mkdir(parents=True)
    (root / "inside").mkdir()
    (root / "inside" / "link").symlink_to(outside, target_is_directory=True)
    (root / "up").symlink_to(outside, target_is_directory=True)

    files.remove_empty_folders(at(root / "inside"))  # a link below it
    files.remove_empty_folders(at(root / "up" / "t"))  # a link above it
    files.remove_empty_folders(at(root / "up"))  # a link itself

    assert (outside / "t" / "empty").is_dir()
    assert (root / "inside" / "link").is_symlink()


def test_folders_nested_without_end_are_left_below_a_depth(files: LocalFiles, root: Path) -> None:
    deepest = root / "t" / Path(*["d"] * 100)
    deepest.mkdir(parents=True)

    files.remove_empty_folders(at(root / "t"))

    assert deepest.is_dir()


def test_a_path_is_told_without_its_links(files: LocalFiles, root: Path, tmp_path: Path) -> None:
    (root / "t").mkdir()
    (root / "link").symlink_to(root / "t", target_is_directory=True)
    (tmp_path / "alias").symlink_to(root, target_is_directory=True)

    assert files.resolve_links(at(root / "link" / "x")) == at(root / "t" / "x")
    assert files.resolve_links(at(tmp_path / "alias" / "t" / "x")) == at(root / "t" / "x")
    assert files.resolve_links(at("/none/of/these")) == at("/none/of/these")
    assert files.resolve_links(Location("file", "", ("a\0b",))) == Location("file", "", ("a\0b",))


def test_the_narrowest_allowed_place_counts(root: Path, tmp_path: Path, linux_syscalls: bool) -> None:
    """With a place inside another, a link above the inner one is part of its own name and may be followed."""
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "real")
    files = LocalFiles((at(root), at(root / "link" / "inner")), linux_syscalls=linux_syscalls)

    files.write_new(at(root / "link" / "inner" / "file"), b"data")
    with pytest.raises(BadRequest):
        files.write_new(at(root / "link" / "file"), b"data")

    assert (tmp_path / "real" / "inner" / "file").read_bytes() == b"data"


def test_every_descriptor_is_closed_again(files: LocalFiles, root: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    def attempt(work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except (NotFound, BadRequest, Forbidden):
            return

    (root / "link").symlink_to("/")
    before = opened()
    for number in range(5):
        attempt(files.write_new, at(root / "a" / f"file{number}"), b"data")
        attempt(files.write_new, at(root / "link" / "file"), b"data")
        attempt(files.read, at(root / "a" / f"file{number}"), "x")
        attempt(files.read, at(root / "missing" / "x"), "x")
        attempt(files.read, at(root / "link" / "etc" / "passwd"), "x")
        attempt(files.delete, at(root / "a" / f"file{number}"))
        attempt(lambda place: files.make_folder(place).close(), at(root / "b" / "c"))

    assert opened() == before
