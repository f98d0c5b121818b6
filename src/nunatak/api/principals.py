"""Handlers of the management API for the caller, principals, roles and their members."""

from nunatak.access import administration, securables
from nunatak.access.administration import Principal, Role
from nunatak.access.privileges import names_of
from nunatak.api import management_wire as wire
from nunatak.api.http import Request
from nunatak.api.management_requests import (
    is_caller,
    next_token,
    page_of,
    path_name,
    require_administrator_or,
    write_and_answer,
    write_changes,
)
from nunatak.api.management_wire import (
    AddMemberRequest,
    CreatePrincipalRequest,
    CreateRoleRequest,
    UpdatePrincipalRequest,
)
from nunatak.api.route import handler


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


@handler
async def list_principals(request: Request) -> wire.ListPrincipalsResponse:
    page = page_of(request, "principals")
    found = await administration.list_principals(request.catalog.store, page.after, page.limit + 1)
    token = next_token(request, "principals", page, found, lambda each: each.name)
    return wire.ListPrincipalsResponse([_principal(each) for each in found[: page.limit]], next_page_token=token)


@handler
async def create_principal(request: Request) -> wire.Principal:
    wanted = request.decode(CreatePrincipalRequest)
    actor = request.actor
    changes = administration.create_principal(actor, wanted.name, wanted.note)
    return await write_and_answer(request, changes, wire.Principal(wanted.name, False, wanted.note, actor.at_ms))


@handler
async def load_principal(request: Request) -> wire.LoadedPrincipal:
    """Returns the caller's own principal, or any principal to an administrator; raises Forbidden otherwise."""
    name = path_name(request)
    await require_administrator_or(request, is_caller(request, name), f"principal {name}")
    principal, roles = await administration.load_principal(request.catalog.store, name)
    return wire.LoadedPrincipal(principal.name, principal.disabled, principal.note, principal.created_ms, roles)


@handler
async def update_principal(request: Request) -> None:
    wanted = request.decode(UpdatePrincipalRequest)
    changes = await administration.update_principal(
        request.catalog.store, request.actor, path_name(request), disabled=wanted.disabled, note=wanted.note
    )
    await write_changes(request, changes)


@handler
async def drop_principal(request: Request) -> None:
    changes = await administration.drop_principal(request.catalog.store, request.actor, path_name(request))
    await write_changes(request, changes)


@handler
async def list_roles(request: Request) -> wire.ListRolesResponse:
    page = page_of(request, "roles")
    found = await administration.list_roles(request.catalog.store, page.after, page.limit + 1)
    token = next_token(request, "roles", page, found, lambda each: each.name)
    return wire.ListRolesResponse([_role(each) for each in found[: page.limit]], next_page_token=token)


@handler
async def create_role(request: Request) -> wire.Role:
    wanted = request.decode(CreateRoleRequest)
    actor = request.actor
    changes = administration.create_role(actor, wanted.name, wanted.note)
    return await write_and_answer(request, changes, wire.Role(wanted.name, wanted.note, actor.at_ms))


@handler
async def load_role(request: Request) -> wire.Role:
    """Returns a role the caller acts in, or any role to an administrator; raises Forbidden otherwise."""
    name = path_name(request)
    allowed = request.session is not None and name in request.session.roles
    await require_administrator_or(request, allowed, f"role {name}")
    return _role(await administration.load_role(request.catalog.store, name))


@handler
async def drop_role(request: Request) -> None:
    changes = await administration.drop_role(request.catalog.store, request.actor, path_name(request))
    await write_changes(request, changes)


@handler
async def list_members(request: Request) -> wire.ListMembersResponse:
    role = path_name(request)
    resource = f"roles/{role}/members"
    page = page_of(request, resource)
    found = await administration.list_members(request.catalog.store, role, page.after, page.limit + 1)
    token = next_token(request, resource, page, found, lambda each: each)
    return wire.ListMembersResponse(found[: page.limit], next_page_token=token)


@handler
async def add_member(request: Request) -> None:
    wanted = request.decode(AddMemberRequest)
    await write_changes(request, administration.add_member(request.actor, path_name(request), wanted.principal))


@handler
async def remove_member(request: Request) -> None:
    store, role, principal = request.catalog.store, path_name(request), path_name(request, 1)
    await write_changes(request, await administration.remove_member(store, request.actor, role, principal))


def _principal(each: Principal) -> wire.Principal:
    return wire.Principal(each.name, each.disabled, each.note, each.created_ms)


def _role(each: Role) -> wire.Role:
    return wire.Role(each.name, each.note, each.created_ms)
