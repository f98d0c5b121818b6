"""Handlers of the management API: principals, roles, grants, credentials, warehouses and signing keys.

A route that does not require SERVER_ADMIN is open to every authenticated caller; its handler then shows and changes
only what the caller's own rights allow.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import msgspec
from msgspec import UnsetType

from nunatak.access import administration, explain, securables
from nunatak.access.administration import Grant, ListedCredential, Principal, Role, WarehouseRow
from nunatak.access.audit_rows import audit_row
from nunatak.access.credentials import NewCredential, new_access_key, new_api_key, new_client
from nunatak.access.denials import explain_hint
from nunatak.access.explain import Explanation, FoundGrant, Holding
from nunatak.access.privileges import BUNDLES, ENTRY_BITS, GRANTABLE, Privilege, expand_rights, names_of
from nunatak.access.sessions import NEVER_MS, Session, principal_grantee, session_of
from nunatak.access.vault import Vault
from nunatak.api import management_wire as wire
from nunatak.api.admission import is_seen
from nunatak.api.http import Request, Response, decode_segment, json_response
from nunatak.api.management_wire import (
    MAX_LIFETIME_SECONDS,
    AddMemberRequest,
    CreateCredentialRequest,
    CreatePrincipalRequest,
    CreateRoleRequest,
    CreateWarehouseRequest,
    GrantRequest,
    RotateKeysRequest,
    UpdatePrincipalRequest,
)
from nunatak.api.paging import Page, list_of
from nunatak.api.route import TOP_WORDS, handler
from nunatak.api.wire import stored_answer
from nunatak.catalog.warehouses import WarehousePlace, check_warehouse_name
from nunatak.catalog.write import write
from nunatak.database.records import Change, Key, StoredResponse
from nunatak.errors import BadRequest, Conflict, Forbidden, NotFound
from nunatak.iceberg.identifiers import to_jdbc

T = TypeVar("T")

NO_STORE = (b"cache-control", b"no-store")
MAY_GRANT = Privilege.GRANT | Privilege.WAREHOUSE_ADMIN | Privilege.SERVER_ADMIN


# The caller


@handler
async def me(request: Request) -> wire.Me:
    """Returns the caller's principal, roles, authentication method and privileges on the server."""
    session = request.session
    held = await request.rights(securables.SERVER)
    return wire.Me(
        principal=request.caller.principal,
        roles=[] if session is None else list(session.roles),
        authenticated_by=None if session is None else session.method,
        privileges_on_server=names_of(held),
    )


async def _is_administrator(request: Request) -> bool:
    return bool(await request.rights(securables.SERVER) & Privilege.SERVER_ADMIN)


async def _require_administrator_or(request: Request, allowed: bool, what: str) -> None:
    if not allowed and not await _is_administrator(request):
        needed = Privilege.SERVER_ADMIN
        raise _note_denial(
            request,
            needed,
            securables.SERVER,
            Forbidden(f"The caller may not see {what}", hint=_hint(request, needed, securables.SERVER)),
        )


def _is_caller(request: Request, principal: str) -> bool:
    return request.session is not None and request.session.principal == principal


def _hint(request: Request, privilege: Privilege, securable: str) -> str:
    return explain_hint(request.caller.principal, privilege, securable)


def _note_denial(request: Request, privilege: Privilege, securable: str, error: Forbidden) -> Forbidden:
    request.context.note_denial(request, names_of(privilege), securable)
    return error


@contextmanager
def _denials_noted(request: Request, privilege: Privilege, securable: str) -> Iterator[None]:
    try:
        yield
    except Forbidden as error:
        raise _note_denial(request, privilege, securable, error) from error


# Principals


@handler
async def list_principals(request: Request) -> wire.ListPrincipalsResponse:
    page = _page(request, "principals")
    found = await administration.list_principals(request.catalog.store, page.after, page.limit + 1)
    token = _next_token(request, "principals", page, found, lambda each: each.name)
    return wire.ListPrincipalsResponse([_principal(each) for each in found[: page.limit]], next_page_token=token)


@handler
async def create_principal(request: Request) -> wire.Principal:
    wanted = request.decode(CreatePrincipalRequest)
    actor = request.actor
    changes = administration.create_principal(actor, wanted.name, wanted.note)
    return await _apply_changes(request, changes, wire.Principal(wanted.name, False, wanted.note, actor.at_ms))


