"""Handlers of the management API for grants, and for explanations of who may do what."""

from dataclasses import replace

from nunatak.access import administration, explain, securables
from nunatak.access.administration import Grant
from nunatak.access.explain import Explanation, FoundGrant, Holding
from nunatak.access.privileges import BUNDLES, GRANTABLE, Privilege, names_of
from nunatak.access.sessions import session_of
from nunatak.api import management_wire as wire
from nunatak.api.admission import is_seen
from nunatak.api.http import Request
from nunatak.api.management_requests import (
    denials_noted,
    is_caller,
    next_token,
    no_securable,
    page_of,
    query_name,
    require_administrator_or,
    require_granter,
    rights_on,
    securable_exists,
    write_changes,
)
from nunatak.api.management_wire import GrantRequest
from nunatak.api.route import handler
from nunatak.errors import BadRequest


@handler
async def list_grants(request: Request) -> wire.ListGrantsResponse:
    """Lists the grants of a grantee, on a securable, or (for administrators) all grants."""
    store, text, where = request.catalog.store, request.query.get("grantee"), request.query.get("securable")
    resource = f"grants/{text}/{where}"
    page = page_of(request, resource)
    after = tuple(page.after.split("\n")) if page.after else None
    if text is not None:
        grantee = administration.parse_grantee(text)
        own = request.session is not None and grantee in request.session.grantees
        await require_administrator_or(request, own, f"the grants of {text}")
        found = await administration.grants_of(store, grantee, after[1] if after else None, page.limit + 1)
        if where is not None:
            found = [each for each in found if each.securable == securables.parse_securable(where)]
    elif where is not None:
        securable = securables.parse_securable(where)
        await require_granter(request, securable)
        found = await administration.grants_on(store, securable, after[0] if after else "", page.limit + 1)
    else:
        await require_administrator_or(request, False, "all grants; name a grantee or a securable")
        found = await administration.list_grants(store, (after[0], after[1]) if after else ("", ""), page.limit + 1)
    token = next_token(request, resource, page, found, lambda each: f"{each.grantee}\n{each.securable}")
    return wire.ListGrantsResponse([_grant(each) for each in found[: page.limit]], next_page_token=token)


@handler
async def grant(request: Request) -> None:
    wanted = request.decode(GrantRequest)
    grantee = administration.parse_grantee(wanted.grantee)
    securable = securables.parse_securable(wanted.securable)
    privileges = administration.parse_privileges(wanted.privileges)
    rights = await rights_on(request, securable)
    # Grants are stored by name: a grant on a missing securable would apply to the one created there later.
    if not await securable_exists(request, securable):
        raise no_securable(securable)
    with denials_noted(request, privileges, securable):
        changes = administration.grant(request.actor, rights, grantee, securable, privileges)
    await write_changes(request, changes)


@handler
async def revoke(request: Request) -> None:
    grantee = administration.parse_grantee(query_name(request, "grantee"))
    securable = securables.parse_securable(query_name(request, "securable"))
    privileges = administration.parse_privileges(query_name(request, "privileges").split(","))
    rights = await rights_on(request, securable)
    with denials_noted(request, privileges, securable):
        changes = await administration.revoke(
            request.catalog.store, request.actor, rights, grantee, securable, privileges
        )
    await write_changes(request, changes)


def _grant(each: Grant) -> wire.Grant:
    grantee, securable = administration.format_grantee(each.grantee), securables.format_securable(each.securable)
    return wire.Grant(grantee, securable, names_of(each.privileges), each.granted_by, each.granted_ms)


@handler
async def explain_access(request: Request) -> wire.Explanation:
    """Explains the caller's own access, or any principal's on a securable where the caller may grant."""
    principal = request.query.get("principal") or request.caller.principal
    securable = securables.parse_securable(query_name(request, "securable"))
    privilege = _single(query_name(request, "privilege"))
    further = [role for role in request.query.get("roles", "").split(",") if role]
    if not is_caller(request, principal) or further:
        await require_granter(request, securable)
    # The caller's own access is explained for its session: a token may add roles, or be limited to some.
    session = request.session if is_caller(request, principal) and not further else None
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
    await require_granter(request, securable)
    found = await explain.matrix(request.catalog.store, securable)
    return wire.AccessMatrix([_holding(each) for each in found])


def _single(name: str) -> Privilege:
    upper = name.upper()
    if upper not in Privilege.__members__ or not Privilege[upper]:
        known = ", ".join(single.name or "" for single in Privilege)
        bundle = " A bundle stands for several privileges: use one of them." if upper in BUNDLES else ""
        raise BadRequest(f"Not a privilege: {name[:100]!r}", hint=f"Use one of {known}.{bundle}")
    return Privilege[upper]


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
