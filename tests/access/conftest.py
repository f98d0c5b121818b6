"""An event loop and one store of each kind, as for the stores' own tests."""

from tests.access.external_world import issuers, plain_store, sentinel
from tests.access.home import home
from tests.backends.conftest import database, mariadb, mariadb_database, postgres, run, store

__all__ = [
    "database",
    "home",
    "issuers",
    "mariadb",
    "mariadb_database",
    "plain_store",
    "postgres",
    "run",
    "sentinel",
    "store",
]