@handler
async def load_principal(request: Request) -> wire.LoadedPrincipal:
    """Returns the caller's own principal, or any principal to an administrator; raises Forbidden otherwise."""
    name = _name(request)
    await _require_administrator_or(request, _is_caller(request, name), f"principal {name}")
    principal, roles = await administration.load_principal(request.catalog.store, name)
    return wire.LoadedPrincipal(principal.name, principal.disabled, principal.note, principal.created_ms, roles)


@handler
async def update_principal(request: Request) -> None:
    wanted = request.decode(UpdatePrincipalRequest)
    changes = await administration.update_principal(
        request.catalog.store, request.actor, _name(request), disabled=wanted.disabled, note=wanted.note
    )
    await _change(request, changes)


@handler
async def drop_principal(request: Request) -> None:
    changes = await administration.drop_principal(request.catalog.store, request.actor, _name(request))
    await _change(request, changes)


# Roles


@handler
async def list_roles(request: Request) -> wire.ListRolesResponse:
    page = _page(request, "roles")
    found = await administration.list_roles(request.catalog.store, page.after, page.limit + 1)
    token = _next_token(request, "roles", page, found, lambda each: each.name)
    return wire.ListRolesResponse([_role(each) for each in found[: page.limit]], next_page_token=token)


@handler
async def create_role(request: Request) -> wire.Role:
    wanted = request.decode(CreateRoleRequest)
    actor = request.actor
    changes = administration.create_role(actor, wanted.name, wanted.note)
    return await _apply_changes(request, changes, wire.Role(wanted.name, wanted.note, actor.at_ms))


@handler
async def load_role(request: Request) -> wire.Role:
    """Returns a role the caller acts in, or any role to an administrator; raises Forbidden otherwise."""
    name = _name(request)
    allowed = request.session is not None and name in request.session.roles
    await _require_administrator_or(request, allowed, f"role {name}")
    return _role(await administration.load_role(request.catalog.store, name))


@handler
async def drop_role(request: Request) -> None:
    changes = await administration.drop_role(request.catalog.store, request.actor, _name(request))
    await _change(request, changes)


@handler
async def list_members(request: Request) -> wire.ListMembersResponse:
    role = _name(request)
    resource = f"roles/{role}/members"
    page = _page(request, resource)
    found = await administration.list_members(request.catalog.store, role, page.after, page.limit + 1)
    token = _next_token(request, resource, page, found, lambda each: each)
    return wire.ListMembersResponse(found[: page.limit], next_page_token=token)


@handler
async def add_member(request: Request) -> None:
    wanted = request.decode(AddMemberRequest)
    await _change(request, administration.add_member(request.actor, _name(request), wanted.principal))


@handler
async def remove_member(request: Request) -> None:
    store, role, principal = request.catalog.store, _name(request), _name(request, 1)
    await _change(request, await administration.remove_member(store, request.actor, role, principal))


# Grants


@handler
async def list_grants(request: Request) -> wire.ListGrantsResponse:
    """Lists the grants of a grantee, on a securable, or (for administrators) all grants."""
    store, text, where = request.catalog.store, request.query.get("grantee"), request.query.get("securable")
    resource = f"grants/{text}/{where}"
    page = _page(request, resource)
    after = tuple(page.after.split("\n")) if page.after else None
    if text is not None:
        grantee = administration.parse_grantee(text)
        own = request.session is not None and grantee in request.session.grantees
        await _require_administrator_or(request, own, f"the grants of {text}")
        found = await administration.grants_of(store, grantee, after[1] if after else None, page.limit + 1)
        if where is not None:
            found = [each for each in found if each.securable == securables.parse_securable(where)]
    elif where is not None:
        securable = securables.parse_securable(where)
        await _require_granter(request, securable)
        found = await administration.grants_on(store, securable, after[0] if after else "", page.limit + 1)
    else:
        await _require_administrator_or(request, False, "all grants; name a grantee or a securable")
        found = await administration.list_grants(store, (after[0], after[1]) if after else ("", ""), page.limit + 1)
    token = _next_token(request, resource, page, found, lambda each: f"{each.grantee}\n{each.securable}")
    return wire.ListGrantsResponse([_grant(each) for each in found[: page.limit]], next_page_token=token)


