"""What decision points outside the database have in common: in whose name they are asked, and what they may answer."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from nunatak.access.privileges import BUNDLES, GRANTABLE, Privilege, expand_rights, names_of
from nunatak.access.sessions import Session, principal_grantee

# Lets somebody see that a container is there without holding a right on it, because they hold one inside. It comes
# along with the rights, so that a list need not ask twice.
SEEN = Privilege.SEE
ANSWERS = {name: Privilege[name] for name in (*names_of(GRANTABLE), "SEE")}
_KNOWN: dict[str, int] = {**ANSWERS, **BUNDLES}


class Undecided(Exception):
    """No decision, or one that cannot be understood; the message is for the operator."""


def principals_asked_about(session: Session) -> tuple[str, ...]:
    """In whose name to ask: all of them must be allowed.

    A session that acts in its roles alone is also asked about as nobody in these roles. What a policy allows to the
    principal by name then does not count, and what it forbids to it by name still does.
    """
    if principal_grantee(session.principal) in session.grantees:
        return (session.principal,)
    return (session.principal, "")


def sum_of(names: Iterable[str]) -> int:
    """The privileges and bundles of an answer as one number, with what follows from them; whoever holds any, sees."""
    total = 0
    for name in names:
        if name not in _KNOWN:
            raise Undecided(f"unknown privilege {name[:64]!r}")
        total |= _KNOWN[name] | SEEN
    return expand_rights(total)


def intersect_rights(answers: Sequence[Sequence[int]]) -> list[int]:
    """What all of several answers about the same securables allow; to be seen is said only where it is all there is."""
    common = [reduce(and_, held) for held in zip(*answers, strict=True)]
    return [int(held & ~SEEN) or held for held in common]
