"""The interface of authorizers, and the exception for an outdated decision."""

from collections.abc import Sequence
from typing import Protocol

from nunatak.access.sessions import Session


class Authorizer(Protocol):
    """Grants in the database, OPA or Cedar; after an exception nothing is allowed."""

    # Whether lists are filtered by the grants in the database; otherwise by `rights`, name by name.
    grants_decide: bool

    async def rights(self, session: Session, securables: Sequence[str]) -> list[int]:
        """Returns for each securable (see securables.py) the union of the privileges held there, even inherited."""

    async def sees_inside(self, session: Session, container: str) -> bool:
        """Returns whether anything inside the container is visible; called only where `rights` returned none."""

    async def close(self) -> None: ...


class PolicyChanged(Exception):
    """Privileges changed since a cached decision was made: nothing was done, decide again."""
