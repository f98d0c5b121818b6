"""Principals, roles, grants, credentials and warehouses: each change as a list of writes for one transaction.

Every list begins by incrementing the policy version. That row serialises all changes of privileges, across all servers,
and tells caches of rights that they are out of date. Every list contains its own audit row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nunatak.access import securables
from nunatak.access.audit_rows import audit_row
from nunatak.access.credentials import NewCredential
from nunatak.access.denials import explain_hint
from nunatak.access.privileges import BUNDLES, GRANTABLE, Privilege, expand_rights, names_of
from nunatak.access.sessions import principal_grantee, role_grantee
from nunatak.database.records import Change, Write
from nunatak.database.store import Store
from nunatak.errors import AlreadyExists, BadRequest, Conflict, Forbidden, NotFound

MAX_NAME_LENGTH = 128
MAX_NOTE_LENGTH = 1000
ALL_BITS = (1 << 62) - 1
LAST_CREDENTIAL_MS = 86_400_000  # a day: time to notice that the last administrator's credential expires
ANONYMOUS = "anonymous"  # the principal of requests that are not authenticated
_MAY_GRANT = Privilege.GRANT | Privilege.WAREHOUSE_ADMIN | Privilege.SERVER_ADMIN
_KINDS = {"principal": principal_grantee, "role": role_grantee}


@dataclass(frozen=True)
class Actor:
    """The principal that makes a change, the time, and the request; `origin` is the text of audit_rows.origin_text.

    `external` means that the request needed no credential of this server: an identity provider, a proxy or a client
    certificate authenticated the principal, or authentication is off.
    """

    principal: str
    at_ms: int
    request_id: str | None = None
    origin: str | None = None
    external: bool = False


@dataclass(frozen=True)
class Principal:
    name: str
    disabled: bool
    note: str | None
    created_ms: int


@dataclass(frozen=True)
class Role:
    name: str
    note: str | None
    created_ms: int


@dataclass(frozen=True)
class Grant:
    """`grantee` is in the database's form; format_grantee prints it."""

    grantee: str
    securable: str
    privileges: int
    granted_by: str
    granted_ms: int


@dataclass(frozen=True)
class ListedCredential:
    """The metadata of a credential; its secret cannot be read again."""

    credential_id: str
    principal: str
    kind: str
    roles: tuple[str, ...] | None
    note: str | None
    created_ms: int
    expires_ms: int | None
    last_used_ms: int | None


# Names


def check_principal_name(name: str) -> str:
    return _check_printable(name, "principal")


def check_role_name(name: str) -> str:
    if name == "ALL":
        raise BadRequest(f"Invalid role name: {name}", hint=f"The scope PRINCIPAL_ROLE:{name} means every role.")
    return _check_printable(name, "role")


def _check_printable(name: str, what: str) -> str:
    """Returns the name if it is printable on one line; without commas, which separate names in headers and settings."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable() or "," in name or name != name.strip():
        raise BadRequest(
            f"Invalid name of a {what}: {name[:MAX_NAME_LENGTH]!r}",
            hint=f"Use 1 to {MAX_NAME_LENGTH} printable characters, no comma, and no space at either end.",
        )
    return name


def parse_grantee(text: str) -> str:
    """Parses `principal:NAME` or `role:NAME` (first word in any case) into the database's form; raises BadRequest."""
    kind, _, name = text.partition(":")
    if kind.lower() not in _KINDS:
        raise BadRequest(f"Not a grantee: {text[:200]!r}", hint="Write principal:NAME or role:NAME.")
    return _KINDS[kind.lower()](_check_printable(name, kind.lower()))


def format_grantee(grantee: str) -> str:
    kind, _, name = grantee.partition(":")
    return f"{'role' if kind == 'r' else 'principal'}:{name}"


def parse_privileges(names: Sequence[str]) -> Privilege:
    """Returns the union of the named privileges and bundles; raises BadRequest for an unknown name or an empty list."""
    total = Privilege(0)
    for name in names:
        upper = name.strip().upper()
        if upper in BUNDLES:
            total |= BUNDLES[upper]
        elif upper in Privilege.__members__ and Privilege[upper] & GRANTABLE:
            total |= Privilege[upper]
        else:
            known = ", ".join([*BUNDLES, *names_of(GRANTABLE)])
            raise BadRequest(f"Not a privilege: {name[:100]!r}", hint=f"Use any of {known}.")
    if not total:
        raise BadRequest("No privilege is named")
    return total


