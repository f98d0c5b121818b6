"""Explains why a principal may or may not do something: the grants that apply, and the one that decides."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nunatak.access import securables
from nunatak.access.administration import Grant, check_principal_name, check_role_name, format_grantee
from nunatak.access.grants import json_of
from nunatak.access.privileges import Privilege, expand_rights
from nunatak.access.sessions import Session, principal_grantee, role_grantee
from nunatak.database.store import Store
from nunatak.errors import BadRequest

MAX_GRANTS = 10_000  # of one matrix; a longer one is not readable
MAX_GRANTERS = 10  # named to a caller who was denied: enough to find one to ask
MAX_GRANTS_READ = 1000  # per securable of the chain, when searching granters; any caller may ask


@dataclass(frozen=True)
class FoundGrant:
    """A grant to the principal itself, or to one of its roles."""

    grantee: str
    securable: str
    privileges: int


@dataclass(frozen=True)
class Explanation:
    """`grants` are all that apply to the securable, outermost first; `deciding` is the nearest that allows."""

    principal: str
    privilege: Privilege
    securable: str
    allowed: bool
    reason: str
    disabled: bool
    roles: tuple[str, ...]
    chain: tuple[str, ...]
    grants: tuple[FoundGrant, ...]
    deciding: FoundGrant | None


async def explain(
    store: Store,
    principal: str,
    privilege: Privilege,
    securable: str,
    further_roles: Sequence[str] = (),
    *,
    session: Session | None = None,
) -> Explanation:
    """Explains a decision; `further_roles` are roles that a token or a proxy would add.

    With `session`, which must be the principal's own, explains that login: its token may add roles or limit them.
    """
    check_principal_name(principal)
    rows = await store.rows("find_principal", {"principal": principal})
    known, disabled = rows[0][1] is not None, bool(rows[0][2])
    kept = [row[3] for row in rows if row[3] is not None]
    roles = tuple(dict.fromkeys([*kept, *(check_role_name(role) for role in further_roles)]))
    grantees = [principal_grantee(principal), *map(role_grantee, roles)]
    if session is not None:
        roles, grantees = session.roles, list(session.grantees)
    chain = securables.chain(securable)
    grants = await _grants_along(store, grantees, chain)
    deciding = next((each for each in reversed(grants) if expand_rights(each.privileges) & privilege), None)
    anybody = privilege is Privilege.CONFIG_READ
    allowed = not disabled and (anybody or deciding is not None)
    return Explanation(
        principal,
        privilege,
        securable,
        allowed,
        _limited(principal, grantees)
        + _reason(principal, privilege, securable, deciding, known=known, disabled=disabled),
        disabled,
        roles,
        tuple(chain),
        tuple(grants),
        deciding if allowed else None,
    )


async def _grants_along(store: Store, grantees: Sequence[str], chain: Sequence[str]) -> list[FoundGrant]:
    """Returns the grants, outermost first; on the same securable, those to the principal itself come last."""
    rows = await store.rows("find_rights", {"grantees": json_of(grantees), "securables": json_of(chain)})
    found = [FoundGrant(row[1], row[2], row[3]) for row in rows if row[1] is not None]
    return sorted(found, key=lambda each: (chain.index(each.securable), each.grantee.startswith("p:"), each.grantee))


def _limited(principal: str, grantees: Sequence[str]) -> str:
    """Returns why grants to the principal itself are not listed, or an empty string."""
    if principal_grantee(principal) in grantees:
        return ""
    roles = ", ".join(format_grantee(each) for each in grantees)
    return f"this login is limited to {roles or 'no role'}: "


def _reason(
    principal: str, privilege: Privilege, securable: str, deciding: FoundGrant | None, *, known: bool, disabled: bool
) -> str:
    name = privilege.name
    if disabled:
        return f"{principal} is disabled"
    if privilege is Privilege.CONFIG_READ:
        return "every authenticated principal may read the configuration"
    if deciding is None:
        stranger = "" if known else f"{principal} is not a principal of this catalog, and "
        return f"{stranger}no grant gives {name} on {securables.format_securable(securable)} or on a container of it"
    which = format_grantee(deciding.grantee)
    through = f" through {which}" if deciding.grantee.startswith("r:") else ""
    follows = "" if deciding.privileges & privilege else f", and an administrator there may {name}"
    return f"{principal} holds a grant on {securables.format_securable(deciding.securable)}{through}{follows}"


async def find_granters(store: Store, privilege: Privilege, chain: Sequence[str]) -> list[str]:
    """Returns grantees who may grant the privilege on the last securable of the chain, nearest grants first.

    Granting needs GRANT and the privilege itself. Lists roles, not their members, and omits disabled principals.
    """
    held: dict[str, int] = {}
    for securable in reversed(chain):
        rows = await store.rows("grants_on", {"securable": securable, "after": "", "limit": MAX_GRANTS_READ})
        for grant in (Grant(*row) for row in rows):
            held[grant.grantee] = held.get(grant.grantee, 0) | expand_rights(grant.privileges)
    disabled = {principal_grantee(row[0]) for row in await store.rows("disabled_principals", {})}
    wanted = Privilege.GRANT | privilege
    return [each for each, rights in held.items() if rights & wanted == wanted and each not in disabled][:MAX_GRANTERS]


@dataclass(frozen=True)
class Holding:
    """The privileges of a holder on a securable, including inherited ones; a role without members is its own holder."""

    securable: str
    holder: str
    privileges: int
    through: tuple[FoundGrant, ...]


async def matrix(store: Store, securable: str) -> list[Holding]:
    """Returns all holders on the securable, then the holders of grants on securables inside it."""
    inside = await _grants_inside(store, securable)
    above = [grant for each in securables.chain(securable)[:-1] for grant in await _grants_on(store, each)]
    by_place: dict[str, list[Grant]] = {}
    for grant in (*above, *inside):
        by_place.setdefault(grant.securable, []).append(grant)
    holders_of = await _holders(store)
    found = _holdings(securable, by_place, holders_of, only_direct=False)
    for place in dict.fromkeys(grant.securable for grant in inside if grant.securable != securable):
        found += _holdings(place, by_place, holders_of, only_direct=True)
    return found


class _Holders:
    """Maps a grantee to its holders: a principal to itself, a role to its members; disabled principals are omitted."""

    def __init__(self, members: Mapping[str, Sequence[str]], disabled: frozenset[str]) -> None:
        self._members = members
        self._disabled = disabled

    def of(self, grantee: str) -> list[str]:
        kind, _, name = grantee.partition(":")
        if kind == "r" and name not in self._members:
            return [grantee]
        names: Iterable[str] = self._members[name] if kind == "r" else [name]
        return [principal_grantee(each) for each in names if each not in self._disabled]


def _holdings(
    place: str, by_place: Mapping[str, Sequence[Grant]], holders: _Holders, *, only_direct: bool
) -> list[Holding]:
    through: dict[str, list[FoundGrant]] = {}
    direct: set[str] = set()
    for securable in securables.chain(place):
        for grant in by_place.get(securable, ()):
            for holder in holders.of(grant.grantee):
                through.setdefault(holder, []).append(FoundGrant(grant.grantee, securable, grant.privileges))
                if securable == place:
                    direct.add(holder)
    return [
        Holding(place, holder, _sum(grants), tuple(grants))
        for holder, grants in sorted(through.items())
        if holder in direct or not only_direct
    ]


def _sum(grants: Sequence[FoundGrant]) -> int:
    total = 0
    for grant in grants:
        total |= expand_rights(grant.privileges)
    return total


async def _holders(store: Store) -> _Holders:
    members: dict[str, list[str]] = {}
    for role, principal in await store.rows("all_members", {"limit": MAX_GRANTS}):
        members.setdefault(role, []).append(principal)
    disabled = frozenset(row[0] for row in await store.rows("disabled_principals", {}))
    return _Holders(members, disabled)


async def _grants_inside(store: Store, securable: str) -> list[Grant]:
    values = {"securable": securable, "behind": securables.behind(securable), "limit": MAX_GRANTS + 1}
    rows = await store.rows("grants_inside", values)
    if len(rows) > MAX_GRANTS:
        raise BadRequest(
            f"More than {MAX_GRANTS} grants are inside {securables.format_securable(securable)}",
            hint="Query a part of it, or list the grants page by page.",
        )
    return [Grant(*row) for row in rows]


async def _grants_on(store: Store, securable: str) -> list[Grant]:
    rows = await store.rows("grants_on", {"securable": securable, "after": "", "limit": MAX_GRANTS})
    return [Grant(*row) for row in rows]
