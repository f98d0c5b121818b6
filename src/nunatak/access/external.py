"""What decision points outside the database have in common: in whose name they are asked, and what they may answer."""

from collections.abc import Iterable, Sequence

from nunatak.access.privileges import BUNDLES, GRANTABLE, Privilege, expanded, names_of
from nunatak.access.sessions import Session, principal_grantee

# Lets somebody see that a container is there without holding a right on it, because they hold one inside.
SEE = "SEE"
PRIVILEGES = {name: Privilege[name] for name in names_of(GRANTABLE)}
_KNOWN: dict[str, int] = {**PRIVILEGES, **BUNDLES, SEE: 0}


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
    """The privileges and bundles of an answer as one number, with what follows from them."""
    total = 0
    for name in names:
        if name not in _KNOWN:
            raise Undecided(f"unknown privilege {name[:64]!r}")
        total |= _KNOWN[name]
    return expanded(total)


def agreed(answers: Sequence[Sequence[int]]) -> list[int]:
    """What each of several answers about the same securables allows."""
    first, *others = answers
    held = list(first)
    for other in others:
        held = [mine & theirs for mine, theirs in zip(held, other, strict=True)]
    return held