# Principals


def create_principal(actor: Actor, name: str, note: str | None = None) -> list[Change]:
    check_principal_name(name)
    if name == ANONYMOUS:
        raise BadRequest(f"Invalid name of a principal: {name} is reserved for unauthenticated callers")
    values = {"principal": name, "note": _note(note), "created_ms": actor.at_ms}
    exists = AlreadyExists(f"Principal already exists: {name}")
    return _changes(actor, "create-principal", {"principal": name}, [Write("add_principal", values, exists)])


async def update_principal(
    store: Store, actor: Actor, name: str, *, disabled: bool | None = None, note: str | None = None
) -> list[Change]:
    """Updates `disabled` and `note`; None leaves the value unchanged."""
    values = {"principal": name, "disabled": None if disabled is None else int(disabled), "note": _note(note)}
    guard = await _keep_an_administrator(store, actor) if disabled else []
    detail = {"principal": name} | ({} if disabled is None else {"disabled": disabled})
    return _changes(actor, "update-principal", detail, [Write("set_principal", values, no_principal(name)), *guard])


async def drop_principal(store: Store, actor: Actor, name: str) -> list[Change]:
    """Drops the principal with its credentials, role memberships and grants."""
    writes = [
        Write("drop_principal", {"principal": name}, no_principal(name)),
        Write("drop_credentials_of", {"principal": name}),
        Write("drop_memberships", {"principal": name}),
        Write("forget_grants_of", {"grantee": principal_grantee(name)}),
    ]
    return _changes(
        actor, "drop-principal", {"principal": name}, [*writes, *await _keep_an_administrator(store, actor)]
    )


async def list_principals(store: Store, after: str, limit: int) -> list[Principal]:
    rows = await store.rows("list_principals", {"after": after, "limit": limit})
    return [Principal(row[0], bool(row[1]), row[2], row[3]) for row in rows]


async def load_principal(store: Store, name: str) -> tuple[Principal, tuple[str, ...]]:
    """Returns the principal and its roles; raises NotFound."""
    rows = await store.rows("load_principal", {"principal": name})
    if not rows:
        raise no_principal(name)
    first = rows[0]
    roles = tuple(row[4] for row in rows if row[4] is not None)
    return Principal(first[0], bool(first[1]), first[2], first[3]), roles


def no_principal(name: str) -> NotFound:
    return NotFound(f"Principal does not exist: {name}")


# Roles


def create_role(actor: Actor, name: str, note: str | None = None) -> list[Change]:
    values = {"role": check_role_name(name), "note": _note(note), "created_ms": actor.at_ms}
    exists = AlreadyExists(f"Role already exists: {name}")
    return _changes(actor, "create-role", {"role": name}, [Write("add_role", values, exists)])


async def drop_role(store: Store, actor: Actor, name: str) -> list[Change]:
    """Drops the role with its memberships and grants."""
    writes = [
        Write("drop_role", {"role": name}, no_role(name)),
        Write("drop_members", {"role": name}),
        Write("forget_grants_of", {"grantee": role_grantee(name)}),
    ]
    return _changes(actor, "drop-role", {"role": name}, [*writes, *await _keep_an_administrator(store, actor)])


async def list_roles(store: Store, after: str, limit: int) -> list[Role]:
    return [Role(*row) for row in await store.rows("list_roles", {"after": after, "limit": limit})]


async def load_role(store: Store, name: str) -> Role:
    rows = await store.rows("find_role", {"role": name})
    if not rows:
        raise no_role(name)
    return Role(*rows[0])


def add_member(actor: Actor, role: str, principal: str) -> list[Change]:
    both = {"role": role, "principal": principal}
    # The touches lock both rows, so that neither can be dropped while the membership is added.
    writes = [
        Write("touch_role", {"role": role}, no_role(role)),
        Write("touch_principal", {"principal": principal}, no_principal(principal)),
        Write("add_member", both, AlreadyExists(f"Principal {principal} is a member of role {role} already")),
    ]
    return _changes(actor, "add-member", both, writes)


