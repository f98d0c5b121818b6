"""The object store: reads, create-only writes and deletes of table files, off the event loop."""

import errno
import gzip
import io
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from nunatak.errors import BadRequest, InvalidMetadata
from nunatak.objectstore.linux.aio_fsync import LoopFsync
from nunatak.objectstore.linux.shared_fsync import SharedFsync
from nunatak.objectstore.listing import FoundFile
from nunatak.objectstore.local import MAX_READ_BYTES, LocalFiles, UnsyncedFiles, storage_error
from nunatak.objectstore.location import Location, parse_file_location, parse_location
from nunatak.objectstore.plain_fsync import ThreadFsync
from nunatak.objectstore.threads import FileThreads

T = TypeVar("T")
Bytes = bytes | memoryview
THREADS = 12  # a thread that waits for fsync uses no CPU; more threads than cores keep the disk busy


def require_supported_scheme(place: Location) -> None:
    if place.scheme != "file":
        raise BadRequest(f"The location {place} cannot be served: only file: locations are supported so far")


class ObjectStore:
    """Files by location, below the allowed places of all warehouses; `linux_syscalls` is the setting of this name."""

    def __init__(self, allowed: tuple[Location, ...], *, linux_syscalls: bool = True) -> None:
        self.local = LocalFiles((), linux_syscalls=linux_syscalls)
        for place in allowed:
            self.allow(place)
        self._threads = FileThreads(THREADS)
        self._run = self._threads.run
        self._fsync = LoopFsync(self._run) if linux_syscalls else ThreadFsync(self._run)
        self._shared_fsync = SharedFsync(self._sync)

    def allow(self, place: Location) -> None:
        """Allows access to files below this place."""
        require_supported_scheme(place)
        self.local.allow(place)

    async def read(self, location: str) -> bytes:
        return await self._run(self.local.read, parse_location(location), location)

    async def read_metadata(self, location: str) -> bytes:
        """Returns the JSON of a metadata file, decompressed if its first bytes are gzip's; raises InvalidMetadata."""
        return await self._run(self._read_metadata, location)

    def _read_metadata(self, location: str) -> bytes:
        data = self.local.read(parse_location(location), location)
        # Decided by the content, not the name: Hadoop catalogs and register may name a compressed file in any way.
        if data[:2] != b"\x1f\x8b":
            return data
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as compressed:
                content = compressed.read(MAX_READ_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidMetadata(f"The metadata file {location} cannot be decompressed: {error}") from error
        if len(content) > MAX_READ_BYTES:
            raise InvalidMetadata(f"The metadata file {location} decompresses to more than {MAX_READ_BYTES} bytes")
        return content

    async def write_metadata(self, location: str, data: Bytes, pack: Callable[[Bytes], T]) -> T:
        """Writes a new metadata file, compressed if its name ends in .gz.metadata.json.

        Calls `pack` on the data in the same thread, to keep that work off the event loop, and returns its result.
        """
        return await self._run(self._write_metadata, location, data, pack)

    def _write_metadata(self, location: str, data: Bytes, pack: Callable[[Bytes], T]) -> T:
        content = gzip.compress(data, 6) if location.endswith(".gz.metadata.json") else data
        self.local.write_new(parse_location(location), content)
        return pack(data)

    async def write_synced(self, location: str, data: Bytes) -> None:
        """Writes a small new metadata file in the event loop; durable on return. Concurrent writes share one fsync."""
        place = parse_file_location(location)
        try:
            await self._shared_fsync.wait_for(self.local.create(place, data))
        except OSError as error:
            await self._run(self.local.delete, place)  # no pointer can lead to it yet
            raise storage_error("write", place, error) from error

    async def _sync(self, files: Sequence[UnsyncedFiles]) -> None:
        """Fsyncs and closes files and folders; raises FileNotFoundError if a file was deleted meanwhile."""
        try:
            # Folders first: they hold no data, so the last request submitted is likely the last to finish.
            folders = [folder for each in files for folder in each.folders]
            await self._fsync.sync_all(folders + [each.file for each in files if each.file is not None])
            if not all(each.exists() for each in files):
                raise FileNotFoundError(errno.ENOENT, "the file was deleted while it was written")
            for each in files:
                self.local.mark_synced(each)
                if each.file is not None:
                    self.local.drop_pages(each.file)  # loads use the cache and the database, not the file
        finally:
            for each in files:
                each.close()

    def exists(self, location: str) -> bool:
        """Whether the file exists. Runs in the event loop, on the load path: a stat is cheaper than a thread switch."""
        return self.local.exists(parse_location(location))

    async def delete(self, location: str) -> None:
        await self._run(self.local.delete, parse_location(location))

    async def make_folder(self, location: str) -> None:
        """Creates the folder if it is missing; durable on return, by an fsync shared with concurrent writes."""
        place = parse_location(location)
        made = self.local.make_folder(place)
        if not made.created_folders:
            made.close()
            return
        try:
            await self._shared_fsync.wait_for(made)
        except OSError as error:
            raise storage_error("write", place, error) from error

    def claim_folder(self, location: str) -> bool:
        """Creates a folder; returns False if it exists, or if the store cannot create folders atomically."""
        place = parse_location(location)
        return place.scheme == "file" and self.local.claim_folder(place)

    async def resolve_links(self, places: Sequence[Location]) -> list[Location]:
        """Resolves symbolic links in local paths; returns other locations unchanged."""
        return await self._run(self._resolve_links, places)

    def _resolve_links(self, places: Sequence[Location]) -> list[Location]:
        return [self.local.resolve_links(each) if each.scheme == "file" else each for each in places]

    async def remove_empty_folders(self, location: str) -> None:
        await self._run(self.local.remove_empty_folders, parse_location(location))

    async def list_files(self, folder: str, ending: str) -> list[FoundFile]:
        """Returns the files directly in a folder whose names end with `ending`, unordered; none if it is missing."""
        return await self._run(self.local.list_files, parse_location(folder), ending)

    async def rename_file(self, location: str, name: str) -> None:
        """Renames a file within its folder, to free its name."""
        await self._run(self.local.rename_file, parse_location(location), name)

    def close(self) -> None:
        self._fsync.close()
        self._threads.close()
