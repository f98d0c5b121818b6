"""What a caller may be allowed to do, and to which kind of thing; deciding it is another file's work."""

from enum import Enum


class Privilege(Enum):
    """One right; every route names the one it needs."""

    PUBLIC = "PUBLIC"
    CONFIG_READ = "CONFIG_READ"
    NS_CREATE = "NS_CREATE"
    NS_DROP = "NS_DROP"
    NS_LIST = "NS_LIST"
    NS_UPDATE = "NS_UPDATE"
    TABLE_CREATE = "TABLE_CREATE"
    TABLE_DROP = "TABLE_DROP"
    TABLE_LIST = "TABLE_LIST"
    TABLE_READ_META = "TABLE_READ_META"
    TABLE_WRITE = "TABLE_WRITE"
    LOCATION_CHOOSE = "LOCATION_CHOOSE"


class Securable(Enum):
    """The thing a privilege is held on; a grant on one covers everything inside it."""

    SERVER = "server"
    WAREHOUSE = "warehouse"
    NAMESPACE = "namespace"
    TABLE = "table"
    VIEW = "view"