@handler
async def grant(request: Request) -> None:
    wanted = request.decode(GrantRequest)
    grantee = administration.parse_grantee(wanted.grantee)
    securable = securables.parse_securable(wanted.securable)
    privileges = administration.parse_privileges(wanted.privileges)
    rights = await _rights_on(request, securable)
    # Grants are stored by name: a grant on a missing securable would apply to the one created there later.
    if not await _exists(request, securable):
        raise _absent(securable)
    with _denials_noted(request, privileges, securable):
        changes = administration.grant(request.actor, rights, grantee, securable, privileges)
    await _change(request, changes)


@handler
async def revoke(request: Request) -> None:
    grantee = administration.parse_grantee(_query_name(request, "grantee"))
    securable = securables.parse_securable(_query_name(request, "securable"))
    privileges = administration.parse_privileges(_query_name(request, "privileges").split(","))
    rights = await _rights_on(request, securable)
    with _denials_noted(request, privileges, securable):
        changes = await administration.revoke(
            request.catalog.store, request.actor, rights, grantee, securable, privileges
        )
    await _change(request, changes)


async def _rights_on(request: Request, securable: str) -> int:
    """Returns the caller's rights on the securable; raises NotFound if they do not let the caller see it."""
    rights = await request.rights(securable)
    # Every authenticated caller holds CONFIG_READ, so it does not make a container visible.
    shows = ~Privilege.CONFIG_READ if securables.is_container(securable) else ENTRY_BITS
    if securable != securables.SERVER and not rights & shows:
        raise _absent(securable)
    return rights


async def _require_granter(request: Request, securable: str) -> None:
    if not expand_rights(await _rights_on(request, securable)) & MAY_GRANT:
        needed = Privilege.GRANT
        message = f"The caller may not see the grants on {securables.format_securable(securable)}: that requires GRANT"
        raise _note_denial(request, needed, securable, Forbidden(message, hint=_hint(request, needed, securable)))


def _absent(securable: str) -> NotFound:
    return NotFound(f"{securables.format_securable(securable)} does not exist")


async def _exists(request: Request, securable: str) -> bool:
    if securable == securables.SERVER:
        return True
    home, levels, name = securables.parts(securable)
    warehouses, store = request.catalog.warehouses, request.catalog.store
    if home not in warehouses:
        await warehouses.refresh()  # another server may have created it
    if home not in warehouses:
        return False
    if name is not None:
        return await store.find_kind(Key(home, to_jdbc(levels), name)) is not None
    return not levels or await store.namespace_exists(home, to_jdbc(levels))


# Credentials


@handler
async def list_credentials(request: Request) -> wire.ListCredentialsResponse:
    """Lists the caller's own credentials, or any principal's for an administrator; never returns a secret."""
    found = await _managed_credentials(request, _name(request))
    return wire.ListCredentialsResponse([_credential(each) for each in found])


async def create_credential(request: Request) -> Response:
    """Creates a credential; this response is the only one that contains its secret.

    The response is not stored for an Idempotency-Key either: a repeated request creates another credential.
    """
    principal = _name(request)
    wanted = request.decode(CreateCredentialRequest)
    actor = request.actor
    expires_ms = _expiry(actor.at_ms, wanted.expires_in_seconds)
    if not await _is_administrator(request):
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
    principal, credential_id = _name(request), _name(request, 1)
    managed = {each.credential_id for each in await _managed_credentials(request, principal)}
    if credential_id not in managed:
        raise administration.no_credential(principal, credential_id)
    changes = administration.drop_credential(request.actor, principal, credential_id)
    # Refuses to drop the last credential that can administer the server.
    changes += await administration.keep_a_credential(request.catalog.store, request.actor)
    await _change(request, changes)


async def _managed_credentials(request: Request, principal: str) -> list[ListedCredential]:
    """Returns the principal's credentials that the caller may list and drop: all, for an administrator and for itself.

    A session limited to some roles manages only credentials limited to a subset of those roles.
    """
    store = request.catalog.store
    is_administrator = await _is_administrator(request)
    await _require_administrator_or(
        request, is_administrator or _is_caller(request, principal), f"the credentials of {principal}"
    )
    _, roles = await administration.load_principal(store, principal)
    found = await administration.list_credentials(store, principal)
    session = request.session
    if is_administrator or session is None or _is_whole(session, roles):
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
    return _note_denial(request, Privilege.SERVER_ADMIN, securables.SERVER, error)


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


