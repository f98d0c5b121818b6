"""The built-in Authorizer: grants in the database to a principal or a role, on a securable or one of its ancestors."""

from collections.abc import Sequence

import msgspec

from nunatak.access import securables
from nunatak.access.privileges import expand_rights
from nunatak.access.sessions import Session
from nunatak.database.store import Store


class Grants:
    """The Authorizer that reads our own tables."""

    grants_decide = True

    def __init__(self, store: Store) -> None:
        self._store = store

    async def rights(self, session: Session, wanted: Sequence[str]) -> list[int]:
        _, found = await self.versioned_rights(session, wanted)
        return found

    async def versioned_rights(self, session: Session, wanted: Sequence[str]) -> tuple[int, list[int]]:
        """As `rights`, with the policy version that they belong to."""
        chains = [securables.chain(securable) for securable in wanted]
        every = list(dict.fromkeys(each for chain in chains for each in chain))
        values = {"grantees": json_of(session.grantees), "securables": json_of(every)}
        rows = await self._store.rows("find_rights", values)
        held: dict[str, int] = {}
        for _, _, securable, privileges in rows:
            if securable is not None:
                held[securable] = held.get(securable, 0) | privileges
        return rows[0][0], [_along(chain, held) for chain in chains]

    async def sees_inside(self, session: Session, container: str) -> bool:
        values = {"container": container, "behind": securables.behind(container)}
        values["grantees"] = json_of(session.grantees)
        return bool(await self._store.rows("granted_inside", values))

    async def close(self) -> None:
        """Does nothing: the store is not owned by the authorizer."""


def _along(chain: Sequence[str], held: dict[str, int]) -> int:
    """Returns the union of the rights on the chain, expanded at each level."""
    total = 0
    for securable in chain:
        total = expand_rights(total | held.get(securable, 0))
    return total


def json_of(texts: Sequence[str]) -> str:
    """Encodes a list as the statements of `access.sql` expect it."""
    return msgspec.json.encode(list(texts)).decode()
