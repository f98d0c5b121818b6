"""What the handlers of the management API share: checks of the caller, paging, and changes with their audit rows.

A route that does not require SERVER_ADMIN is open to every authenticated caller; its handler then shows and changes
only what the caller's own rights allow.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from msgspec import UnsetType

from nunatak.access import securables
from nunatak.access.denials import explain_hint
from nunatak.access.privileges import ENTRY_BITS, Privilege, expand_rights, names_of
from nunatak.api.http import Request, decode_segment
from nunatak.api.paging import Page, list_of
from nunatak.api.wire import stored_answer
from nunatak.catalog.write import write
from nunatak.database.records import Change, Key, StoredResponse
from nunatak.errors import BadRequest, Forbidden, NotFound
from nunatak.iceberg.identifiers import to_jdbc

T = TypeVar("T")
MAY_GRANT = Privilege.GRANT | Privilege.WAREHOUSE_ADMIN | Privilege.SERVER_ADMIN


async def is_administrator(request: Request) -> bool:
    return bool(await request.rights(securables.SERVER) & Privilege.SERVER_ADMIN)


async def require_administrator_or(request: Request, allowed: bool, what: str) -> None:
    if not allowed and not await is_administrator(request):
        needed = Privilege.SERVER_ADMIN
        raise note_denial(
            request,
            needed,
            securables.SERVER,
            Forbidden(f"The caller may not see {what}", hint=hint_for(request, needed, securables.SERVER)),
        )


def is_caller(request: Request, principal: str) -> bool:
    return request.session is not None and request.session.principal == principal


def hint_for(request: Request, privilege: Privilege, securable: str) -> str:
    return explain_hint(request.caller.principal, privilege, securable)


def note_denial(request: Request, privilege: Privilege, securable: str, error: Forbidden) -> Forbidden:
    request.context.note_denial(request, names_of(privilege), securable)
    return error


@contextmanager
def denials_noted(request: Request, privilege: Privilege, securable: str) -> Iterator[None]:
    try:
        yield
    except Forbidden as error:
        raise note_denial(request, privilege, securable, error) from error


async def rights_on(request: Request, securable: str) -> int:
    """Returns the caller's rights on the securable; raises NotFound if they do not let the caller see it."""
    rights = await request.rights(securable)
    # Every authenticated caller holds CONFIG_READ, so it does not make a container visible.
    shows = ~Privilege.CONFIG_READ if securables.is_container(securable) else ENTRY_BITS
    if securable != securables.SERVER and not rights & shows:
        raise no_securable(securable)
    return rights


async def require_granter(request: Request, securable: str) -> None:
    if not expand_rights(await rights_on(request, securable)) & MAY_GRANT:
        needed = Privilege.GRANT
        message = f"The caller may not see the grants on {securables.format_securable(securable)}: that requires GRANT"
        raise note_denial(request, needed, securable, Forbidden(message, hint=hint_for(request, needed, securable)))


def no_securable(securable: str) -> NotFound:
    return NotFound(f"{securables.format_securable(securable)} does not exist")


async def securable_exists(request: Request, securable: str) -> bool:
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


def path_name(request: Request, position: int = 0) -> str:
    return decode_segment(request.path_names[position])


def query_name(request: Request, name: str) -> str:
    value = request.query.get(name)
    if not value:
        raise BadRequest(f"The parameter {name} is missing")
    return value


async def write_changes(request: Request, changes: Sequence[Change]) -> None:
    await write(request.catalog, request.caller, changes, StoredResponse(204))


async def write_and_answer(request: Request, changes: Sequence[Change], value: T) -> T:
    """Applies the changes and stores the value as the response if the request has an Idempotency-Key."""
    await write(request.catalog, request.caller, changes, stored_answer(request.caller, value))
    return value


def page_of(request: Request, resource: str) -> Page:
    return request.context.tokens.page(list_of(request, resource), request.query)


def next_token(
    request: Request, resource: str, page: Page, found: Sequence[T], position: Callable[[T], str]
) -> str | UnsetType:
    """Returns the token of the next page; callers read one row more than the page holds to see whether there is one."""
    last = position(found[page.limit - 1]) if len(found) > page.limit else None
    return request.context.tokens.after(list_of(request, resource), last)
