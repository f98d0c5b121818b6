"""Converts names of the command line to securables of the management API, and back."""

from nunatak.client import Client, Levels
from nunatak.errors import NoSuchNamespace


def securable_of(client: Client, name: Levels, *, table: bool = False) -> str:
    """Returns `table:WH/A/T`, `namespace:WH/A` or, without a name, `warehouse:WH`, for the client's warehouse."""
    return client.securable_of(name, table=table)


def place_of(client: Client, name: Levels | None) -> tuple[str, bool]:
    """Returns the securable of a name, and whether it is a table; a table wins over a namespace of the same name.

    A name of neither counts as a table: the server's error then suggests similar names.
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
    """Returns the levels of a securable after the warehouse."""
    _, _, path = securable.partition(":")
    return tuple(_unescape(level) for level in path.split("/")[1:])


def warehouse_of(securable: str) -> str:
    """Returns the name of the warehouse in a securable."""
    return _unescape(securable.partition(":")[2].split("/")[0])


def _unescape(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")
