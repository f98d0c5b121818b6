"""Externally authenticated principals: valid names, and their roles in the database."""

from collections.abc import Iterable

from nunatak.access.administration import check_principal_name
from nunatak.database.store import Store
from nunatak.errors import BadRequest, NotAuthenticated


def is_name(text: str) -> bool:
    """Returns whether this is a valid name of a principal or a role."""
    try:
        check_principal_name(text)
    except BadRequest:
        return False
    return True


async def find_roles(store: Store, principal: str) -> tuple[str, ...]:
    """Returns the stored roles, none if the principal is not stored; raises NotAuthenticated if it is disabled."""
    rows = await store.rows("find_principal", {"principal": principal})
    if any(row[2] for row in rows):
        raise NotAuthenticated(
            f"Principal {principal} is disabled", hint="Ask an administrator of this server to enable it again."
        )
    return tuple(row[3] for row in rows if row[3] is not None)


def merge_roles(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Returns each role once, sorted; omits invalid names, which cannot have been granted anything."""
    return tuple(sorted({role for role in (*first, *second) if is_name(role)}))
