"""Lists for callers who may not see everything: the database filters by grants, or the authorizer by name."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import msgspec

from nunatak.access import securables
from nunatak.access.grants import json_of
from nunatak.access.guard import Known
from nunatak.access.privileges import ENTRY_BITS, Privilege
from nunatak.api.admission import is_seen, sees_all
from nunatak.api.http import Request
from nunatak.database.records import Found, Kind
from nunatak.iceberg.identifiers import Namespace, from_jdbc, to_jdbc

T = TypeVar("T")

CHUNK = 1000  # names whose rights are checked together

# A grant of one of these on a container shows every table inside; any grant on a table shows that table.
LISTING = Privilege.TABLE_LIST | Privilege.WAREHOUSE_ADMIN | Privilege.SERVER_ADMIN


async def list_entries(
    request: Request, namespace: Namespace, kind: Kind, after: str, limit: int
) -> tuple[str, str | None]:
    """As `catalog.tables.list_entries`, limited to the entries that the caller may see."""
    names: list[str] = []
    async for name in _entries(request, namespace, kind, after):
        if len(names) == limit:
            return _as_json(namespace, names), names[-1]
        names.append(name)
    return _as_json(namespace, names), None


def _as_json(namespace: Namespace, names: list[str]) -> str:
    items = [{"namespace": namespace, "name": name} for name in names]
    return msgspec.json.encode(items).decode()[1:-1]


async def _entries(request: Request, namespace: Namespace, kind: Kind, after: str) -> AsyncIterator[str]:
    known = _require_known(request)
    container = securables.namespace(request.warehouse.name, namespace)
    values = {"catalog": request.warehouse.name, "namespace": to_jdbc(namespace), "type": kind, "limit": CHUNK}
    by_grants = _grants_decide(request)
    if by_grants:
        prefix = container + securables.ENTRY
        values |= {"grantees": json_of(known.session.grantees), "prefix": prefix, "behind": prefix + securables.BEHIND}
    while True:
        rows = await request.catalog.store.rows(
            "granted_names" if by_grants else "names_after", {**values, "after": after}
        )
        names = [row[0] for row in rows]
        wanted = [f"{container}{securables.ENTRY}{name}" for name in names]
        # The query `granted_names` returns only visible names: they need no second check.
        held = [int(ENTRY_BITS)] * len(names) if by_grants else await _rights_held(request, known, wanted)
        for name, rights in zip(names, held, strict=True):
            if rights & ENTRY_BITS:
                yield name
        if len(names) < CHUNK:
            return
        after = names[-1]


async def list_namespaces(
    request: Request, parent: Namespace, after: str, limit: int
) -> tuple[list[Namespace], str | None]:
    """As `catalog.namespaces.list_namespaces`, limited to children in which the caller may see anything."""
    children: list[Namespace] = []
    async for child in _children(request, parent, after):
        if len(children) == limit:
            return children, to_jdbc(children[-1])
        children.append(child)
    return children, None


async def _children(request: Request, parent: Namespace, after: str) -> AsyncIterator[Namespace]:
    if _grants_decide(request):
        async for child in _granted_children(request, parent, after):
            # A grant may name a namespace that no longer exists.
            if await request.catalog.store.namespace_exists(request.warehouse.name, to_jdbc(child)):
                yield child
        return
    known = _require_known(request)
    position: str | None = after
    while position is not None:
        names, position = await request.catalog.store.list_namespaces(
            request.warehouse.name, to_jdbc(parent) if parent else "", position, CHUNK
        )
        found = [from_jdbc(name) for name in names]
        wanted = [securables.namespace(request.warehouse.name, levels) for levels in found]
        for levels, securable, held in zip(found, wanted, await _rights_held(request, known, wanted), strict=True):
            assert request.guard is not None
            if held & ~Privilege.CONFIG_READ or await request.guard.sees_inside(known, securable):
                yield levels


async def _granted_children(request: Request, parent: Namespace, after: str) -> AsyncIterator[Namespace]:
    """Yields the children on which, or inside which, the caller has a grant; each query skips to the next child."""
    container = securables.namespace(request.warehouse.name, parent)
    home = securables.warehouse(request.warehouse.name)
    values = {"grantees": json_of(_require_known(request).session.grantees), "behind": securables.behind(container)}
    position = f"{home}{after}.{securables.BEHIND}" if after else container
    while True:
        rows = await request.catalog.store.rows("next_granted", {**values, "after": position})
        if not rows or rows[0][0] is None:
            return
        found: str = rows[0][0]
        rest = found[len(container) :]
        if rest.startswith(securables.ENTRY):  # a table of the parent; tables sort before child namespaces
            position = f"{container}{securables.ENTRY}{securables.BEHIND}"
            continue
        child = f"{container}{rest.partition('.')[0]}."
        yield securables.parts(child)[1]
        position = securables.behind(child)


async def only_matches_seen(request: Request, matches: list[Found]) -> list[Found]:
    """Returns the search matches that the caller may see."""
    warehouse = request.warehouse.name
    if not matches or sees_all(request, securables.warehouse(warehouse), Privilege.TABLE_LIST):
        return matches
    known = _require_known(request)
    wanted = [f"{securables.warehouse(warehouse)}{each.namespace}.{securables.ENTRY}{each.name}" for each in matches]
    if not _grants_decide(request):
        held = await _rights_held(request, known, wanted)
        return [each for each, rights in zip(matches, held, strict=True) if rights & ENTRY_BITS]
    chains = [securables.chain(securable) for securable in wanted]
    every = list(dict.fromkeys(each for chain in chains for each in chain))
    values = {"grantees": json_of(known.session.grantees), "securables": json_of(every)}
    rows = await request.catalog.store.rows("find_rights", values)
    granted = {row[2] for row in rows}
    listing = {row[2] for row in rows if row[2] is not None and row[3] & LISTING}
    return [
        each
        for each, chain in zip(matches, chains, strict=True)
        if chain[-1] in granted or not listing.isdisjoint(chain)
    ]


async def only_seen(request: Request, found: Sequence[T], securable_of: Callable[[T], str]) -> list[T]:
    """Returns the items whose securable the caller may see, inside a container to which it was admitted.

    Grants cover everything inside a container; an external policy may hide single entries.
    """
    if request.guard is None or request.known is None or _grants_decide(request):
        return list(found)
    wanted = [securable_of(each) for each in found]
    held = await _rights_held(request, request.known, wanted)
    return [
        each
        for each, securable, rights in zip(found, wanted, held, strict=True)
        if await is_seen(request, securable, rights)
    ]


def _require_known(request: Request) -> Known:
    assert request.known is not None, "a list needs no filter where nobody is asked who they are"
    return request.known


def _grants_decide(request: Request) -> bool:
    assert request.guard is not None
    return request.guard.authorizer.grants_decide


async def _rights_held(request: Request, known: Known, wanted: list[str]) -> list[int]:
    assert request.guard is not None
    return await request.guard.ask(known, wanted) if wanted else []
