"""Privileges as people read them: a bundle by its name, and what an administrator may in one word."""

from collections.abc import Sequence

from nunatak.access.privileges import BUNDLES, Privilege, names_of

EVERYTHING = "everything"


def in_bundles(names: Sequence[str]) -> str:
    """The largest bundle that is held whole, and what is held besides."""
    held = 0
    for name in names:
        held |= Privilege[name]
    if held & Privilege.SERVER_ADMIN:
        return f"{EVERYTHING} (SERVER_ADMIN)"
    if held & Privilege.WAREHOUSE_ADMIN:
        return f"{EVERYTHING} (WAREHOUSE_ADMIN)"
    for bundle in reversed(BUNDLES):  # the largest comes last
        if held & BUNDLES[bundle] == BUNDLES[bundle]:
            return ", ".join([bundle, *names_of(held & ~BUNDLES[bundle])])
    return ", ".join(names_of(held))
