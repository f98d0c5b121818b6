"""Changes of grants and policies when a securable is created, dropped or renamed, for the same transaction."""

from nunatak.access import securables
from nunatak.access.privileges import OWNER
from nunatak.access.sessions import principal_grantee
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.database.records import Change, Key, Write


def securable_of(key: Key) -> str:
    """Returns the securable of a table or view from its database key."""
    return f"{key.catalog}{securables.WAREHOUSE_END}{key.namespace}.{securables.ENTRY}{key.name}"


def grant_ownership(catalog: Catalog, caller: Caller, securable: str) -> list[Change]:
    """Makes the creator the only owner; removes stale grants, left by an object that another client dropped.

    Without stale grants the policy version stays: no principal lost a privilege, and missing ones are never cached.
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
    """Removes grants and policies of a dropped object, so that a new one of the same name starts without them."""
    where = {"securable": securable_of(key)}
    # The version is increased first: that statement looks for the grants which the next one deletes.
    return [Write("bump_if_granted", where), Write("forget_grants_on", where), Write("forget_policies_on", where)]


def move_grants(key: Key, to: Key) -> list[Change]:
    """Moves grants and policies to the new name; removes stale ones that a dropped table left there."""
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
    """Removes grants and policies on a namespace and inside it: it was empty, so those inside are stale."""
    securable = f"{catalog_name}{securables.WAREHOUSE_END}{namespace}."
    where = {"securable": securable, "behind": securables.behind(securable)}
    return [
        Write("bump_if_granted_inside", where),
        Write("forget_grants_inside", where),
        Write("forget_policies_inside", where),
    ]
