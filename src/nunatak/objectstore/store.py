"""The object store: finds the storage of a location's warehouse, and reads, writes and deletes table files there."""

import asyncio
import gzip
import io
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from nunatak.errors import Forbidden, InvalidMetadata
from nunatak.objectstore.cloud_stores import require_scheme
from nunatak.objectstore.listing import FoundFile
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.location import Location, parse_file_location, parse_location
from nunatak.objectstore.opening import open_storage
from nunatak.objectstore.profile import StorageProfile, StorageSecret
from nunatak.objectstore.storage import MAX_READ_BYTES, Bytes, Storage

T = TypeVar("T")
COMPRESSED = ".gz.metadata.json"


class ObjectStore:
    """Files by location, each in the storage of its warehouse; the longest place that contains a file decides."""

    def __init__(self, local: LocalStorage) -> None:
        self.local = local
        self._places: list[tuple[Location, Storage]] = []
        self._past = dict.fromkeys(local.counts, 0)  # counts of storages that were detached
        self._past_bytes = 0

    # Places

    def attach(self, storage: Storage, places: Iterable[Location]) -> None:
        """Serves the files below these places from now on; requests in flight end on the storage that they began on.

        A storage attached to the same place before is replaced: so a rotated secret takes effect without a pause.
        """
        for place in places:
            if storage is self.local:
                self.local.allow(place)
            others = [entry for entry in self._places if entry[0] != place]
            self._set_places([*others, (place, storage)])

    def serve(self, profile: StorageProfile, secret: StorageSecret | None, places: Sequence[Location]) -> None:
        """Opens the storage of a warehouse and attaches it to its places; the first is the warehouse's own location.

        Call it again after the profile or the secret has changed.
        """
        for place in places:
            require_scheme(profile, place)
        self.attach(open_storage(profile, secret, places[0], self.local), places)

    def detach(self, places: Iterable[Location]) -> None:
        """Serves the files below these places no more."""
        gone = set(places)
        for place, storage in self._places:
            if place in gone and storage is self.local:
                self.local.forbid(place)
        self._set_places([entry for entry in self._places if entry[0] not in gone])

    def _set_places(self, entries: list[tuple[Location, Storage]]) -> None:
        before = self._storages()
        self._places = sorted(entries, key=lambda entry: -len(entry[0].segments))
        for storage in before:
            if storage not in self._storages():
                for name, count in storage.counts.items():
                    self._past[name] = self._past.get(name, 0) + count
                self._past_bytes += storage.written_bytes

    def storage_of(self, place: Location) -> Storage:
        """Returns the storage that serves the location; raises Forbidden."""
        for root, storage in self._places:
            if root.contains(place):
                return storage
        raise Forbidden(
            f"The location {place} lies outside what this server may touch",
            hint="Allow its folder with NUNATAK_ALLOWED_LOCATIONS.",
        )

    def _storages(self) -> list[Storage]:
        return list({id(storage): storage for storage in (self.local, *(each for _, each in self._places))}.values())

    @property
    def counts(self) -> dict[str, int]:
        """The calls to all storages since the start, by operation."""
        total = dict(self._past)
        for storage in self._storages():
            for name, count in storage.counts.items():
                total[name] = total.get(name, 0) + count
        return total

    @property
    def written_bytes(self) -> int:
        return self._past_bytes + sum(storage.written_bytes for storage in self._storages())

    # Files

    def read(self, location: str) -> Awaitable[bytes]:
        place = parse_location(location)
        return self.storage_of(place).read(place, location)

    async def read_metadata(self, location: str) -> bytes:
        """Returns the JSON of a metadata file, decompressed if its first bytes are gzip's; raises InvalidMetadata."""
        data = await self.read(location)
        # Decided by the content, not the name: Hadoop catalogs and register may name a compressed file in any way.
        return await asyncio.to_thread(_decompress, data, location) if data[:2] == b"\x1f\x8b" else data

    def write_new(self, location: str, data: Bytes) -> Awaitable[None]:
        """Creates a file, never overwriting one; durable on return. Raises OutcomeUnknown as the storage does."""
        place = parse_file_location(location)
        return self.storage_of(place).write_new(place, data)

    async def write_metadata(self, location: str, data: Bytes, pack: Callable[[Bytes], T]) -> T:
        """Writes a new metadata file, compressed if its name ends in .gz.metadata.json.

        Calls `pack` on the data in a thread, to keep that work off the event loop, and returns its result.
        """
        content, packed = await asyncio.to_thread(_prepare, location, data, pack)
        place = parse_file_location(location)
        await self.storage_of(place).write_new(place, content)
        return packed

    async def exists(self, location: str) -> bool:
        place = parse_location(location)
        return await self.storage_of(place).exists(place)

    async def delete(self, location: str) -> None:
        place = parse_location(location)
        await self.storage_of(place).delete(place)

    async def delete_many(self, locations: Sequence[str]) -> list[str]:
        """Deletes the files in few requests; returns the locations that could not be deleted."""
        spelled = {parse_location(location): location for location in locations}
        by_storage: dict[int, tuple[Storage, list[Location]]] = {}
        for place in spelled:
            storage = self.storage_of(place)
            by_storage.setdefault(id(storage), (storage, []))[1].append(place)
        failed = [await storage.delete_many(places) for storage, places in by_storage.values()]
        return [spelled[place] for each in failed for place in each]

    async def list_files(self, folder: str, ending: str) -> list[FoundFile]:
        """Returns the files directly in a folder whose names end with `ending`, unordered; none if it is missing."""
        place = parse_location(folder)
        return await self.storage_of(place).list_files(place, ending)

    def walk(self, folder: str) -> AsyncIterator[tuple[Location, FoundFile]]:
        """Yields every file below a folder."""
        place = parse_location(folder)
        return self.storage_of(place).walk(place)

    async def rename_file(self, location: str, name: str) -> None:
        """Renames a file within its folder, to free its name."""
        place = parse_location(location)
        await self.storage_of(place).rename_file(place, name)

    async def close(self) -> None:
        for storage in self._storages():
            await storage.close()

    # Folders: object stores have none, so nothing happens there

    async def make_folder(self, location: str) -> None:
        """Creates a local folder if it is missing; durable on return."""
        place = parse_location(location)
        if place.scheme == "file":
            await self.local.make_folder(place)

    def claim_folder(self, location: str) -> bool:
        """Creates a folder; returns False if it exists, or if the store cannot create folders atomically."""
        place = parse_location(location)
        return place.scheme == "file" and self.local.claim_folder(place)

    async def remove_empty_folders(self, location: str) -> None:
        place = parse_location(location)
        if place.scheme == "file":
            await self.local.remove_empty_folders(place)

    async def resolve_links(self, places: Sequence[Location]) -> list[Location]:
        """Resolves symbolic links in local paths; returns other locations unchanged."""
        return await self.local.resolve_links(places)


def _decompress(data: bytes, location: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as compressed:
            content = compressed.read(MAX_READ_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidMetadata(f"The metadata file {location} cannot be decompressed: {error}") from error
    if len(content) > MAX_READ_BYTES:
        raise InvalidMetadata(f"The metadata file {location} decompresses to more than {MAX_READ_BYTES} bytes")
    return content


def _prepare(location: str, data: Bytes, pack: Callable[[Bytes], T]) -> tuple[Bytes, T]:
    content = gzip.compress(data, 6) if location.endswith(COMPRESSED) else data
    return content, pack(data)
