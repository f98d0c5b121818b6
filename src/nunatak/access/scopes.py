"""Scopes of tokens: everything that the principal may do, or only what some of its roles may."""

from nunatak.errors import BadRequest

CATALOG = "catalog"
ROLE_MARK = "PRINCIPAL_ROLE"
ALL_ROLES = f"{ROLE_MARK}:ALL"

# The only roles that count, without grants to the principal itself; None for everything.
Scope = frozenset[str] | None


class ScopeRefused(BadRequest):
    """The scope is invalid, or wider than what the caller holds."""


def parse_scope(text: str) -> Scope:
    """Parses `scope` of a token request. Engines send words of their own in it, which are ignored."""
    roles = set()
    for word in text.split():
        mark, _, role = word.partition(":")
        if mark.upper() != ROLE_MARK:
            # A near miss was meant to name a role: ignoring it would grant more than was requested.
            if mark.upper().startswith("PRINCIPAL"):
                raise ScopeRefused(f"Invalid scope: {word[:200]!r}", hint=f"Write {ROLE_MARK}:<role> or {ALL_ROLES}.")
            continue
        if mark != ROLE_MARK or not role:
            raise ScopeRefused(f"Invalid scope: {word[:200]!r}", hint=f"Write {ROLE_MARK}:<role> or {ALL_ROLES}.")
        roles.add(role)
    return None if not roles or "ALL" in roles else frozenset(roles)


def format_scope(scope: Scope) -> str:
    return CATALOG if scope is None else " ".join(f"{ROLE_MARK}:{role}" for role in sorted(scope))


def narrow_scope(wanted: Scope, held: Scope) -> Scope:
    """Returns `wanted` if it is no wider than `held`, and `held` if no role is named; raises ScopeRefused."""
    if wanted is None or held is None:
        return held if wanted is None else wanted
    if wanted <= held:
        return wanted
    raise ScopeRefused(f"Invalid scope: role {min(wanted - held)} is not one that these credentials may be used for")


def common(one: Scope, other: Scope) -> Scope:
    """Returns the scope that both allow."""
    if one is None or other is None:
        return other if one is None else one
    return one & other
