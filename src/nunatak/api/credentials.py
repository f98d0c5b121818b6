"""Handlers of the management API for credentials and signing keys.

A caller without SERVER_ADMIN manages only credentials of its own, within the limits of its session.
"""

from collections.abc import Sequence

import msgspec

from nunatak.access import administration, securables
from nunatak.access.administration import ListedCredential
from nunatak.access.audit_rows import audit_row
from nunatak.access.credentials import NewCredential, new_access_key, new_api_key, new_client
from nunatak.access.privileges import Privilege
from nunatak.access.sessions import NEVER_MS, Session, principal_grantee
from nunatak.access.vault import Vault
from nunatak.api import management_wire as wire
from nunatak.api.http import Request, Response, json_response
from nunatak.api.management_requests import (
    is_administrator,
    is_caller,
    note_denial,
    path_name,
    require_administrator_or,
    write_changes,
)
from nunatak.api.management_wire import MAX_LIFETIME_SECONDS, CreateCredentialRequest, RotateKeysRequest
from nunatak.api.route import handler
from nunatak.catalog.write import write
from nunatak.database.records import StoredResponse
from nunatak.errors import BadRequest, Forbidden

NO_STORE = (b"cache-control", b"no-store")


@handler
async def list_credentials(request: Request) -> wire.ListCredentialsResponse:
    """Lists the caller's own credentials, or any principal's for an administrator; never returns a secret."""
    found = await _managed_credentials(request, path_name(request))
    return wire.ListCredentialsResponse([_credential(each) for each in found])


async def create_credential(request: Request) -> Response:
    """Creates a credential; this response is the only one that contains its secret.

    The response is not stored for an Idempotency-Key either: a repeated request creates another credential.
    """
    principal = path_name(request)
    wanted = request.decode(CreateCredentialRequest)
    actor = request.actor
    expires_ms = _expiry(actor.at_ms, wanted.expires_in_seconds)
    if not await is_administrator(request):
        expires_ms = await _check_own(request, principal, wanted, expires_ms)
    new = _new_credential(await _vault(request), wanted.kind)
    changes = administration.create_credential(
        actor, principal, new, roles=wanted.roles, note=wanted.note, expires_ms=expires_ms
    )
    await write(request.catalog, msgspec.structs.replace(request.caller, key=None), changes, StoredResponse(200))
    made = wire.NewCredential(
        credential_id=new.credential_id,
        principal=principal,
        kind=new.kind,
        roles=None if wanted.roles is None else tuple(wanted.roles),
        note=wanted.note,
        created_ms=actor.at_ms,
        expires_ms=expires_ms,
        last_used_ms=None,
        secret=new.shown.reveal(),
    )
    return json_response(made, NO_STORE)


@handler
async def drop_credential(request: Request) -> None:
    principal, credential_id = path_name(request), path_name(request, 1)
    managed = {each.credential_id for each in await _managed_credentials(request, principal)}
    if credential_id not in managed:
        raise administration.no_credential(principal, credential_id)
    changes = administration.drop_credential(request.actor, principal, credential_id)
    # Refuses to drop the last credential that can administer the server.
    changes += await administration.keep_a_credential(request.catalog.store, request.actor)
    await write_changes(request, changes)


async def _managed_credentials(request: Request, principal: str) -> list[ListedCredential]:
    """Returns the principal's credentials that the caller may list and drop: all, for an administrator and for itself.

    A session limited to some roles manages only credentials limited to a subset of those roles.
    """
    store = request.catalog.store
    administrator = await is_administrator(request)
    await require_administrator_or(
        request, administrator or is_caller(request, principal), f"the credentials of {principal}"
    )
    _, roles = await administration.load_principal(store, principal)
    found = await administration.list_credentials(store, principal)
    session = request.session
    if administrator or session is None or _is_whole(session, roles):
        return found
    return [each for each in found if each.roles is not None and set(each.roles) <= set(session.roles)]


def _is_whole(session: Session, roles: Sequence[str]) -> bool:
    """Whether the session has all rights of its principal, whose roles are `roles`: it is not limited to some roles."""
    return principal_grantee(session.principal) in session.grantees and set(roles) <= set(session.roles)


async def _check_own(
    request: Request, principal: str, wanted: CreateCredentialRequest, expires_ms: int | None
) -> int | None:
    """Checks that a caller without SERVER_ADMIN may create this credential for itself; raises Forbidden.

    It must not be a client credential, have wider roles than the session, or outlive it. Returns its expiry.
    """
    session = request.session
    if session is None or session.principal != principal or wanted.kind == "client":
        raise _not_own(request, Forbidden(f"The caller may not create a {wanted.kind} credential of {principal}"))
    _, roles = await administration.load_principal(request.catalog.store, principal)
    if not _is_whole(session, roles) and (wanted.roles is None or not set(wanted.roles) <= set(session.roles)):
        raise _not_own(
            request,
            Forbidden(
                "A login restricted to some roles cannot create a credential for other roles",
                hint=f"Name roles out of {', '.join(session.roles) or 'none'}, or log in without naming roles.",
            ),
        )
    if expires_ms is None:
        return None if session.ends_ms == NEVER_MS else session.ends_ms
    if expires_ms > session.ends_ms:
        raise _not_own(
            request,
            Forbidden(
                "A key or token cannot create a credential that expires after it",
                hint="Leave expires-in-seconds out to get the same expiry, or ask an administrator.",
            ),
        )
    return expires_ms


def _not_own(request: Request, error: Forbidden) -> Forbidden:
    return note_denial(request, Privilege.SERVER_ADMIN, securables.SERVER, error)


def _new_credential(vault: Vault, kind: str) -> NewCredential:
    makers = {"client": new_client, "api-key": new_api_key, "access-key": new_access_key}
    return makers[kind](vault)


def _expiry(now_ms: int, seconds: int | None) -> int | None:
    if seconds is None:
        return None
    if not 1 <= seconds <= MAX_LIFETIME_SECONDS:
        raise BadRequest(f"Invalid expires-in-seconds: {seconds} does not lie between 1 and {MAX_LIFETIME_SECONDS}")
    return now_ms + seconds * 1000


async def _vault(request: Request) -> Vault:
    vault = request.context.vault
    assert vault is not None
    if request.guard is None:  # without authentication, nothing has unlocked the vault yet
        await vault.unlock(request.catalog.store)
    return vault


def _credential(each: ListedCredential) -> wire.Credential:
    return wire.Credential(
        credential_id=each.credential_id,
        principal=each.principal,
        kind=each.kind,
        roles=each.roles,
        note=each.note,
        created_ms=each.created_ms,
        expires_ms=each.expires_ms,
        last_used_ms=each.last_used_ms,
    )


@handler
async def rotate_keys(request: Request) -> wire.RotateKeysResponse:
    """Signs tokens with a new key. Encryption keys are rotated by `nunatak encryption-key rotate` instead."""
    wanted = request.decode(RotateKeysRequest) if request.body else RotateKeysRequest()
    if request.context.identity is None:
        raise BadRequest("This server issues no tokens", hint="Start it with NUNATAK_AUTH=embedded.")
    actor = request.actor
    row = audit_row(
        at_ms=actor.at_ms,
        principal=actor.principal,
        action="rotate-keys",
        securable=securables.SERVER,
        detail={"forget-older": wanted.forget_older},
        request_id=actor.request_id,
        origin=actor.origin,
    )
    key_id = await request.context.identity.tokens.rotate(forget_older=wanted.forget_older, along=[row])
    return wire.RotateKeysResponse(key_id)
