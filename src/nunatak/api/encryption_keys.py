"""Handlers for the encryption keys of secrets in the database, where only the server can write the database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nunatak.access import securables
from nunatak.access.audit_rows import audit_row
from nunatak.access.rotation import KeyUse, Rotation, list_keys, retire, rotate
from nunatak.access.vault import Vault
from nunatak.api.http import Request
from nunatak.api.management_wire import (
    EncryptionKey,
    ListEncryptionKeysResponse,
    RetireEncryptionKeysResponse,
    RotateEncryptionKeysResponse,
)
from nunatak.api.route import handler
from nunatak.errors import BadRequest, Conflict
from nunatak.settings import SettingsError


@handler
async def list_encryption_keys(request: Request) -> ListEncryptionKeysResponse:
    """Lists key ids and how many secrets each encrypts; never returns a key."""
    with _said_to_the_caller():
        uses = await list_keys(request.catalog.store, _vault(request))
    return list_response(uses)


@handler
async def rotate_encryption_keys(request: Request) -> RotateEncryptionKeysResponse:
    """Re-encrypts all secrets with a new key while servers keep running; after a failure, a repeat resumes it."""
    await _audit(request, "rotate-encryption-keys")  # before the rotation: a failed one is recorded, too
    with _said_to_the_caller():
        done = await rotate(request.catalog.store, _vault(request))
    return rotate_response(done)


@handler
async def retire_encryption_keys(request: Request) -> RetireEncryptionKeysResponse:
    """Removes keys that no secret needs any more from the key file."""
    await _audit(request, "retire-encryption-keys")
    with _said_to_the_caller():
        retired = await retire(request.catalog.store, _vault(request), request.catalog.now_ms())
    return RetireEncryptionKeysResponse(retired)


def list_response(uses: Sequence[KeyUse]) -> ListEncryptionKeysResponse:
    return ListEncryptionKeysResponse([EncryptionKey(use.key_id, use.encrypts, use.values, use.held) for use in uses])


def rotate_response(done: Rotation) -> RotateEncryptionKeysResponse:
    return RotateEncryptionKeysResponse(done.key_id, done.added, done.sealed_anew)


def _vault(request: Request) -> Vault:
    vault = request.context.vault
    if vault is None:
        raise BadRequest("This server stores no secrets")
    return vault


@contextmanager
def _said_to_the_caller() -> Iterator[None]:
    """Turns SettingsError into Conflict with its text: callers are administrators, who can repair the key file."""
    try:
        yield
    except SettingsError as error:
        raise Conflict(f"The keys cannot be used: {error}") from error


async def _audit(request: Request, action: str) -> None:
    caller = request.caller
    row = audit_row(
        at_ms=request.catalog.now_ms(),
        principal=caller.principal,
        action=action,
        securable=securables.SERVER,
        request_id=caller.request_id,
        origin=caller.origin,
    )
    await request.catalog.store.apply([row])