async def remove_member(store: Store, actor: Actor, role: str, principal: str) -> list[Change]:
    both = {"role": role, "principal": principal}
    gone = NotFound(f"Principal {principal} is not a member of role {role}")
    return _changes(
        actor, "remove-member", both, [Write("drop_member", both, gone), *await _keep_an_administrator(store, actor)]
    )


async def list_members(store: Store, role: str, after: str, limit: int) -> list[str]:
    """Returns the names of the members; raises NotFound if the role does not exist."""
    await load_role(store, role)
    rows = await store.rows("list_members", {"role": role, "after": after, "limit": limit})
    return [row[0] for row in rows]


def no_role(name: str) -> NotFound:
    return NotFound(f"Role does not exist: {name}")


# Grants


def grant(actor: Actor, rights: int, grantee: str, securable: str, privileges: Privilege) -> list[Change]:
    """Grants privileges; raises Forbidden beyond `rights`, which are the granter's own on the securable."""
    _check_place(securable, privileges)
    _check_granter(actor.principal, rights, securable, privileges, "grant")
    values = {
        "grantee": grantee,
        "securable": securable,
        "privileges": int(privileges),
        "granted_by": actor.principal,
        "granted_ms": actor.at_ms,
    }
    detail = {"grantee": format_grantee(grantee), "privileges": names_of(privileges)}
    writes = [_touch_grantee(grantee), Write("grant_privileges", values)]
    return _changes(actor, "grant", detail, writes, securable)


async def revoke(
    store: Store, actor: Actor, rights: int, grantee: str, securable: str, privileges: Privilege
) -> list[Change]:
    """Revokes what was granted on exactly this securable; an inherited privilege is revoked where it was granted."""
    _check_granter(actor.principal, rights, securable, privileges, "revoke")
    place = {"grantee": grantee, "securable": securable}
    nothing = NotFound(
        f"{format_grantee(grantee)} was granted none of {', '.join(names_of(privileges))} on "
        f"{securables.format_securable(securable)}",
        hint="`nunatak access explain` says where a right comes from.",
    )
    taken = {**place, "taken": int(privileges), "kept": ALL_BITS & ~int(privileges)}
    writes = [Write("revoke_privileges", taken, nothing), Write("forget_empty_grants", {"grantee": grantee})]
    if privileges & Privilege.SERVER_ADMIN:
        writes += await _keep_an_administrator(store, actor)
    detail = {"grantee": format_grantee(grantee), "privileges": names_of(privileges)}
    return _changes(actor, "revoke", detail, writes, securable)


def _check_place(securable: str, privileges: Privilege) -> None:
    """Raises BadRequest for an administrator's privilege on a securable deeper than the level it administers."""
    depth = len(securables.chain(securable)) - 1
    if privileges & Privilege.SERVER_ADMIN and depth > 0:
        raise BadRequest("SERVER_ADMIN is granted on the server only")
    if privileges & Privilege.WAREHOUSE_ADMIN and depth > 1:
        raise BadRequest("WAREHOUSE_ADMIN is granted on the server or a warehouse only")


def _check_granter(principal: str, rights: int, securable: str, privileges: Privilege, verb: str) -> None:
    where = securables.format_securable(securable)
    held = expand_rights(rights)
    if not held & _MAY_GRANT:
        raise Forbidden(
            f"You may not {verb} privileges on {where}: that needs GRANT",
            hint=explain_hint(principal, Privilege.GRANT, securable),
        )
    beyond = int(privileges) & ~held
    if beyond:
        raise Forbidden(
            f"You may not {verb} {', '.join(names_of(beyond))} on {where}",
            hint="A principal grants and revokes only privileges that it holds there. "
            + explain_hint(principal, beyond, securable),
        )


def _touch_grantee(grantee: str) -> Write:
    """Locks the grantee's row: the grantee must exist, and must not be dropped while the grant is made."""
    kind, _, name = grantee.partition(":")
    if kind == "r":
        return Write("touch_role", {"role": name}, no_role(name))
    return Write("touch_principal", {"principal": name}, no_principal(name))


