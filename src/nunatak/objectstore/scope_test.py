"""Tests whether the store enforces the scope of vended credentials: inside works, outside is refused by the store.

A credential for one folder is tried on that folder, on a sibling whose name begins the same, on the parent, on the
whole warehouse and on another bucket. Every request goes straight to the store, as a client's would.
"""

import asyncio
import re
from collections.abc import Awaitable
from typing import Any, Literal
from uuid import uuid4

from nunatak.errors import CatalogError
from nunatak.objectstore.cloud_errors import Failure, failed_request
from nunatak.objectstore.cloud_stores import NO_RETRIES, container_and_account, open_bucket
from nunatak.objectstore.extras import load_library
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import AdlsProfile, GcsSecret, LocalProfile, S3Profile, S3Secret, StorageSecret
from nunatak.objectstore.s3_diagnosis import s3_client
from nunatak.objectstore.storage import AccessLevel, CredentialScope, Storage, VendedCredential

Step = tuple[str, Literal["ok", "warning", "failed"], str]
TABLE = "00000000-0000-4000-8000-000000000000"
_QUERY = re.compile(r"\?\S+")
UNENFORCED = "The store does not enforce the scope of vended credentials"


async def check_scope(storage: Storage, secret: StorageSecret | None, folder: Location) -> list[Step]:
    """Returns the steps of the test; `folder` is a new one in the warehouse, which the caller deletes."""
    table, sibling = _inside(folder, "table"), _inside(folder, "table0")
    try:
        for place in (table, sibling):
            await storage.write_new(_inside(place, "seed.txt"), b"seed")
        write = await storage.vend(_scope(table, AccessLevel.READ_WRITE))
        read = await storage.vend(_scope(table, AccessLevel.READ))
    except CatalogError as error:
        hint = "" if error.hint is None else f" {error.hint}"
        return [("vend", "failed", f"No credential can be vended: {error.message}.{hint}")]
    steps: list[Step] = [("vend", "ok", "")]
    writer, reader = _Client(storage, write), _Client(storage, read)
    steps.append(_step("scope: inside works", await _inside_problems(writer, reader, table), allowed=True))
    steps.append(_step("scope: read-only", await _read_only_evidence(reader, table)))
    steps.append(_step("scope: sibling folder", await _folder_evidence(writer, sibling)))
    steps.append(_step("scope: parent folder", await _parent_evidence(writer, folder)))
    steps.append(await _other_bucket(storage, secret, writer, folder.authority))
    return steps


async def check_listing_scope(storage: Storage, folder: Location) -> list[Step]:
    """Tests what can be tested with a read-only credential and without files: which folders can be listed."""
    table = _inside(folder, "table")
    try:
        reader = _Client(storage, await storage.vend(_scope(table, AccessLevel.READ)))
    except CatalogError as error:
        return [("vend", "failed", f"No credential can be vended: {error.message}")]
    inside = [] if await reader.list(table) is not None else ["clients could not list the folder vended to them"]
    outside = [await reader.list(each) for each in (_inside(folder, "table0"), folder)]
    outside += [await reader.list(folder.parent(len(folder.segments) - 1)), await reader.put(_inside(table, "new.txt"))]
    return [
        ("vend", "ok", ""),
        _step("scope: inside works", inside, allowed=True),
        _step("scope: outside", [each for each in outside if each is not None]),
    ]


def _scope(table: Location, level: AccessLevel) -> CredentialScope:
    return CredentialScope("nunatak-self-test", TABLE, (table,), level)


def _step(name: str, evidence: list[str], *, allowed: bool = False) -> Step:
    if not evidence:
        return name, "ok", ""
    told = "; ".join(evidence)
    return name, "failed", told if allowed else f"{UNENFORCED}: {told}"


