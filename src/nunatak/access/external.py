"""Shared by the external authorizers (OPA, Cedar): the principals they are asked about, and valid answers."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from nunatak.access.privileges import BUNDLES, GRANTABLE, Privilege, expand_rights, names_of
from nunatak.access.sessions import Session, principal_grantee

# Makes a container visible to a caller without privileges on it, because it holds one inside. It is part of the rights,
# so that a list need not ask twice.
SEEN = Privilege.SEE
ANSWERS = {name: Privilege[name] for name in (*names_of(GRANTABLE), "SEE")}
_KNOWN: dict[str, int] = {**ANSWERS, **BUNDLES}


class Undecided(Exception):
    """No decision, or an unusable one; the message is for the operator."""


def principals_asked_about(session: Session) -> tuple[str, ...]:
    """Returns the principals to ask about; all of them must be allowed.

    For a session limited to its roles, also asks about an empty principal in these roles. Permissions for the principal
    by name then do not count, while prohibitions by name still do.
    """
    if principal_grantee(session.principal) in session.grantees:
        return (session.principal,)
    return (session.principal, "")


def sum_of(names: Iterable[str]) -> int:
    """Returns the union of the named privileges and bundles, expanded; any privilege includes SEE. Raises Undecided."""
    total = 0
    for name in names:
        if name not in _KNOWN:
            raise Undecided(f"unknown privilege {name[:64]!r}")
        total |= _KNOWN[name] | SEEN
    return expand_rights(total)


def intersect_rights(answers: Sequence[Sequence[int]]) -> list[int]:
    """Returns the rights that all answers allow, per securable; keeps SEE only where it is the only one."""
    common = [reduce(and_, held) for held in zip(*answers, strict=True)]
    return [int(held & ~SEEN) or held for held in common]