async def list_grants(store: Store, after: tuple[str, str], limit: int) -> list[Grant]:
    values = {"after_grantee": after[0], "after_securable": after[1], "limit": limit}
    return [Grant(*row) for row in await store.rows("all_grants", values)]


async def grants_of(store: Store, grantee: str, after: str | None, limit: int) -> list[Grant]:
    """Lists grants by securable. The server is the empty string, so None (not "") means from the beginning."""
    first = "" if after is None else after + "\x01"  # the smallest string after it that every database can store
    rows = await store.rows("grants_of", {"grantee": grantee, "first": first, "limit": limit})
    return [Grant(*row) for row in rows]


async def grants_on(store: Store, securable: str, after: str, limit: int) -> list[Grant]:
    """Lists the grants on exactly this securable, by grantee."""
    rows = await store.rows("grants_on", {"securable": securable, "after": after, "limit": limit})
    return [Grant(*row) for row in rows]


# Credentials


def create_credential(
    actor: Actor,
    principal: str,
    new: NewCredential,
    *,
    roles: Sequence[str] | None = None,
    note: str | None = None,
    expires_ms: int | None = None,
) -> list[Change]:
    """Creates a credential; `roles` limits it to these roles."""
    values = {
        "credential_id": new.credential_id,
        "principal": principal,
        "kind": new.kind,
        "secret": new.stored,
        "roles": None if roles is None else json.dumps([check_role_name(role) for role in roles]),
        "note": _note(note),
        "created_ms": actor.at_ms,
        "expires_ms": expires_ms,
    }
    writes = [
        Write("touch_principal", {"principal": principal}, no_principal(principal)),
        Write("add_credential", values, Conflict("The id of the new credential is taken; try again")),
    ]
    detail = {"principal": principal, "credential": new.credential_id, "kind": new.kind}
    return _changes(actor, "create-credential", detail, writes)


def drop_credential(actor: Actor, principal: str, credential_id: str) -> list[Change]:
    """Drops a credential. The caller adds `keep_a_credential`, unless it creates a replacement in the same change."""
    both = {"credential_id": credential_id, "principal": principal}
    gone = no_credential(principal, credential_id)
    detail = {"principal": principal, "credential": credential_id}
    return _changes(actor, "drop-credential", detail, [Write("drop_credential", both, gone)])


def no_credential(principal: str, credential_id: str) -> NotFound:
    return NotFound(f"Principal {principal} has no credential {credential_id}")


async def list_credentials(store: Store, principal: str) -> list[ListedCredential]:
    return [_credential(row) for row in await store.rows("list_credentials", {"principal": principal})]


def _credential(row: Sequence[Any]) -> ListedCredential:
    roles = None if row[3] is None else tuple(json.loads(row[3]))
    return ListedCredential(row[0], row[1], row[2], roles, row[4], row[5], row[6], row[7])


# Warehouses


@dataclass(frozen=True)
class WarehouseRow:
    """The stored columns of a warehouse; `secret` is encrypted, `audited` is what the audit trail tells about it."""

    name: str
    location: str  # canonical, like `further`
    profile: str | None = None
    options: str | None = None
    secret: bytes | None = None
    further: tuple[str, ...] = ()
    audited: Mapping[str, object] = field(default_factory=dict)


def create_warehouse(actor: Actor, row: WarehouseRow) -> list[Change]:
    """Creates a warehouse; no location of it may overlap a location of another warehouse."""
    values = {"warehouse": row.name, **_place(row.location), "created_ms": actor.at_ms}
    taken = AlreadyExists(f"Warehouse already exists, or another one overlaps its location: {row.name}")
    described = {"warehouse": row.name, "profile": row.profile, "options": row.options}
    writes = [Write("add_warehouse", values, taken), Write("describe_warehouse", described), *_further_places(row)]
    if row.secret is not None:
        writes.append(Write("set_warehouse_secret", {"warehouse": row.name, "secret": row.secret}))
    detail = {"warehouse": row.name, "location": row.location, **row.audited}
    return _changes(actor, "create-warehouse", detail, writes, securables.warehouse(row.name))


