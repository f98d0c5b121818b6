"""A disk whose power can be cut: it keeps what was synced, and of the rest what chance leaves of it.

The database's files are written through a VFS for SQLite that keeps a ledger of writes and syncs. For all other files
it is enough to know what was synced when: `os.fsync` and those of objectstore/linux are the doors, and all are watched
here. Nothing is ever really synced, so that thousands of cuts take minutes.
"""

import os
import random
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest

from tests.support.syncs import replace_syncs

SECTOR_BYTES = 512  # what a disk writes whole or not at all
SYSTEM_VFS = "unix"
CHECKPOINT_PAGES = 40  # often, so that cuts fall into checkpoints too

Mood = Literal["nothing", "beginning", "anything"]
MOODS: tuple[Mood, ...] = ("nothing", "beginning", "anything")


class PowerCut(apsw.IOError):
    """The disk does not answer any more."""


@dataclass
class _Written:
    """A file of the database: what was synced, and what was done to it since. None is a file that is not there."""

    synced: bytes | None
    since: list[tuple[int, bytes] | int] = field(default_factory=list)  # writes; a number is a new length

    def sync(self) -> None:
        content = bytearray(self.synced or b"")
        for change in self.since:
            _apply(content, change)
        self.synced = bytes(content)
        self.since.clear()

    def after_cut(self, chance: random.Random, mood: Mood) -> bytes | None:
        """What is found when the power is back: some of what was not synced, torn and in no order."""
        if self.synced is None and (mood == "nothing" or chance.random() < 0.5):
            return None  # its entry in the folder was not synced either
        content = bytearray(self.synced or b"")
        changes = list(self.since)
        if mood == "nothing":
            changes = []
        elif mood == "beginning":
            changes = changes[: chance.randint(0, len(changes))]
        for number, change in enumerate(changes):
            last_of_beginning = mood == "beginning" and number == len(changes) - 1
            if mood == "anything" or last_of_beginning:
                for part in _left_of(change, chance):
                    _apply(content, part)
            else:
                _apply(content, change)
        return bytes(content)


def _left_of(change: tuple[int, bytes] | int, chance: random.Random) -> Iterator[tuple[int, bytes] | int]:
    fate = chance.random()
    if fate < 0.35:
        return
    if fate < 0.7 or isinstance(change, int):
        yield change
        return
    offset, data = change
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        if chance.random() < 0.5:
            yield offset + start, data[start:end]
        start = end


