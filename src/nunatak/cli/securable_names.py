"""How names of the command line become the texts by which the management API knows things, and back."""

from nunatak.client import Client, Levels
from nunatak.errors import NoSuchNamespace


def securable_of(client: Client, name: Levels, *, table: bool = False) -> str:
    """`table:WH/A/T`, `namespace:WH/A` or, without a name, `warehouse:WH`, in the client's warehouse."""
    return client.securable_of(name, table=table)


def place_of(client: Client, name: Levels | None) -> tuple[str, bool]:
    """What a name stands for, and whether it is a table; a table goes before a namespace of the same name.

    What is neither is taken for a table: the server knows best what else could have been meant.
    """
    if name is None or len(name) == 1:
        return securable_of(client, name or ()), False
    is_table = client.table_exists(name)
    if not is_table:
        try:
            client.load_namespace(name)
        except NoSuchNamespace:
            is_table = True
    return securable_of(client, name, table=is_table), is_table


def name_of(securable: str) -> Levels:
    """The levels behind the warehouse."""
    _, _, path = securable.partition(":")
    return tuple(_unescape(level) for level in path.split("/")[1:])


def warehouse_of(securable: str) -> str:
    """The warehouse that it is or lies in, as its text names it."""
    return _unescape(securable.partition(":")[2].split("/")[0])


def _unescape(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")