class _Client:
    """A client of the store that has nothing but a vended credential. Each call returns None if it was refused, else
    what it did, in words; and an error that is no refusal."""

    def __init__(self, storage: Storage, credential: VendedCredential) -> None:
        self._profile, self._config = storage.profile, credential.config
        self._obstore: Any = load_library("obstore", "s3")

    def _bucket(self, place: Location) -> Any:
        profile, config = self._profile, self._config
        assert not isinstance(profile, LocalProfile)
        if isinstance(profile, S3Profile):
            keys = S3Secret(config["s3.access-key-id"], config["s3.secret-access-key"], config.get("s3.session-token"))
            return open_bucket(profile, keys, place)
        if isinstance(profile, AdlsProfile):
            token = next(value for name, value in config.items() if name.startswith("adls.sas-token."))
            container, account = container_and_account(place)
            endpoint = {} if profile.endpoint is None else {"endpoint": profile.endpoint}
            stores = load_library("obstore.store", "azure")
            return stores.AzureStore(
                container, account_name=account, sas_key=token, retry_config=NO_RETRIES, **endpoint
            )
        return open_bucket(profile, GcsSecret(access_token=config["gcs.oauth2.token"]), place)

    async def put(self, file: Location) -> str | None:
        bucket, key = self._bucket(file), "/".join(file.segments)
        return await self._try(f"wrote {file}", self._obstore.put_async(bucket, key, b"test"))

    async def get(self, file: Location) -> str | None:
        bucket, key = self._bucket(file), "/".join(file.segments)
        return await self._try(f"read {file}", self._obstore.get_async(bucket, key))

    async def delete(self, file: Location) -> str | None:
        bucket, key = self._bucket(file), "/".join(file.segments)
        return await self._try(f"deleted {file}", self._obstore.delete_async(bucket, key))

    async def list(self, folder: Location) -> str | None:
        bucket, key = self._bucket(folder), "/".join(folder.segments)
        return await self._try(f"listed {folder}", self._obstore.list_with_delimiter_async(bucket, key))

    async def _try(self, done: str, call: Awaitable[Any]) -> str | None:
        try:
            await call
        except (self._obstore.exceptions.BaseError, FileNotFoundError, ValueError) as error:
            failed = failed_request(error)
            # Some stores hide what they refuse behind a 404; what is tried exists, so that is a refusal, too.
            if failed.failure in (Failure.DENIED, Failure.MISSING, Failure.NO_BUCKET):
                return None
            # The address of a request to ADLS holds its signature.
            detail = _QUERY.sub("?…", failed.detail)
            return f"it cannot be told whether a client {done}: {detail}"
        return f"a credential for one table {done}"


async def _inside_problems(writer: _Client, reader: _Client, table: Location) -> list[str]:
    """Returns what a credential could not do in its own folder."""
    file = _inside(table, "data.txt")
    problems = []
    for what, work in (
        ("write", writer.put(file)),
        ("read", writer.get(file)),
        ("list", writer.list(table)),
        ("read with a read-only credential", reader.get(file)),
        ("list with a read-only credential", reader.list(table)),
        ("delete", writer.delete(file)),
    ):
        outcome = await work
        if outcome is None or "cannot be told" in outcome:
            problems.append(f"clients could not {what} in the folder that was vended to them")
    return problems


async def _read_only_evidence(reader: _Client, table: Location) -> list[str]:
    seed = _inside(table, "seed.txt")
    tried = [await reader.put(_inside(table, "read-only.txt")), await reader.delete(seed)]
    return [f"read-only: {each}" for each in tried if each is not None]


async def _folder_evidence(writer: _Client, folder: Location) -> list[str]:
    seed = _inside(folder, "seed.txt")
    tried = [await writer.get(seed), await writer.list(folder), await writer.put(_inside(folder, "new.txt"))]
    tried.append(await writer.delete(seed))
    return [each for each in tried if each is not None]


async def _parent_evidence(writer: _Client, folder: Location) -> list[str]:
    """Tries the parent of the table's folder, and the folder above it, which is the warehouse."""
    tried = [await writer.put(_inside(folder, "new.txt")), await writer.list(folder)]
    tried.append(await writer.list(folder.parent(len(folder.segments) - 1)))
    return [each for each in tried if each is not None]


async def _other_bucket(storage: Storage, secret: StorageSecret | None, writer: _Client, bucket: str) -> Step:
    name = "scope: other bucket"
    profile = storage.profile
    if not isinstance(profile, S3Profile):
        return name, "ok", "Not tried: only S3 shows the server its other buckets"
    other = await asyncio.to_thread(_find_other_bucket, profile, secret, bucket)
    if other is None:
        return name, "ok", "Not tried: the server's keys show no other bucket"
    file = Location("s3", other, (f"nunatak-self-test-{uuid4()}.txt",))
    listed, wrote = await writer.list(Location("s3", other, ())), await writer.put(file)
    if wrote is not None:
        await asyncio.to_thread(_delete_object, profile, secret, file)
    return _step(name, [each for each in (listed, wrote) if each is not None])


def _find_other_bucket(profile: S3Profile, secret: StorageSecret | None, bucket: str) -> str | None:
    """Returns any other bucket that the server's keys can see."""
    exceptions = load_library("botocore.exceptions", "s3")
    client = s3_client(profile, secret)
    try:
        names = [each["Name"] for each in client.list_buckets().get("Buckets", ())]
    except (exceptions.ClientError, exceptions.BotoCoreError):
        return None
    finally:
        client.close()
    return next((name for name in names if name != bucket), None)


def _delete_object(profile: S3Profile, secret: StorageSecret | None, file: Location) -> None:
    exceptions = load_library("botocore.exceptions", "s3")
    client = s3_client(profile, secret)
    try:
        client.delete_object(Bucket=file.authority, Key="/".join(file.segments))
    except (exceptions.ClientError, exceptions.BotoCoreError):
        pass  # the step has failed; its detail names the file
    finally:
        client.close()


def _inside(folder: Location, name: str) -> Location:
    return Location(folder.scheme, folder.authority, (*folder.segments, name))
