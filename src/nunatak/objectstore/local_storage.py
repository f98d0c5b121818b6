"""The storage of local warehouses: files and folders of this machine, fsync shared by concurrent writes."""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Sequence

from nunatak.errors import BadRequest, CatalogError, Forbidden
from nunatak.objectstore.linux.aio_fsync import LoopFsync
from nunatak.objectstore.linux.shared_fsync import SharedFsync
from nunatak.objectstore.listing import FoundFile
from nunatak.objectstore.local import MAX_WRITE_WITH_GIL_BYTES, LocalFiles, UnsyncedFiles, storage_error
from nunatak.objectstore.location import Location
from nunatak.objectstore.plain_fsync import ThreadFsync
from nunatak.objectstore.profile import LocalProfile
from nunatak.objectstore.storage import Bytes, CredentialScope, SignedRequest, SigningRequest, VendedCredential
from nunatak.objectstore.threads import FileThreads

THREADS = 12  # a thread that waits for fsync uses no CPU; more threads than cores keep the disk busy
DELETES_AT_ONCE = 64


class LocalStorage:
    """Files below the allowed places of all local warehouses; `linux_syscalls` is the setting of this name.

    All local warehouses share one: concurrent writes to any of them share an fsync.
    """

    def __init__(self, *, linux_syscalls: bool = True) -> None:
        self.profile = LocalProfile()
        self._files = LocalFiles((), linux_syscalls=linux_syscalls)
        self._threads = FileThreads(THREADS)
        self._run = self._threads.run
        self._fsync = LoopFsync(self._run) if linux_syscalls else ThreadFsync(self._run)
        self._shared_fsync = SharedFsync(self._sync)

    @property
    def counts(self) -> dict[str, int]:
        return self._files.counts

    @property
    def written_bytes(self) -> int:
        return self._files.written_bytes

    def allow(self, place: Location) -> None:
        """Allows access to files below this place."""
        self._files.allow(place)

    def forbid(self, place: Location) -> None:
        """Takes back what `allow` allowed."""
        self._files.forbid(place)

    def read(self, place: Location, spelled: str) -> Awaitable[bytes]:
        return self._run(self._files.read, place, spelled)

    async def write_new(self, place: Location, data: Bytes) -> None:
        """Creates the file; durable on return. Small files are written in the event loop and share one fsync."""
        if len(data) > MAX_WRITE_WITH_GIL_BYTES:
            await self._run(self._files.write_new, place, data)
            return
        try:
            await self._shared_fsync.wait_for(self._files.create(place, data))
        except OSError as error:
            await self._run(self._files.delete, place)  # no pointer can lead to it yet
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
                self._files.mark_synced(each)
                if each.file is not None:
                    self._files.drop_pages(each.file)  # loads use the cache and the database, not the file
        finally:
            for each in files:
                each.close()

    async def exists(self, place: Location) -> bool:
        """Runs in the event loop: a stat is cheaper than a thread switch."""
        return self._files.exists(place)

    async def delete(self, place: Location) -> None:
        await self._run(self._files.delete, place)

    async def delete_many(self, places: Sequence[Location]) -> list[Location]:
        failed = []
        for start in range(0, len(places), DELETES_AT_ONCE):
            some = places[start : start + DELETES_AT_ONCE]
            outcomes = await asyncio.gather(*map(self.delete, some), return_exceptions=True)
            for place, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, CatalogError):
                    failed.append(place)
                elif isinstance(outcome, BaseException):
                    raise outcome
        return failed

    async def list_files(self, folder: Location, ending: str) -> list[FoundFile]:
        return await self._run(self._files.list_files, folder, ending)

    async def walk(self, folder: Location) -> AsyncIterator[tuple[Location, FoundFile]]:
        for found in await self._run(self._files.walk, folder):
            yield found

    async def rename_file(self, place: Location, name: str) -> None:
        await self._run(self._files.rename_file, place, name)

    def client_config(self) -> dict[str, str]:
        return {}

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        raise Forbidden("Files of a local warehouse need no credentials")

    def sign(self, request: SigningRequest, scope: CredentialScope) -> SignedRequest:
        raise BadRequest("A local warehouse has no store whose requests could be signed")

    async def close(self) -> None:
        self._fsync.close()
        self._threads.close()

    # Folders, which object stores do not have

    async def make_folder(self, place: Location) -> None:
        """Creates the folder if it is missing; durable on return, by an fsync shared with concurrent writes."""
        made = self._files.make_folder(place)
        if not made.created_folders:
            made.close()
            return
        try:
            await self._shared_fsync.wait_for(made)
        except OSError as error:
            raise storage_error("write", place, error) from error

    def claim_folder(self, place: Location) -> bool:
        """Creates a folder; returns False if it exists."""
        return self._files.claim_folder(place)

    async def remove_empty_folders(self, place: Location) -> None:
        await self._run(self._files.remove_empty_folders, place)

    async def resolve_links(self, places: Sequence[Location]) -> list[Location]:
        """Resolves symbolic links in local paths; returns other locations unchanged."""
        return await self._run(self._resolve_links, places)

    def _resolve_links(self, places: Sequence[Location]) -> list[Location]:
        return [self._files.resolve_links(each) if each.scheme == "file" else each for each in places]


def is_regular_file(path: str) -> bool:
    """Whether a file, or a symbolic link to one, is at the local path; read permission is not checked."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
