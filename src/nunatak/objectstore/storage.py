"""The storage seam: the operations on the files of one warehouse, the same for every kind of store."""

import enum
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Protocol

import msgspec

from nunatak.objectstore.listing import FoundFile
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import StorageProfile

Bytes = bytes | memoryview
MAX_READ_BYTES = 128 * 1024 * 1024  # metadata beyond this is not served; 8 MiB is already worth a warning


class AccessLevel(enum.Enum):
    """What vended credentials and signed requests permit."""

    READ = "read"
    READ_WRITE = "read-write"


class CredentialScope(msgspec.Struct, frozen=True):
    """The files that a credential opens: everything below `places`, which were checked against the warehouse.

    Only code that has authorized the caller and validated the places of a stored or staged table makes one.
    """

    principal: str
    table_uuid: str
    places: tuple[Location, ...]
    level: AccessLevel


class VendedCredential(msgspec.Struct, frozen=True):
    """A credential for clients: `prefix` without a trailing slash, and the properties that clients understand."""

    prefix: str
    config: dict[str, str]
    expires_ms: int

    def __repr__(self) -> str:
        return f"VendedCredential({self.prefix!r}, …)"


class SigningRequest(msgspec.Struct, frozen=True):
    """A request to the store that a client wants signed; `body` comes with requests that delete several objects."""

    method: str
    uri: str
    region: str
    headers: Mapping[str, Sequence[str]]
    body: str | None = None


class SignedRequest(msgspec.Struct, frozen=True):
    """The request to send: `uri` is exactly the one that was checked."""

    uri: str
    headers: dict[str, list[str]]


class Storage(Protocol):
    """The files of one warehouse. Every call runs without blocking the event loop."""

    @property
    def profile(self) -> StorageProfile: ...

    @property
    def counts(self) -> Mapping[str, int]:
        """The calls to the store by operation (read, write, delete, stat, list), since it was opened."""

    @property
    def written_bytes(self) -> int: ...

    def read(self, place: Location, spelled: str) -> Awaitable[bytes]:
        """Returns the bytes; raises NotFound with the location as the client wrote it."""

    async def write_new(self, place: Location, data: Bytes) -> None:
        """Creates the file, never overwriting one; durable on return.

        Raises OutcomeUnknown if the store may still create it: then nothing may take its name again.
        """

    async def exists(self, place: Location) -> bool: ...

    async def delete(self, place: Location) -> None:
        """Deletes the file; a missing one is no error."""

    async def delete_many(self, places: Sequence[Location]) -> list[Location]:
        """Deletes the files in as few requests as the store allows; returns those that could not be deleted."""

    async def list_files(self, folder: Location, ending: str) -> list[FoundFile]:
        """Returns the files directly in a folder whose names end with `ending`, unordered; none if it is missing."""

    def walk(self, folder: Location) -> AsyncIterator[tuple[Location, FoundFile]]:
        """Yields every file below a folder."""

    async def rename_file(self, place: Location, name: str) -> None:
        """Gives a file another name in its folder, to free its own."""

    def client_config(self) -> dict[str, str]:
        """Returns the properties that every client of the warehouse gets: endpoint, region, path style; no secret."""

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        """Returns a credential that opens the scope and nothing else; raises Forbidden if the store has none."""

    def sign(self, request: SigningRequest, scope: CredentialScope) -> SignedRequest:
        """Returns the request with a signature; raises Forbidden if it touches anything outside the scope."""

    async def close(self) -> None: ...
