"""Privileges and the kinds of securables. Decisions are made elsewhere."""

from enum import Enum, IntFlag


class Privilege(IntFlag):
    """One privilege or a union; every route names the one it needs. The numbers are stored: never reuse one."""

    PUBLIC = 0  # needs no privilege, not even authentication
    SERVER_ADMIN = 1 << 0
    WAREHOUSE_ADMIN = 1 << 1
    GRANT = 1 << 2
    NS_CREATE = 1 << 3
    NS_DROP = 1 << 4
    NS_LIST = 1 << 5
    NS_UPDATE = 1 << 6
    TABLE_CREATE = 1 << 7
    TABLE_DROP = 1 << 8
    TABLE_LIST = 1 << 9
    TABLE_READ_META = 1 << 10
    TABLE_READ_DATA = 1 << 11
    TABLE_WRITE = 1 << 12
    TABLE_ALTER = 1 << 13
    LOCATION_CHOOSE = 1 << 14
    AUDIT_READ = 1 << 15
    CONFIG_READ = 1 << 16  # held by every authenticated caller; not granted
    SEE = 1 << 17  # that a container exists; returned by external authorizers, not granted


P = Privilege
READ = P.NS_LIST | P.TABLE_LIST | P.TABLE_READ_META | P.TABLE_READ_DATA
WRITE = READ | P.NS_CREATE | P.NS_UPDATE | P.TABLE_CREATE | P.TABLE_WRITE | P.TABLE_ALTER
ADMIN = WRITE | P.NS_DROP | P.TABLE_DROP | P.GRANT
GRANTABLE = ADMIN | P.SERVER_ADMIN | P.WAREHOUSE_ADMIN | P.LOCATION_CHOOSE | P.AUDIT_READ
OWNER = ADMIN  # the privileges of a creator on what it created
# Privileges that reveal that a table or view exists; a caller with none of them gets a 404.
ENTRY_BITS = P.TABLE_LIST | P.TABLE_READ_META | P.TABLE_READ_DATA | P.TABLE_WRITE | P.TABLE_ALTER | P.TABLE_DROP

BUNDLES: dict[str, Privilege] = {"READ": READ, "WRITE": WRITE, "ADMIN": ADMIN}
EVERYTHING = GRANTABLE | P.CONFIG_READ


def expand_rights(held: int) -> int:
    """Adds implied privileges: an administrator of the server or of a warehouse may do everything there."""
    if held & P.SERVER_ADMIN:
        return int(EVERYTHING)
    if held & P.WAREHOUSE_ADMIN:
        return held | int(EVERYTHING & ~P.SERVER_ADMIN)
    return held


def names_of(held: int) -> list[str]:
    """Returns the names of the single privileges in a union, in the order above."""
    return [single.name for single in EVERYTHING if single & held and single.name is not None]


class Securable(Enum):
    """The kind of object that a privilege is held on; a grant on one covers everything inside it."""

    SERVER = "server"
    WAREHOUSE = "warehouse"
    NAMESPACE = "namespace"
    TABLE = "table"
    VIEW = "view"
