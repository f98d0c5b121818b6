"""What a caller may be allowed to do, and to which kind of thing; deciding it is another file's work."""

from enum import Enum, IntFlag


class Privilege(IntFlag):
    """One right, or several together; every route names the one it needs. The numbers are stored: never reuse one."""

    PUBLIC = 0  # needs no right, not even to be known
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
    CONFIG_READ = 1 << 16  # held by everybody who is known; not granted
    SEE = 1 << 17  # that a container is there; said by external decision points, not granted


P = Privilege
READ = P.NS_LIST | P.TABLE_LIST | P.TABLE_READ_META | P.TABLE_READ_DATA
WRITE = READ | P.NS_CREATE | P.NS_UPDATE | P.TABLE_CREATE | P.TABLE_WRITE | P.TABLE_ALTER
ADMIN = WRITE | P.NS_DROP | P.TABLE_DROP | P.GRANT
GRANTABLE = ADMIN | P.SERVER_ADMIN | P.WAREHOUSE_ADMIN | P.LOCATION_CHOOSE | P.AUDIT_READ
OWNER = ADMIN  # what the creator of something holds on it
# What makes a table or view known to exist; whoever holds none of it on a table is told that there is no such table.
ENTRY_BITS = P.TABLE_LIST | P.TABLE_READ_META | P.TABLE_READ_DATA | P.TABLE_WRITE | P.TABLE_ALTER | P.TABLE_DROP

BUNDLES: dict[str, Privilege] = {"READ": READ, "WRITE": WRITE, "ADMIN": ADMIN}
EVERYTHING = GRANTABLE | P.CONFIG_READ


def expand_rights(held: int) -> int:
    """What follows from what is held: an administrator of the server or of a warehouse may do everything there."""
    if held & P.SERVER_ADMIN:
        return int(EVERYTHING)
    if held & P.WAREHOUSE_ADMIN:
        return held | int(EVERYTHING & ~P.SERVER_ADMIN)
    return held


def names_of(held: int) -> list[str]:
    """The single privileges in a sum, by name, in the order above."""
    return [single.name for single in EVERYTHING if single & held and single.name is not None]


class Securable(Enum):
    """The thing a privilege is held on; a grant on one covers everything inside it."""

    SERVER = "server"
    WAREHOUSE = "warehouse"
    NAMESPACE = "namespace"
    TABLE = "table"
    VIEW = "view"
