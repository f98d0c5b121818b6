"""Who decides: the interface of a decision point, and what it answers."""

from collections.abc import Sequence
from typing import Protocol

from nunatak.access.sessions import Session


class Authorizer(Protocol):
    """The grants in the database, OPA or Cedar; an error raised means nobody may do anything."""

    # Whether lists are filtered by the grants in the database; otherwise name by name with `rights`.
    grants_decide: bool

    async def rights(self, session: Session, securables: Sequence[str]) -> list[int]:
        """For each securable (see securables.py) the sum of the privileges held there, inherited ones too."""

    async def sees_inside(self, session: Session, container: str) -> bool:
        """Whether anything inside the container may be seen; asked only where `rights` were none at all."""

    async def close(self) -> None: ...


class PolicyChanged(Exception):
    """Somebody's rights changed since a remembered decision was made: nothing was done, decide again."""