# Explanations of access


@handler
async def explain_access(request: Request) -> wire.Explanation:
    """Explains the caller's own access, or any principal's on a securable where the caller may grant."""
    principal = request.query.get("principal") or request.caller.principal
    securable = securables.parse_securable(_query_name(request, "securable"))
    privilege = _single(_query_name(request, "privilege"))
    further = [role for role in request.query.get("roles", "").split(",") if role]
    if not _is_caller(request, principal) or further:
        await _require_granter(request, securable)
    # The caller's own access is explained for its session: a token may add roles, or be limited to some.
    session = request.session if _is_caller(request, principal) and not further else None
    found = await explain.explain(request.catalog.store, principal, privilege, securable, further, session=session)
    decider = "nobody" if request.guard is None else type(request.guard.authorizer).__name__.lower()
    if request.guard is not None and not request.guard.authorizer.grants_decide and not found.disabled:
        (held,) = await request.guard.authorizer.rights(session or session_of(principal, found.roles), [securable])
        allowed = bool((held | Privilege.CONFIG_READ) & privilege)
        found = replace(found, allowed=allowed, deciding=None, reason=f"{decider} decides, regardless of grants")
    granters = await _granters(request, privilege, securable)
    return _explanation(found, decider, granters)


async def _granters(request: Request, privilege: Privilege, securable: str) -> list[str]:
    """Returns who may grant the privilege on the visible part of the chain; empty if grants do not decide access."""
    if request.guard is None or not request.guard.authorizer.grants_decide or not privilege & GRANTABLE:
        return []
    seen: list[str] = []
    for place in securables.chain(securable):
        # Naming the owner of a hidden securable would reveal that it exists.
        if not await is_seen(request, place, await request.rights(place)):
            break
        seen.append(place)
    found = await explain.find_granters(request.catalog.store, privilege, seen)
    return [administration.format_grantee(each) for each in found]


@handler
async def access_matrix(request: Request) -> wire.AccessMatrix:
    """Returns who holds which privileges on a securable; requires that the caller may grant there."""
    securable = securables.parse_securable(request.query.get("securable", "server"))
    await _require_granter(request, securable)
    found = await explain.matrix(request.catalog.store, securable)
    return wire.AccessMatrix([_holding(each) for each in found])


def _single(name: str) -> Privilege:
    upper = name.upper()
    if upper not in Privilege.__members__ or not Privilege[upper]:
        known = ", ".join(single.name or "" for single in Privilege)
        bundle = " A bundle stands for several privileges: use one of them." if upper in BUNDLES else ""
        raise BadRequest(f"Not a privilege: {name[:100]!r}", hint=f"Use one of {known}.{bundle}")
    return Privilege[upper]


# Warehouses


@handler
async def list_warehouses(request: Request) -> wire.ListWarehousesResponse:
    """Lists the warehouses that the caller may see."""
    warehouses = request.catalog.warehouses
    await warehouses.refresh()
    page = _page(request, "warehouses")
    seen = await _seen_warehouses(request, sorted(name for name in warehouses if name > page.after))
    found = [warehouses[name] for name in seen[: page.limit + 1]]
    token = _next_token(request, "warehouses", page, found, lambda each: each.name)
    shown = [_warehouse(request, each) for each in found[: page.limit]]
    return wire.ListWarehousesResponse(shown, next_page_token=token)


@handler
async def load_warehouse(request: Request) -> wire.Warehouse:
    name = _name(request)
    seen = await _seen_warehouses(request, [name])
    if not await _exists(request, securables.warehouse(name)) or not seen:
        raise request.catalog.no_such_warehouse(name)
    return _warehouse(request, request.catalog.warehouses[name])


@handler
async def create_warehouse(request: Request) -> wire.Warehouse:
    wanted = request.decode(CreateWarehouseRequest)
    warehouses = request.catalog.warehouses
    name = check_warehouse_name(wanted.name, TOP_WORDS)
    await warehouses.refresh()
    place = warehouses.place_of_new(name, wanted.location)
    made = WarehousePlace(name, str(place), (place,), configured=False)
    changes = administration.create_warehouse(request.actor, WarehouseRow(name, made.location))
    answer = await _apply_changes(request, changes, _warehouse(request, made))
    await warehouses.refresh()  # so that this process serves it at once
    return answer


