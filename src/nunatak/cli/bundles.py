"""Formats privileges for people: bundles by their names, all privileges of an administrator as one word."""

from collections.abc import Sequence

from nunatak.access.privileges import BUNDLES, Privilege, names_of

EVERYTHING = "everything"


def in_bundles(names: Sequence[str]) -> str:
    """Returns the largest bundle that is held completely, followed by the privileges outside it."""
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
