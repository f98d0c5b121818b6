"""The self-test of a warehouse's store: files, create-only writes, clock, region, and the scope of vended credentials.

All test files lie in one new folder inside the warehouse and are deleted at the end.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Literal
from uuid import uuid4

import msgspec

from nunatak.errors import CatalogError
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import LocalProfile, S3Profile, StorageSecret
from nunatak.objectstore.s3_diagnosis import bucket_region, explain_s3_failure
from nunatak.objectstore.scope_test import check_listing_scope, check_scope
from nunatak.objectstore.sign_test import check_signing
from nunatak.objectstore.signing.signers import signs
from nunatak.objectstore.storage import Storage
from nunatak.objectstore.store_clock import StoreUnreachable, clock_skew_seconds
from nunatak.objectstore.vending.vendors import vends

Outcome = Literal["ok", "warning", "failed"]

MAX_SECONDS = 40.0  # for a few dozen small requests; with the clean-up less than a command waits for its answer
# AWS refuses requests whose signature is 15 minutes off; a credential that ends in an hour suffers long before.
WARN_SKEW_SECONDS, MAX_SKEW_SECONDS = 30, 300


class CheckStep(msgspec.Struct, frozen=True):
    """One step of the self-test of a store; `detail` says what was seen and what to do about it."""

    name: str
    outcome: Outcome
    detail: str


def passed(steps: Sequence[CheckStep]) -> bool:
    return all(step.outcome != "failed" for step in steps)


async def check_storage(
    storage: Storage,
    secret: StorageSecret | None,
    places: Sequence[Location],
    *,
    region: str | None = None,
    read_only: bool = False,
) -> list[CheckStep]:
    """Tests the store of a warehouse; `places` starts with its own location. Returns every step, never raises.

    With `read_only` no file is written: the keys may not allow it.
    """
    steps: list[CheckStep] = []
    folder = _inside(places[0], f"nunatak-self-test-{uuid4()}")
    try:
        async with asyncio.timeout(MAX_SECONDS):
            await _check_all(steps, storage, secret, places, folder, region, read_only=read_only)
    except TimeoutError:
        steps.append(CheckStep("time", "failed", f"The store took more than {MAX_SECONDS:.0f} s; see the steps before"))
    await _clean_up(steps, storage, folder)
    return steps


async def _check_all(
    steps: list[CheckStep],
    storage: Storage,
    secret: StorageSecret | None,
    places: Sequence[Location],
    folder: Location,
    region: str | None,
    *,
    read_only: bool,
) -> None:
    is_local = isinstance(storage.profile, LocalProfile)
    if not is_local:
        steps.append(await _check_clock(storage, places[0]))
        if not passed(steps):
            return
    if read_only:
        steps.append(await _try_step("list", _list(storage, places[0])))
    else:
        steps += await _check_files(storage, folder)
    if not passed(steps):
        if isinstance(storage.profile, S3Profile):
            steps.append(CheckStep("cause", "failed", await explain_s3_failure(storage.profile, secret, places[0])))
        return
    if region is not None:
        steps.append(await _check_region(storage, secret, places, region))
    if is_local:
        return
    if signs(storage.profile) and not read_only:
        steps.append(CheckStep(*await check_signing(storage, folder)))
    if not vends(storage.profile):
        steps.append(CheckStep("scope", "ok", "Not tested: the warehouse vends no credentials"))
    elif isinstance(storage.profile, S3Profile) and storage.profile.static_keys:
        why = "static-keys hands clients the keys of the warehouse: whoever reads one table can write every table"
        steps.append(CheckStep("scope", "warning", why))
    else:
        work = check_listing_scope(storage, folder) if read_only else check_scope(storage, secret, folder)
        steps += [CheckStep(*each) for each in await work]


# Files


async def _check_files(storage: Storage, folder: Location) -> list[CheckStep]:
    """Writes, reads, lists and deletes one file; stops at the first failure."""
    file, first, second = _inside(folder, "probe.txt"), b"first", b"second"
    steps = [await _try_step("write", storage.write_new(file, first))]
    if steps[-1].outcome == "failed":
        return steps
    steps.append(await _check_create_only(storage, file, first, second))
    steps.append(await _try_step("read", _read(storage, file, (first, second))))
    steps.append(await _try_step("list", _list(storage, folder, "probe.txt")))
    steps.append(await _try_step("delete", _delete(storage, file)))
    return steps


async def _check_create_only(storage: Storage, file: Location, first: bytes, second: bytes) -> CheckStep:
    """Tries to overwrite a file. Names hold a new UUID, so a store that allows it loses nothing: only a warning."""
    with contextlib.suppress(CatalogError):
        await storage.write_new(file, second)
    try:
        if await storage.read(file, str(file)) == first:
            return CheckStep("create-only", "ok", "A second write to the same name was refused")
    except CatalogError as error:
        return CheckStep("create-only", "failed", error.message)
    return CheckStep(
        "create-only",
        "warning",
        "The store overwrote a file although it was asked not to (If-None-Match is ignored). The catalog never uses a "
        "name twice, but clients that rely on create-only writes do so in vain",
    )


async def _read(storage: Storage, file: Location, expected: Sequence[bytes]) -> None:
    if await storage.read(file, str(file)) not in expected:
        raise _Surprise("The store returned other bytes than were written")


async def _list(storage: Storage, folder: Location, name: str | None = None) -> None:
    found = await storage.list_files(folder, "")
    if name is not None and name not in [file.name for file in found]:
        raise _Surprise("A file that was just written is missing in the list of its folder")


async def _delete(storage: Storage, file: Location) -> None:
    await storage.delete(file)
    if await storage.exists(file):
        raise _Surprise("The file is still there after it was deleted")


class _Surprise(Exception):
    """The store answered without an error, but not as it must."""


async def _try_step(name: str, work: object) -> CheckStep:
    try:
        await work  # type: ignore[misc]  # any awaitable
    except CatalogError as error:
        return CheckStep(name, "failed", error.message if error.hint is None else f"{error.message}. {error.hint}")
    except _Surprise as error:
        return CheckStep(name, "failed", str(error))
    return CheckStep(name, "ok", "")


async def _clean_up(steps: list[CheckStep], storage: Storage, folder: Location) -> None:
    """Deletes the test files, also after a timeout, without waiting long."""
    try:
        async with asyncio.timeout(MAX_SECONDS / 4):
            left = [place async for place, _ in storage.walk(folder)]
            if left and await storage.delete_many(left):
                steps.append(CheckStep("clean-up", "warning", f"Test files are left behind in {folder}"))
    except (CatalogError, TimeoutError) as error:
        if passed(steps):
            steps.append(CheckStep("clean-up", "warning", f"Test files may be left behind in {folder}: {error}"))


# Clock and region


async def _check_clock(storage: Storage, home: Location) -> CheckStep:
    assert not isinstance(storage.profile, LocalProfile)
    try:
        skew = await asyncio.to_thread(clock_skew_seconds, storage.profile, home)
    except StoreUnreachable as error:
        return CheckStep("endpoint", "failed", str(error))
    if skew is None:
        return CheckStep("clock", "warning", "The store does not tell its time, so the clocks cannot be compared")
    if abs(skew) <= WARN_SKEW_SECONDS:
        return CheckStep("clock", "ok", "")
    ahead = "ahead of" if skew > 0 else "behind"
    outcome: Outcome = "warning" if abs(skew) <= MAX_SKEW_SECONDS else "failed"
    return CheckStep("clock", outcome, f"This server's clock is {abs(skew):.0f} s {ahead} the store's: use NTP")


async def _check_region(
    storage: Storage, secret: StorageSecret | None, places: Sequence[Location], region: str
) -> CheckStep:
    """Compares where the buckets lie with the region that the warehouse declares."""
    if not isinstance(storage.profile, S3Profile):
        return CheckStep("region", "warning", f"The store does not tell where it lies; declared is {region}")
    unknown = []
    for bucket in dict.fromkeys(place.authority for place in places):
        found = await bucket_region(storage.profile, secret, bucket)
        if found is not None and found != region:
            return CheckStep(
                "region", "failed", f"The bucket {bucket} lies in {found}, but the data must lie in {region}"
            )
        unknown += [bucket] if found is None else []
    if unknown:
        return CheckStep("region", "warning", f"The store does not tell the region of {', '.join(unknown)}")
    return CheckStep("region", "ok", "")


def _inside(folder: Location, name: str) -> Location:
    return Location(folder.scheme, folder.authority, (*folder.segments, name))
