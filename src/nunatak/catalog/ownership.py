"""What becomes of grants and policies when something is created, dropped or renamed; in the transaction of that."""

from nunatak.access import securables
from nunatak.access.privileges import OWNER
from nunatak.access.sessions import principal_grantee
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.database.records import Change, Key, Write


def securable_of(key: Key) -> str:
    """The securable of a table or view, from how the database names it."""
    return f"{key.catalog}{securables.WAREHOUSE_END}{key.namespace}.{securables.ENTRY}{key.name}"


def grant_ownership(catalog: Catalog, caller: Caller, securable: str) -> list[Change]:
    """The creator owns it, and nobody else: whatever was granted here is left by what another client has dropped.

    If nothing was, the policy's version stays: nobody lost a right, and a missing one is never remembered.
    """
    if not caller.owns:
        return []
    inside = {"securable": securable, "behind": securables.behind(securable)}
    values = {
        "grantee": principal_grantee(caller.principal),
        "securable": securable,
        "privileges": int(OWNER),
        "granted_by": caller.principal,
        "granted_ms": catalog.now_ms(),
    }
    return [
        Write("bump_if_granted_inside", inside),
        Write("forget_grants_inside", inside),
        Write("grant_privileges", values),
    ]


def revoke_all_grants(key: Key) -> list[Change]:
    """Whoever creates something of that name later starts anew."""
    where = {"securable": securable_of(key)}
    return [Write("bump_if_granted", where), Write("forget_grants_on", where), Write("forget_policies_on", where)]


def move_grants(key: Key, to: Key) -> list[Change]:
    """What was granted and set goes along with what it is about; what a dropped table left behind does not count."""
    where = {"securable": securable_of(key)}
    stale = {"securable": securable_of(to)}
    return [
        Write("bump_if_granted", where),
        Write("forget_grants_on", stale),
        Write("move_grants", {**where, "to_securable": stale["securable"]}),
        Write("forget_policies_on", stale),
        Write("move_policies", {**where, "to_securable": stale["securable"]}),
    ]


def revoke_grants_inside(catalog_name: str, namespace: str) -> list[Change]:
    """A namespace and, since it was empty, whatever was once granted or set inside it."""
    securable = f"{catalog_name}{securables.WAREHOUSE_END}{namespace}."
    where = {"securable": securable, "behind": securables.behind(securable)}
    return [
        Write("bump_if_granted_inside", where),
        Write("forget_grants_inside", where),
        Write("forget_policies_inside", where),
    ]