@handler
async def drop_warehouse(request: Request) -> None:
    """Drops an empty warehouse that was created over the API; raises Conflict for one from the settings."""
    name, warehouses = _name(request), request.catalog.warehouses
    place = warehouses.get(name)
    if place is not None and place.configured:
        raise Conflict(f"Warehouse {name} is defined in the settings", hint="Remove it from the settings instead.")
    await _change(request, administration.drop_warehouse(request.actor, name))
    await warehouses.refresh()


async def _seen_warehouses(request: Request, names: Sequence[str]) -> list[str]:
    """Returns the warehouses on which, or anywhere inside which, the caller has a right."""
    guard, known = request.guard, request.known
    if guard is None or known is None:
        return list(names)
    places = [securables.warehouse(name) for name in names]
    held = await guard.ask(known, places)
    return [
        name for name, place, rights in zip(names, places, held, strict=True) if await is_seen(request, place, rights)
    ]


# Keys


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


# Shared helpers


def _name(request: Request, position: int = 0) -> str:
    return decode_segment(request.path_names[position])


def _query_name(request: Request, name: str) -> str:
    value = request.query.get(name)
    if not value:
        raise BadRequest(f"The parameter {name} is missing")
    return value


async def _change(request: Request, changes: Sequence[Change]) -> None:
    await write(request.catalog, request.caller, changes, StoredResponse(204))


async def _apply_changes(request: Request, changes: Sequence[Change], value: T) -> T:
    """Applies the changes and stores the value as the response if the request has an Idempotency-Key."""
    await write(request.catalog, request.caller, changes, stored_answer(request.caller, value))
    return value


def _page(request: Request, resource: str) -> Page:
    return request.context.tokens.page(list_of(request, resource), request.query)


def _next_token(
    request: Request, resource: str, page: Page, found: Sequence[T], position: Callable[[T], str]
) -> str | UnsetType:
    """Returns the token of the next page; callers read one row more than the page holds to see whether there is one."""
    last = position(found[page.limit - 1]) if len(found) > page.limit else None
    return request.context.tokens.after(list_of(request, resource), last)


def _principal(each: Principal) -> wire.Principal:
    return wire.Principal(each.name, each.disabled, each.note, each.created_ms)


def _role(each: Role) -> wire.Role:
    return wire.Role(each.name, each.note, each.created_ms)


def _grant(each: Grant) -> wire.Grant:
    grantee, securable = administration.format_grantee(each.grantee), securables.format_securable(each.securable)
    return wire.Grant(grantee, securable, names_of(each.privileges), each.granted_by, each.granted_ms)


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


def _found_grant(each: FoundGrant) -> wire.FoundGrant:
    grantee, securable = administration.format_grantee(each.grantee), securables.format_securable(each.securable)
    return wire.FoundGrant(grantee, securable, names_of(each.privileges))


def _explanation(each: Explanation, decider: str, granters: list[str]) -> wire.Explanation:
    return wire.Explanation(
        principal=each.principal,
        privilege=each.privilege.name or "",
        securable=securables.format_securable(each.securable),
        allowed=each.allowed,
        reason=each.reason,
        roles=each.roles,
        chain=[securables.format_securable(step) for step in each.chain],
        grants=[_found_grant(found) for found in each.grants],
        deciding_grant=None if each.deciding is None else _found_grant(each.deciding),
        decided_by=decider,
        granted_by=granters,
    )


def _holding(each: Holding) -> wire.Holding:
    return wire.Holding(
        securable=securables.format_securable(each.securable),
        holder=administration.format_grantee(each.holder),
        privileges=names_of(each.privileges),
        through=[_found_grant(found) for found in each.through],
    )


def _warehouse(request: Request, each: WarehousePlace) -> wire.Warehouse:
    return wire.Warehouse(
        name=each.name,
        location=each.location,
        allowed_locations=[str(place) for place in each.allowed],
        configured=each.configured,
        default=each.name == request.catalog.default_warehouse,
    )
