"""The storage of a warehouse on S3, ADLS or GCS, by obstore.

Failed requests are repeated here and not in obstore, because a create-only PUT needs to know what its earlier attempts
may have done: a store that took the object and lost the answer refuses the next attempt, although the object is ours.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from nunatak.errors import CatalogError, Forbidden, InternalError, NotFound, OutcomeUnknown
from nunatak.objectstore.client_config import client_config
from nunatak.objectstore.cloud_errors import FailedRequest, Failure, client_error, failed_request
from nunatak.objectstore.cloud_stores import CloudProfile, open_bucket, require_scheme
from nunatak.objectstore.extras import load_library
from nunatak.objectstore.listing import FoundFile
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import AdlsProfile, GcsProfile, StorageSecret
from nunatak.objectstore.storage import (
    MAX_READ_BYTES,
    Bytes,
    CredentialScope,
    SignedRequest,
    SigningRequest,
    VendedCredential,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_ATTEMPTS = 3
MAX_SECONDS = 5.0  # no further attempt is made after this
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 0.5
MAX_CALLS = 64  # at once, to one warehouse: more would only queue in the store
DELETES_AT_ONCE = {"s3": 1000, "abfss": 256, "gs": 100}  # in one request; GCS has no such request
# obstore's threads may abort the interpreter if it ends right after a call: seen in 3 of 25 runs, never after 0.2 s.
QUIET_SECONDS = 0.2
_TRY_AGAIN = frozenset({Failure.BUSY, Failure.UNREACHABLE, Failure.UNKNOWN})
_MAY_BE_DONE = frozenset({Failure.BUSY, Failure.UNKNOWN})  # a proxy may answer 503 for what the store has done


class Vendor(Protocol):
    """Makes the credentials that clients get."""

    async def vend(self, scope: CredentialScope) -> VendedCredential: ...

    async def close(self) -> None: ...


class Signer(Protocol):
    """Signs the requests that clients send to the store."""

    def sign(self, request: SigningRequest, scope: CredentialScope) -> SignedRequest: ...


class CloudStorage:
    """The objects of a warehouse; `home` is its location. Each bucket is opened once, without a secret by the usual
    chain of credentials of its cloud."""

    def __init__(
        self,
        profile: CloudProfile,
        secret: StorageSecret | None,
        home: Location,
        *,
        vendor: Vendor | None = None,
        signer: Signer | None = None,
    ) -> None:
        require_scheme(profile, home)
        extra = "azure" if isinstance(profile, AdlsProfile) else "gcs" if isinstance(profile, GcsProfile) else "s3"
        self._obstore = load_library("obstore", extra)
        self._errors: tuple[type[BaseException], ...] = (
            self._obstore.exceptions.BaseError,
            FileNotFoundError,
            ValueError,
        )
        self._profile = profile
        self._secret = secret
        self._home = home
        self._vendor = vendor
        self._signer = signer
        self._buckets: dict[str, Any] = {}
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self._last_call = 0.0
        self.counts = {"read": 0, "write": 0, "delete": 0, "stat": 0, "list": 0}
        self.written_bytes = 0
        self._bucket(home)

    @property
    def profile(self) -> CloudProfile:
        return self._profile

    def _bucket(self, place: Location) -> Any:
        bucket = self._buckets.get(place.authority)
        if bucket is None:
            bucket = self._buckets[place.authority] = open_bucket(self._profile, self._secret, place)
        return bucket

    # Requests

    async def _ask(self, count: str, call: Callable[[], Awaitable[T]]) -> T:
        """Sends one request, with a limited number of others."""
        async with self._calls:
            self.counts[count] += 1
            try:
                return await call()
            finally:
                self._last_call = time.monotonic()

    async def _repeat(
        self, count: str, verb: str, place: Location, spelled: str, call: Callable[[], Awaitable[T]]
    ) -> T:
        """Sends a request that may be repeated without harm; raises the error for the client."""
        started = time.monotonic()
        for attempt in range(MAX_ATTEMPTS):
            try:
                return await self._ask(count, call)
            except self._errors as error:
                failed = failed_request(error)
                if not await self._pause(failed, attempt, started):
                    raise self._translate(verb, place, spelled, failed) from error
        raise AssertionError("the last attempt returns or raises")

    async def _pause(self, failed: FailedRequest, attempt: int, started: float) -> bool:
        """Waits before the next attempt; returns False if there is none."""
        pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt) * random.uniform(0.5, 1.5)
        is_last = attempt + 1 >= MAX_ATTEMPTS or time.monotonic() - started + pause > MAX_SECONDS
        if failed.failure not in _TRY_AGAIN or is_last:
            return False
        await asyncio.sleep(pause)
        return True

    def _translate(self, verb: str, place: Location, spelled: str, failed: FailedRequest) -> CatalogError:
        if failed.failure is not Failure.MISSING:
            log.warning("cannot %s %s: %s (%s)", verb, place, failed.failure.value, failed.detail)
        return client_error(verb, place, spelled, failed)

    # Files

    async def read(self, place: Location, spelled: str) -> bytes:
        bucket, key = self._bucket(place), _key(place)

        async def get() -> bytes:
            found = await self._obstore.get_async(bucket, key)
            if found.meta["size"] > MAX_READ_BYTES:
                raise InternalError(f"The file {spelled} is larger than {MAX_READ_BYTES} bytes")
            return bytes(await found.bytes_async())

        return await self._repeat("read", "read", place, spelled, get)

    async def write_new(self, place: Location, data: Bytes) -> None:
        """Creates the object by a conditional PUT.

        Raises OutcomeUnknown if the store may have created it, or may still do so: it is never overwritten. Then the
        caller must not use it, and it has to be deleted later.
        """
        bucket, key = self._bucket(place), _key(place)
        self.written_bytes += len(data)
        started, may_be_done = time.monotonic(), False
        for attempt in range(MAX_ATTEMPTS):
            try:
                await self._ask("write", lambda: self._obstore.put_async(bucket, key, data, mode="create"))
                return
            except self._errors as error:
                failed = failed_request(error)
                may_be_done = may_be_done or failed.failure in _MAY_BE_DONE
                if not await self._pause(failed, attempt, started):
                    break
        await self._resolve(place, data, failed, may_be_done)

    async def _resolve(self, place: Location, data: Bytes, failed: FailedRequest, may_be_done: bool) -> None:
        """Reads back the object of a failed PUT; returns if it is ours, raises otherwise."""
        if failed.failure is not Failure.TAKEN and not may_be_done:
            raise self._translate("write", place, str(place), failed)
        found: bytes | None = None
        try:
            found = await self.read(place, str(place))
        except NotFound:
            pass  # but a request that is still on its way may create it
        except CatalogError as error:
            log.warning("whether %s was written is not known: %s", place, error.message)
        if found is not None and found == data:
            return
        if found is not None:  # names hold a new UUID, so nobody else can have taken it
            raise InternalError(f"Cannot write {place}: an object with other content has this name")
        log.warning("whether %s was written is not known (%s)", place, failed.detail)
        raise OutcomeUnknown(
            f"The object store did not confirm that it wrote {place}", hint="Nothing was changed; try again."
        )

    async def exists(self, place: Location) -> bool:
        bucket, key = self._bucket(place), _key(place)
        try:
            await self._repeat("stat", "find", place, str(place), lambda: self._obstore.head_async(bucket, key))
        except NotFound:
            return False
        return True

    async def delete(self, place: Location) -> None:
        bucket, key = self._bucket(place), _key(place)
        try:
            await self._repeat("delete", "delete", place, str(place), lambda: self._obstore.delete_async(bucket, key))
        except NotFound:
            return

    async def delete_many(self, places: Sequence[Location]) -> list[Location]:
        failed: list[Location] = []
        by_bucket: dict[str, list[Location]] = {}
        for place in places:
            by_bucket.setdefault(place.authority, []).append(place)
        for together in by_bucket.values():
            size = DELETES_AT_ONCE[together[0].scheme]
            for start in range(0, len(together), size):
                failed += await self._delete_batch(together[start : start + size])
        return failed

    async def _delete_batch(self, places: Sequence[Location]) -> list[Location]:
        """Deletes objects of one bucket in one request; one by one if that fails, as it does not say which stayed."""
        bucket, keys = self._bucket(places[0]), [_key(place) for place in places]
        try:
            await self._ask("delete", lambda: self._obstore.delete_async(bucket, keys))
        except self._errors as error:
            log.info("deleting %d objects one by one: %s", len(places), failed_request(error).detail)
        else:
            return []
        outcomes = await asyncio.gather(*map(self.delete, places), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, CatalogError):
                raise outcome
        return [place for place, outcome in zip(places, outcomes, strict=True) if outcome is not None]

    async def list_files(self, folder: Location, ending: str) -> list[FoundFile]:
        bucket, key = self._bucket(folder), _key(folder)

        async def list_folder() -> Any:
            return await self._obstore.list_with_delimiter_async(bucket, key)

        try:
            listed = await self._repeat("list", "list", folder, str(folder), list_folder)
        except NotFound:
            return []
        found = [_found_file(each) for each in listed["objects"]]
        return [file for file in found if file.name.endswith(ending)]

    async def walk(self, folder: Location) -> AsyncIterator[tuple[Location, FoundFile]]:
        bucket, key = self._bucket(folder), _key(folder)
        pages = self._obstore.list(bucket, key)
        while True:
            self.counts["list"] += 1
            try:
                page = await anext(pages, None)
            except self._errors as error:
                raise self._translate("list", folder, str(folder), failed_request(error)) from error
            finally:
                self._last_call = time.monotonic()
            if page is None:
                return
            for each in page:
                yield Location(folder.scheme, folder.authority, tuple(each["path"].split("/"))), _found_file(each)

    async def rename_file(self, place: Location, name: str) -> None:
        """Copies the object to its new name, then deletes it: object stores cannot rename."""
        data = await self.read(place, str(place))
        await self.write_new(Location(place.scheme, place.authority, (*place.segments[:-1], name)), data)
        await self.delete(place)

    # Clients

    def client_config(self) -> dict[str, str]:
        return client_config(self._profile, self._home)

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        if self._vendor is None:
            raise Forbidden("This warehouse vends no credentials")
        return await self._vendor.vend(scope)

    def sign(self, request: SigningRequest, scope: CredentialScope) -> SignedRequest:
        if self._signer is None:
            raise Forbidden("This warehouse signs no requests")
        return self._signer.sign(request, scope)

    async def close(self) -> None:
        if self._vendor is not None:
            await self._vendor.close()
        self._buckets.clear()
        rest = self._last_call + QUIET_SECONDS - time.monotonic()
        if self._last_call and rest > 0:
            await asyncio.sleep(rest)


def _key(place: Location) -> str:
    return "/".join(place.segments)


def _found_file(entry: Any) -> FoundFile:
    modified_ms = int(entry["last_modified"].timestamp() * 1000)
    return FoundFile(entry["path"].rpartition("/")[2], entry["size"], modified_ms)
