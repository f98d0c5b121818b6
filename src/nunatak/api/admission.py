"""Admission: the one place where the rights of a request are checked, before anything is done."""

from collections.abc import Sequence
from typing import Protocol

from nunatak.access import securables
from nunatak.access.decisions import PolicyChanged
from nunatak.access.denials import explain_hint
from nunatak.access.guard import Known
from nunatak.access.privileges import ENTRY_BITS, Privilege, names_of
from nunatak.api.http import Request
from nunatak.api.required_privileges import Declared, Need, Needs, Target, warehouse_target
from nunatak.database.records import Key
from nunatak.errors import CatalogError, Forbidden
from nunatak.iceberg.identifiers import to_jdbc


class Guarded(Declared, Protocol):
    """The part of a route that admission uses."""

    @property
    def needs(self) -> Needs: ...
    @property
    def reads_pointer(self) -> bool: ...


async def admit(route: Guarded, request: Request) -> None:
    """Checks that the caller may make the request; raises Forbidden, or NotFound for what it may not see."""
    known = request.known
    if known is None or route.privilege is Privilege.PUBLIC:
        return
    assert request.guard is not None
    needs = await route.needs(route, request)
    request.securable = needs[0].target.securable if needs else securables.SERVER
    # Cached rights are used where they suffice; missing ones are read again, so that a new grant counts at once.
    unknown = [need for need in needs if known.rights.get(need.target.securable, 0) & need.privilege != need.privilege]
    if unknown:
        await require(request, unknown)
        if request.guard.authorizer.grants_decide:
            return  # rights were read just now, together with the policy version
    # A handler that reads a pointer gets the policy version with it. Other routes, and a table to be created, do not.
    if not route.reads_pointer or any(need.target.name is None for need in needs):
        await require_current(request)


async def require_current(request: Request) -> None:
    """Raises PolicyChanged if any rights were changed since the caller was identified."""
    known, guard = request.known, request.guard
    if known is not None and guard is not None and await guard.policy_version() != known.version:
        raise PolicyChanged


async def require(request: Request, needs: Sequence[Need]) -> None:
    """Checks all needs against the current rights; raises Forbidden or NotFound."""
    known, guard = request.known, request.guard
    if known is None or guard is None:
        return
    held = await guard.ask(known, [need.target.securable for need in needs])
    for need, found in zip(needs, held, strict=True):
        if found & need.privilege == need.privilege:
            continue
        if need.filtered and await is_seen(request, need.target.securable, found):
            continue
        raise await _denial(request, known, need, found)


def sees_all(request: Request, container: str, privilege: Privilege) -> bool:
    """Whether a list of this container needs no filter; uses the rights that admission has cached."""
    if request.known is None or request.guard is None:
        return True
    if not request.guard.authorizer.grants_decide:
        return False  # an external policy may hide single entries of a container
    return bool(request.known.rights.get(container, 0) & privilege)


async def _denial(request: Request, known: Known, need: Need, found: int) -> CatalogError:
    target, missing = need.target, need.privilege & ~found
    request.context.note_denial(request, names_of(missing), target.securable)
    # NotFound instead of Forbidden for what the caller may not see: a 403 would reveal that it exists.
    home = warehouse_target(request)
    if target.securable != securables.SERVER:
        held = await _rights_held(request, known, home)
        if not await is_seen(request, home.securable, held):
            return target.absent if target.securable == home.securable else home.absent
    if not target.may_be_missing:
        seen = await is_seen(request, target.securable, found)
        if not seen or not await _exists(request, target):
            return target.absent
    return Forbidden(
        f"Principal {known.session.principal} lacks {', '.join(names_of(missing))} on "
        f"{securables.format_securable(target.securable)}",
        hint=explain_hint(known.session.principal, missing, target.securable),
    )


async def _rights_held(request: Request, known: Known, target: Target) -> int:
    assert request.guard is not None
    (held,) = await request.guard.ask(known, [target.securable])
    return held


async def is_seen(request: Request, securable: str, held: int) -> bool:
    """Whether a caller that holds these rights on the securable may see that it exists."""
    if not securables.is_container(securable):
        return bool(held & ENTRY_BITS)
    if held & ~Privilege.CONFIG_READ or securable == securables.SERVER:
        return True
    assert request.guard is not None
    assert request.known is not None
    return await request.guard.sees_inside(request.known, securable)


async def _exists(request: Request, target: Target) -> bool:
    store, home = request.catalog.store, request.warehouse.name
    if target.name is not None:
        return await store.find_kind(Key(home, to_jdbc(target.levels), target.name)) == target.kind
    return not target.levels or await store.namespace_exists(home, to_jdbc(target.levels))
