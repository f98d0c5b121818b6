"""Maps permissions of the source to grants of the target. Pure; grants nothing."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nunatak.client import escape_level
from nunatak_spark.migration.model import (
    InventoryTable,
    MigrationFinding,
    MigrationTable,
    SourcePermission,
    table_title,
)

# Privileges of Hive and Lake Formation, mapped to those of the target; the largest bundle includes the others.
PRIVILEGES = {
    "SELECT": "READ",
    "DESCRIBE": "TABLE_LIST,TABLE_READ_META",
    "INSERT": "WRITE",
    "UPDATE": "WRITE",
    "DELETE": "WRITE",
    "ALTER": "TABLE_ALTER",
    "DROP": "TABLE_DROP",
    "ALL": "ADMIN",
    "SUPER": "ADMIN",
    "OWNER": "ADMIN",
}
BUNDLES = ("ADMIN", "WRITE", "READ")  # each one includes those after it
HELD_BY_ADMIN = {"TABLE_DROP", "TABLE_ALTER"}
IAM = re.compile(r"arn:[^:]*:(?:iam|sts)::\d*:(user|role|group|assumed-role)/(?:.*/)?([^/]+)")
DEFAULT_WAREHOUSE = "default"


@dataclass(frozen=True)
class MappedPermissions:
    """`grants` are commands, one per line; `unmapped` are permissions that need a decision."""

    grants: tuple[str, ...]
    unmapped: tuple[MigrationFinding, ...]


def map_permissions(tables: Iterable[MigrationTable], warehouse: str) -> MappedPermissions:
    """Maps the permissions of every table that has a name at the target."""
    grants: list[str] = []
    unmapped: list[MigrationFinding] = []
    for table in tables:
        if table.planned is None or table.planned.method == "refused":
            continue
        place = "/".join(map(escape_level, (warehouse or DEFAULT_WAREHOUSE, *table.planned.target)))
        held: dict[str, set[str]] = {}
        for permission in _permissions_with_owner(table.found):
            grantee, privileges = grantee_of(permission), PRIVILEGES.get(permission.privilege.upper(), "")
            if grantee and privileges:
                held.setdefault(grantee, set()).update(privileges.split(","))
            else:
                unmapped.append(_unmapped_finding(table.found, permission, has_grantee=bool(grantee)))
        grants += [
            shlex.join(["nunatak", "grant", "add", grantee, ",".join(reduce_privileges(names)), f"table:{place}"])
            for grantee, names in sorted(held.items())
        ]
    return MappedPermissions(tuple(dict.fromkeys(grants)), tuple(dict.fromkeys(unmapped)))


def _permissions_with_owner(found: InventoryTable) -> Iterable[SourcePermission]:
    if found.owner:
        yield SourcePermission(found.owner, "OWNER", "owner")
    yield from found.permissions


def grantee_of(permission: SourcePermission) -> str:
    """Returns the principal or role at the target; groups become roles, which tokens carry."""
    match permission.principal_type:
        case "user" | "owner":
            return f"principal:{permission.principal}" if permission.principal else ""
        case "role" | "group":
            return f"role:{permission.principal}" if permission.principal else ""
        case "iam":
            found = IAM.fullmatch(permission.principal)
            if found is None:
                return ""
            return f"{'role' if found.group(1) == 'group' else 'principal'}:{found.group(2)}"
        case _:
            return ""


def reduce_privileges(names: Iterable[str]) -> Sequence[str]:
    """Returns the fewest privileges with the same effect: bundles include others."""
    left = set(names)
    for position, bundle in enumerate(BUNDLES):
        if bundle in left:
            left -= {*BUNDLES[position + 1 :], "TABLE_LIST", "TABLE_READ_META"}
            left -= HELD_BY_ADMIN if bundle == "ADMIN" else {"TABLE_ALTER"} if bundle == "WRITE" else set()
    return sorted(left)


def _unmapped_finding(found: InventoryTable, permission: SourcePermission, *, has_grantee: bool) -> MigrationFinding:
    who = f"{permission.principal_type} {permission.principal or '(none)'}"
    what = "has a privilege that means nothing here" if has_grantee else "is not a principal that a grant can name"
    return MigrationFinding("unmapped-permission", f"{who} {what}: {permission.privilege}", table_title(found))
