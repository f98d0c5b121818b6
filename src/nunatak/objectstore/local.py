"""Local files: create-only, durable writes, reads and deletes; symbolic links below an allowed place are refused."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from nunatak.errors import BadRequest, CatalogError, Forbidden, InternalError, ServiceUnavailable
from nunatak.objectstore.linux import aio_fsync, syscalls
from nunatak.objectstore.listing import FoundFile
from nunatak.objectstore.location import Location, missing_file, path_of
from nunatak.objectstore.plain_fsync import sync_each
from nunatak.objectstore.storage import MAX_READ_BYTES

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_WITHOUT_LINKS = syscalls.OpenAt2(os.O_RDONLY | os.O_DIRECTORY)
_FOLDER_BENEATH = syscalls.OpenAt2(os.O_RDONLY | os.O_DIRECTORY, beneath=True)
NEW_FILE = syscalls.OpenAt2(os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o644, beneath=True)
_NOT_A_FILE = (errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)  # a link, a name too long for a file, a socket
MAX_WRITE_WITH_GIL_BYTES = 256 * 1024  # copying more with the GIL held would delay other requests
MAX_FOLDER_DEPTH = 64  # levels below a table's folder to descend into; each holds a descriptor open


class UnsyncedFiles:
    """Open descriptors that need an fsync: a new file, if any, and the folders that got new entries.

    `created_folders` are the new folders among these entries; `close` closes one descriptor.
    """

    __slots__ = ("_close", "created_folders", "file", "folders")

    def __init__(
        self,
        file: int | None,
        folders: Sequence[int],
        created_folders: Sequence[tuple[str, ...]] = (),
        *,
        close: Callable[[int], None] = os.close,
    ) -> None:
        self.file = file
        self.folders = folders
        self.created_folders = created_folders
        self._close = close

    def descriptors(self) -> Iterator[int]:
        if self.file is not None:
            yield self.file
        yield from self.folders

    def exists(self) -> bool:
        """Whether the file was not deleted meanwhile; checked before a pointer moves to it."""
        return self.file is None or os.fstat(self.file).st_nlink > 0

    def close(self) -> None:
        for descriptor in self.descriptors():
            self._close(descriptor)


class LocalFiles:
    """Reads and writes below the allowed places; the path of a place may contain links, nothing below it may.

    `linux_syscalls` is the setting of this name; without it no function of linux/ is called.
    """

    def __init__(self, allowed: tuple[Location, ...], *, linux_syscalls: bool = True) -> None:
        self._linux_syscalls = linux_syscalls
        self._uses_openat2 = linux_syscalls and syscalls.is_available()
        self._roots: tuple[Location, ...] = ()
        for place in allowed:
            self.allow(place)
        self.counts = {"read": 0, "write": 0, "delete": 0, "stat": 0, "list": 0}
        self.written_bytes = 0
        self._unsynced: set[tuple[str, ...]] = set()  # new folders that may not be on disk yet

    def allow(self, place: Location) -> None:
        """Allows access to files below this place; the innermost place that contains a file is its root."""
        if place not in self._roots:
            self._roots = tuple(sorted((*self._roots, place), key=lambda each: -len(each.segments)))

    def forbid(self, place: Location) -> None:
        self._roots = tuple(each for each in self._roots if each != place)

    def write_new(self, location: Location, data: bytes | memoryview) -> None:
        """Creates the file, never overwriting one; the file and its directory entry are durable on return."""
        written = self.create(location, data)
        try:
            self._sync_all(list(written.descriptors()))
            self.mark_synced(written)
        except OSError as error:
            self.delete(location)  # no pointer can lead to it yet
            raise storage_error("write", location, error) from error
        finally:
            written.close()

    def create(self, location: Location, data: bytes | memoryview) -> "UnsyncedFiles":
        """Creates the file like `write_new`, but the caller must fsync and close the result."""
        self.counts["write"] += 1
        self.written_bytes += len(data)
        if self._uses_openat2 and len(data) <= MAX_WRITE_WITH_GIL_BYTES and not self._is_new(location.segments):
            try:
                return self._create_with_gil(location, data)
            except FileNotFoundError:
                pass  # the folder does not exist yet: the slow path below creates it
            except OSError as error:
                raise storage_error("write", location, error) from error
        opened, name = self._open_or_create_parent(location), location.segments[-1]
        folder = opened.folders[-1]
        try:
            # O_EXCL: a metadata file never changes after it was written; readers cache it by its name.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.file = os.open(name, flags, 0o644, dir_fd=folder)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(opened.file, view) :]
            except OSError:
                os.unlink(name, dir_fd=folder)  # no pointer can lead to it yet
                raise
        except OSError as error:
            opened.close()
            raise storage_error("write", location, error) from error
        return opened

    def _sync_all(self, files: Sequence[int]) -> None:
        if self._linux_syscalls:
            aio_fsync.sync_all(files)
        else:
            sync_each(files)

    def mark_synced(self, written: UnsyncedFiles) -> None:
        """Records that the new folders of `written` are on disk; call it after the fsync."""
        self._unsynced.difference_update(written.created_folders)

    def drop_pages(self, file: int) -> None:
        """Drops a synced file from the page cache, so that the next write reuses its pages.

        Allocating fresh pages costs several times as much as copying into them, above all on virtual machines.
        """
        if self._linux_syscalls:
            syscalls.drop_pages(file)
        elif hasattr(os, "posix_fadvise"):  # macOS has none
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def _is_new(self, segments: tuple[str, ...]) -> bool:
        """Whether a folder of the path may not be on disk yet; the writer of the file must then fsync that, too."""
        return bool(self._unsynced) and any(segments[:depth] in self._unsynced for depth in range(len(segments)))

    def _create_with_gil(self, location: Location, data: bytes | memoryview) -> "UnsyncedFiles":
        """Creates a small file in an existing folder without releasing the GIL: none of its system calls blocks."""
        folder, name = _open_folder_with_gil(self._root_of(location), location), location.segments[-1]
        try:
            file = NEW_FILE.open(name, folder)
            try:
                syscalls.write_all(file, data)
            except OSError:
                syscalls.close(file)
                os.unlink(name, dir_fd=folder)
                raise
        except OSError:
            syscalls.close(folder)
            raise
        return UnsyncedFiles(file, (folder,), close=syscalls.close)

    def read(self, location: Location, spelled: str) -> bytes:
        """Returns the bytes; raises NotFound with the reference's message and the location as the client wrote it."""
        self.counts["read"] += 1
        try:
            with self._folder(location) as (folder, name):
                # Non-blocking: opening a named pipe in the warehouse would block the thread for ever.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                file = os.open(name, flags, dir_fd=folder)
                with os.fdopen(file, "rb") as opened:
                    if not stat.S_ISREG(os.fstat(file).st_mode):
                        raise missing_file(spelled)
                    data = opened.read(MAX_READ_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise missing_file(spelled) from error
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise missing_file(spelled) from error
            raise storage_error("read", location, error) from error
        if len(data) > MAX_READ_BYTES:
            raise InternalError(f"The file {spelled} is larger than {MAX_READ_BYTES} bytes")
        return data

    def exists(self, location: Location) -> bool:
        self.counts["stat"] += 1
        try:
            return stat.S_ISREG(os.stat(path_of(location)).st_mode)
        except OSError:
            return False

    def delete(self, location: Location) -> None:
        """Deletes the file, if it exists, and the .crc file that Hadoop writes beside it."""
        self.counts["delete"] += 1
        try:
            with self._folder(location) as (folder, name):
                if not name.endswith(".metadata.json"):  # we write these ourselves, without a .crc
                    with suppress(FileNotFoundError):
                        os.unlink(f".{name}.crc", dir_fd=folder)
                os.unlink(name, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        except OSError as error:
            if error.errno == errno.EISDIR:
                return
            raise storage_error("delete", location, error) from error

    def make_folder(self, location: Location) -> UnsyncedFiles:
        """Creates the folder, for clients that write into a table's folder without creating it.

        The caller must fsync what was created, if anything, and close the result.
        """
        return self._open_or_create_parent(Location(location.scheme, location.authority, (*location.segments, ".")))

    def claim_folder(self, location: Location) -> bool:
        """Creates a folder and its parents; returns False if the folder exists, even if it is empty.

        It becomes durable with the first file that is written into it.
        """
        was_unsynced = location.segments in self._unsynced
        opened = self._open_or_create_parent(location)
        try:
            self._unsynced.add(location.segments)
            os.mkdir(location.segments[-1], 0o755, dir_fd=opened.folders[-1])
        except OSError as error:
            if not was_unsynced:
                self._unsynced.discard(location.segments)
            if isinstance(error, FileExistsError):
                return False
            raise storage_error("write", location, error) from error
        finally:
            opened.close()
        return True

    def _open_or_create_parent(self, location: Location) -> UnsyncedFiles:
        """Opens the folder of a file, the last of `folders`; creates it and its parents if they are missing."""
        root = self._root_of(location)
        folders, made = [_open_root(root, location, create=True)], []
        try:
            for depth in range(len(root.segments) + 1, len(location.segments)):
                path = location.segments[:depth]
                inner = _open_or_create_subfolder(folders[-1], path, self._unsynced)
                if path in self._unsynced:
                    made.append(path)  # the parent stays open: it needs an fsync for this entry
                else:
                    os.close(folders.pop())
                folders.append(inner)
        except OSError as error:
            for folder in folders:
                os.close(folder)
            raise storage_error("write", location, error) from error
        return UnsyncedFiles(None, folders, made)

    def remove_empty_folders(self, location: Location) -> None:
        """Removes the folder and its subfolders that hold no file; never an allowed place or a folder above one.

        Each step opens relative to its parent's descriptor and refuses links, so nothing outside is reached, even if a
        folder is replaced by a link meanwhile.
        """
        if not any(place.contains(location) and place != location for place in self._roots):
            return
        try:
            with self._folder(location) as (folder, name):
                _remove_empty(name, folder, MAX_FOLDER_DEPTH)
        except OSError:
            return  # missing, or behind a link: not removed

    def resolve_links(self, location: Location) -> Location:
        """Resolves symbolic links; returns the location below the allowed place that contains it, if one does."""
        try:
            real = os.path.realpath(path_of(location))
        except ValueError:  # a NUL character
            return location
        for root in self._roots:
            real_root = os.path.realpath(path_of(root))
            if real == real_root or real.startswith(f"{real_root}/"):
                below = tuple(each for each in real[len(real_root) :].split("/") if each)
                return Location(location.scheme, location.authority, (*root.segments, *below))
        return Location(location.scheme, location.authority, tuple(each for each in real.split("/") if each))

    def list_files(self, folder: Location, ending: str) -> list[FoundFile]:
        """Returns the files directly in a folder whose names end with `ending`; none if it is missing."""
        self.counts["list"] += 1
        found = []
        inner = Location(folder.scheme, folder.authority, (*folder.segments, "."))
        try:
            with self._folder(inner) as (opened, _), os.scandir(opened) as entries:
                for entry in entries:
                    if entry.name.endswith(ending) and entry.is_file(follow_symlinks=False):
                        # Not followed: a link could show the size and age of a file outside the allowed place.
                        status = entry.stat(follow_symlinks=False)
                        found.append(FoundFile(entry.name, status.st_size, status.st_mtime_ns // 1_000_000))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                return []
            raise storage_error("list", inner, error) from error
        return found

    def walk(self, folder: Location) -> list[tuple[Location, FoundFile]]:
        """Returns every file below a folder; follows no link."""
        self.counts["list"] += 1
        found: list[tuple[Location, FoundFile]] = []
        inner = Location(folder.scheme, folder.authority, (*folder.segments, "."))
        try:
            with self._folder(inner) as (opened, _):
                _walk(opened, folder, MAX_FOLDER_DEPTH, found)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                return []
            raise storage_error("list", inner, error) from error
        return found

    def rename_file(self, location: Location, name: str) -> None:
        """Renames a file within its folder, to free its name; durable on return."""
        try:
            with self._folder(location) as (folder, old_name):
                os.rename(old_name, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
        except OSError as error:
            raise storage_error("rename", location, error) from error

    def _root_of(self, location: Location) -> Location:
        """Returns the allowed place that contains a file; raises Forbidden."""
        root = next((place for place in self._roots if place.contains(location)), None)
        if root is None or len(location.segments) <= len(root.segments):
            raise Forbidden(
                f"The location {location} is outside the folders that this server may access",
                hint="Allow its folder with NUNATAK_ALLOWED_LOCATIONS.",
            )
        return root

    @contextmanager
    def _folder(self, location: Location) -> Iterator[tuple[int, str]]:
        """Opens the folder of a file; yields it with the file's name. Links below the allowed place are refused."""
        root = self._root_of(location)
        folder = _open_root(root, location, create=False)
        try:
            for segment in location.segments[len(root.segments) : -1]:
                outer, folder = folder, os.open(segment, _FOLDER, dir_fd=folder)
                os.close(outer)
            yield folder, location.segments[-1]
        finally:
            os.close(folder)


def _walk(opened: int, place: Location, levels: int, found: list[tuple[Location, FoundFile]]) -> None:
    """Adds the files below an opened folder to `found`."""
    folders = []
    with os.scandir(opened) as entries:
        for entry in entries:
            inner = Location(place.scheme, place.authority, (*place.segments, entry.name))
            if entry.is_dir(follow_symlinks=False):
                folders.append(inner)
            elif entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found.append((inner, FoundFile(entry.name, status.st_size, status.st_mtime_ns // 1_000_000)))
    for folder in folders if levels else ():
        with suppress(FileNotFoundError, NotADirectoryError):  # removed or replaced meanwhile
            below = os.open(folder.segments[-1], _FOLDER, dir_fd=opened)
            try:
                _walk(below, folder, levels - 1, found)
            finally:
                os.close(below)


def _remove_empty(name: str, outer: int, levels: int) -> None:
    """Removes a folder in the opened folder `outer` if it holds nothing but empty folders."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=outer)
    except OSError:
        return  # a file, a link, or deleted meanwhile
    try:
        with os.scandir(folder) as entries:
            inner = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for each in inner if levels else ():
            _remove_empty(each, folder, levels - 1)
    finally:
        os.close(folder)
    with suppress(OSError):  # not empty
        os.rmdir(name, dir_fd=outer)


def _open_folder_with_gil(root: Location, location: Location) -> int:
    """Opens the folder of a file, refusing links below the allowed place; first assumes none in the whole path."""
    try:
        return _FOLDER_WITHOUT_LINKS.open("/" + "/".join(location.segments[:-1]))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    outer = syscalls.open_path(path_of(root), os.O_RDONLY | os.O_DIRECTORY)
    try:
        below = "/".join(location.segments[len(root.segments) : -1]) or "."
        return _FOLDER_BENEATH.open(below, outer)
    finally:
        syscalls.close(outer)


def _open_root(root: Location, location: Location, *, create: bool) -> int:
    try:
        if create:
            _make_folders(path_of(root))
        return os.open(path_of(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if create:
            raise storage_error("write", location, error) from error
        raise


def _make_folders(path: str) -> None:
    """Creates the folder and its missing parents; each entry is durable on return."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    _make_folders(above)
    with suppress(FileExistsError):
        os.mkdir(path, 0o755)
    folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open_or_create_subfolder(folder: int, path: tuple[str, ...], created: set[tuple[str, ...]]) -> int:
    """Opens a subfolder. Adds a missing one to `created` before creating it, so that no writer skips its fsync."""
    try:
        return os.open(path[-1], _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        created.add(path)
        with suppress(FileExistsError):  # created concurrently
            os.mkdir(path[-1], 0o755, dir_fd=folder)
        return os.open(path[-1], _FOLDER, dir_fd=folder)


def storage_error(verb: str, location: Location, error: OSError) -> CatalogError:
    """Translates an OSError to a CatalogError for the client."""
    place = str(location).removesuffix("/.")  # a folder is reached as "." inside it
    text = f"Cannot {verb} {place}: {error.strerror or error}"
    if error.errno == errno.ENAMETOOLONG:
        return BadRequest(f"Invalid location: a name in {place} is too long")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return BadRequest(f"Invalid location: {place} passes through a symbolic link or a file")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
        return ServiceUnavailable(text)
    return InternalError(text)