def _apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    offset, data = change
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@dataclass
class Power:
    """The ledger of everything below `folder`, and the switch: `cut_at` is the number of the event that ends it all."""

    folder: Path
    chance: random.Random
    cut_at: int
    events: int = 0
    is_off: bool = False
    found: dict[str, bytes] = field(default_factory=dict)  # every file there is after the cut
    folders: set[str] = field(default_factory=set)
    database: dict[str, _Written] = field(default_factory=dict)
    _contents: dict[int, bytes] = field(default_factory=dict)  # by inode, as they were synced; a rename keeps it
    _entries: dict[str, dict[str, int]] = field(default_factory=dict)  # names and inodes of each folder, as synced
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """What is there at the beginning is on the disk."""
        self._note_everything()

    def event(self) -> None:
        """Something is about to be written or synced. From the cut on, nothing is."""
        with self._lock:
            self.events += 1
            if self.events == self.cut_at:
                self.cut()
            if self.is_off:
                raise PowerCut("the power is off")

    def cut(self) -> None:
        """Decide what will be found, and switch off."""
        with self._lock:
            if self.is_off:
                return
            mood = self.chance.choice(MOODS)
            for path, written in self.database.items():
                content = written.after_cut(self.chance, mood)
                if content is not None:
                    self.found[path] = content
            self._find_files(str(self.folder), is_entered=True, mood=mood)
            self.is_off = True

    def restore(self) -> None:
        """Put on the real disk what is found there when the power is back."""
        shutil.rmtree(self.folder)
        for folder in sorted({str(self.folder), *self.folders}):
            os.makedirs(folder, exist_ok=True)
        for path, content in self.found.items():
            Path(path).write_bytes(content)

    # The database's files

    def opened(self, path: str) -> _Written:
        with self._lock:
            if path not in self.database:
                self.database[path] = _Written(Path(path).read_bytes() if os.path.exists(path) else None)
            return self.database[path]

    def deleted(self, path: str) -> None:
        with self._lock:
            self.database.pop(path, None)

    # All other files

    def _find_files(self, folder: str, *, is_entered: bool, mood: Mood) -> None:
        """Walk what is there now and what was synced; whatever differs is left to chance."""
        synced = self._entries.get(folder, {}) if is_entered else {}
        there = _entries_of(folder)
        for name in sorted(synced | there):
            path = f"{folder}/{name}"
            if self._is_databases(path):
                continue
            is_synced = name in synced
            inode = synced.get(name) if mood == "nothing" else self.chance.choice([synced.get(name), there.get(name)])
            if inode is None:
                continue
            if os.path.isdir(path) or path in self._entries:
                self.folders.add(path)
                self._find_files(path, is_entered=is_synced, mood=mood)
            else:
                self.found[path] = self._content_of(path, inode, mood)

    def _content_of(self, path: str, inode: int, mood: Mood) -> bytes:
        """What was synced; files are written once, so that what differs from it is another file of that number."""
        synced = self._contents.get(inode)
        try:
            content = Path(path).read_bytes()
            is_same = os.stat(path).st_ino == inode
        except FileNotFoundError:
            return synced or b""
        if synced is not None and (synced == content or not is_same):
            return synced
        fate = self.chance.choice(["empty", "cut short", "zeros", "whole"]) if mood != "nothing" else "empty"
        half = content[: self.chance.randint(0, len(content))]
        return {"empty": b"", "cut short": half, "zeros": bytes(len(content)), "whole": content}[fate]

    def _is_databases(self, path: str) -> bool:
        return path.endswith((".db", ".db-wal", ".db-shm", ".db-journal"))

    def synced(self, descriptor: int) -> None:
        """`os.fsync`: a file's content, or a folder's entries, are on the disk."""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not path.startswith(f"{self.folder}"):
            return
        try:
            self.event()
        except PowerCut as error:
            raise OSError(5, "the power is off") from error
        with self._lock:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                self._entries[path] = _entries_of(path)
            else:
                self._contents[os.fstat(descriptor).st_ino] = Path(path).read_bytes()

    def _note_everything(self) -> None:
        for folder, _, files in os.walk(self.folder):
            self._entries[folder] = _entries_of(folder)
            for name in files:
                path = f"{folder}/{name}"
                if not self._is_databases(path):
                    self._contents[self._entries[folder][name]] = Path(path).read_bytes()


def _entries_of(folder: str) -> dict[str, int]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() for entry in entries}
    except FileNotFoundError:
        return {}


class _File(apsw.VFSFile):
    def __init__(self, power: Power, name: Any, flags: list[int]) -> None:
        super().__init__(SYSTEM_VFS, name, flags)
        self._power = power
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._written = power.opened(path) if path else _Written(b"")

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's names
        self._power.event()
        self._written.since.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._power.event()
        self._written.since.append(size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._power.event()
        self._written.sync()


class _Vfs(apsw.VFS):
    def __init__(self, power: Power) -> None:
        self._power = power
        super().__init__("power", SYSTEM_VFS, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802
        return _File(self._power, name, flags)

    def xDelete(self, name: str, sync_folder: bool) -> None:  # noqa: N802
        self._power.event()
        super().xDelete(name, sync_folder)
        self._power.deleted(name)


@contextmanager
def on_power(power: Power) -> Iterator[None]:
    """Everything below the folder goes through the ledger."""
    vfs = _Vfs(power)
    honest = os.fsync

    def sync_file(descriptor: int) -> None:
        power.synced(descriptor)

    def sync_all(descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            power.synced(descriptor)

    def checkpoint_often(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(CHECKPOINT_PAGES)

    apsw.connection_hooks.append(checkpoint_often)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync_file)
        replace_syncs(sync_all, patch.setattr)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(checkpoint_often)
            vfs.unregister()
    assert os.fsync is honest
