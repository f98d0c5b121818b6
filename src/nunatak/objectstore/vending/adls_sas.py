"""The user-delegation SAS of a vended ADLS credential: one directory, the permissions of one level, and a life."""

import re
from datetime import UTC, datetime, timedelta

import msgspec

from nunatak.objectstore.profile import AdlsProfile
from nunatak.objectstore.storage import AccessLevel, CredentialScope
from nunatak.objectstore.vending.granted_paths import UngrantablePath, granted_path

EARLIER_START = timedelta(minutes=15)  # clocks differ: a SAS that starts in the store's future is refused

# r: read, l: list, a: add, c: create, w: write, d: delete; in the order that a SAS lists them
_PERMISSIONS = {AccessLevel.READ: "rl", AccessLevel.READ_WRITE: "racwdl"}
_AUTHORITY = re.compile(r"([a-z0-9](?:[a-z0-9]|-(?!-)){1,61}[a-z0-9])@([a-z0-9]{3,24})((?:\.[a-z0-9-]+)*)")


class DirectorySas(msgspec.Struct, frozen=True):
    """The terms of a SAS, before it is signed with a user delegation key."""

    account: str
    host: str  # of the dfs endpoint, by which clients find the token
    container: str
    directory: str
    depth: int
    permissions: str
    starts: datetime
    expires: datetime


def directory_sas(profile: AdlsProfile, scope: CredentialScope, now_ms: int) -> DirectorySas:
    """Returns the terms; raises Forbidden if a SAS would open more than the scope, or cannot open all of it."""
    if not profile.hierarchical:
        raise UngrantablePath(
            "The storage account has no hierarchical namespace: a SAS would open the whole container",
            hint="Use an account with a hierarchical namespace for credentials that are limited to a table.",
        )
    if len(scope.places) != 1:
        raise UngrantablePath(
            f"A SAS opens one directory, and the table has {len(scope.places)} places",
            hint="Keep write.data.path and its like inside the table's location.",
        )
    place = scope.places[0]
    directory = granted_path(place, "abfss")
    named = _AUTHORITY.fullmatch(place.authority)
    if named is None:
        raise UngrantablePath("The location names no valid container and account of Azure")
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    return DirectorySas(
        account=named[2],
        host=named[2] + named[3],
        container=named[1],
        directory=directory,
        depth=len(place.segments),
        permissions=_PERMISSIONS[scope.level],
        starts=now - EARLIER_START,
        expires=now + timedelta(seconds=profile.session_seconds),
    )