def change_warehouse(actor: Actor, row: WarehouseRow, expected: int, action: str = "change-warehouse") -> list[Change]:
    """Replaces all columns but name and location if the version is still `expected`; raises Conflict otherwise."""
    moved = Conflict(
        f"Warehouse {row.name} was changed meanwhile: it is not at version {expected} any more",
        hint="Load it, look at what changed, and send the change again with its version.",
    )
    values = {"warehouse": row.name, "profile": row.profile, "options": row.options, "expected": expected}
    writes = [
        Write("change_warehouse", values, moved),
        Write("set_warehouse_secret", {"warehouse": row.name, "secret": row.secret}),
        Write("forget_warehouse_places", {"warehouse": row.name}),
        *_further_places(row),
    ]
    return _changes(actor, action, {"warehouse": row.name, **row.audited}, writes, securables.warehouse(row.name))


def _further_places(row: WarehouseRow) -> list[Write]:
    return [
        Write(
            "add_warehouse_place",
            {"warehouse": row.name, "number": number, **_place(location)},
            Conflict(f"The location {location} overlaps another warehouse"),
        )
        for number, location in enumerate(row.further)
    ]


def _place(location: str) -> dict[str, object]:
    # The trailing slash keeps /a/b from overlapping /a/bc; the root of a bucket ends with one already.
    return {"location": location, "slashed": f"{location.rstrip('/')}/"}


def drop_warehouse(actor: Actor, name: str) -> list[Change]:
    """Drops an empty warehouse; its files are not deleted."""
    where = securables.warehouse(name)
    writes = [
        # Lock the row before the check for emptiness: creating a namespace locks it, too.
        Write("touch_warehouse", {"warehouse": name}, NotFound(f"Warehouse does not exist: {name}")),
        Write(
            "drop_warehouse",
            {"warehouse": name},
            Conflict(f"Warehouse is not empty: {name}", hint="Drop its namespaces first."),
        ),
        Write("forget_warehouse_places", {"warehouse": name}),
        Write("forget_grants_inside", {"securable": where, "behind": securables.behind(where)}),
        Write("forget_policies_inside", {"securable": where, "behind": securables.behind(where)}),
    ]
    return _changes(actor, "drop-warehouse", {"warehouse": name}, writes, where)


# Shared by all changes


def _changes(
    actor: Actor,
    action: str,
    detail: dict[str, Any],
    writes: Sequence[Write],
    securable: str = securables.SERVER,
) -> list[Change]:
    return [Write("bump_policy", {}), *writes, audit_change(actor, action, securable, detail)]


def audit_change(actor: Actor, action: str, securable: str, detail: Mapping[str, object]) -> Write:
    """Returns the audit row of a change."""
    return audit_row(
        at_ms=actor.at_ms,
        principal=actor.principal,
        action=action,
        securable=securable,
        detail=detail,
        request_id=actor.request_id,
        origin=actor.origin,
    )


async def _keep_an_administrator(store: Store, actor: Actor) -> list[Write]:
    """Refuses a change that leaves no administrator; if no stored principal is one now, others administer."""
    if not await store.rows("find_administrator", {}):
        return []
    refusal = Conflict(
        "No principal would be left that may administer the server",
        hint="Grant SERVER_ADMIN on server to another principal first.",
    )
    # Checked in the transaction, after the writes: a concurrent change may remove another administrator.
    return [Write("require_administrator", {}, refusal), *await keep_a_credential(store, actor)]


async def keep_a_credential(store: Store, actor: Actor) -> list[Write]:
    """Refuses a change that leaves no credential with which the server can be administered.

    A credential valid for another day must remain if there is one now, otherwise any valid one. A principal that was
    authenticated externally shows that the server can be administered without credentials of its own.
    """
    if actor.external:
        return []
    refusal = Conflict(
        "No credential would be left with which the server can be administered",
        hint="First make another one for a principal that holds SERVER_ADMIN, which does not expire within a day.",
    )
    for until_ms in (actor.at_ms + LAST_CREDENTIAL_MS, actor.at_ms):
        values = {"until_ms": until_ms}
        if await store.rows("find_administrators_credential", values):
            return [Write("require_administrators_credential", values, refusal)]
    return []


def _note(note: str | None) -> str | None:
    if note is not None and len(note) > MAX_NOTE_LENGTH:
        raise BadRequest(f"The note is longer than {MAX_NOTE_LENGTH} characters")
    return note
