"""The target's shadow flag on a table that the source still owns: `shadow` sets it, `cutover` changes it, `retire`
removes it.

While it is `shadow`, the target refuses commits and runs no maintenance; while it is `cut-over`, commits work and no
job deletes files. Adopted tables are the source's own database rows and have no flag.
"""

from contextlib import suppress

from nunatak.client import Client, Json, is_unknown_route
from nunatak.errors import CatalogError, Forbidden, NoSuchTable
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import MigrationTable, table_title

MAX_SOURCE_LENGTH = 500  # characters; the server's limit


def shadow_source(table: MigrationTable) -> str:
    """Returns the source's name for the flag: printable and cut to the limit."""
    name = "".join(letter if letter.isprintable() else "?" for letter in table_title(table.found))
    return name[:MAX_SOURCE_LENGTH]


def require_shadow_support(client: Client) -> None:
    """Raises CannotRun if the target does not know shadows: its maintenance could delete the source's files."""
    try:
        client.list_shadows()
    except CatalogError as error:
        if is_unknown_route(error):
            raise CannotRun(
                f"The server at {client.uri} does not know shadows: its maintenance might delete the source's files",
                fix="Upgrade the target's server first.",
            ) from error


def ensure_shadow(client: Client, table: MigrationTable, name: tuple[str, ...]) -> None:
    """Sets the flag unless there is one; `cut-over` stays."""
    if client.find_shadow(name) is None:
        client.set_shadow(name, shadow_source(table), "shadow")


def mark_cut_over(client: Client, table: MigrationTable) -> None:
    """Allows commits.

    Files that the source also references are protected until it is retired; a copy has its own files.
    """
    if table.planned is None or table.planned.method == "adopt":
        return
    if table.planned.method == "copy":
        lift_flag(client, table)
    else:
        client.set_shadow(table.planned.target, shadow_source(table), "cut-over")


def lift_flag(client: Client, table: MigrationTable) -> None:
    """Removes the flag, also if the table was renamed; a dropped table has none."""
    flag = find_flag(client, table)
    if flag is not None:
        with suppress(NoSuchTable):
            client.lift_shadow(str(flag["securable"]))


def find_flag(client: Client, table: MigrationTable) -> Json | None:
    """Returns the flag of the planned name, or of a renamed table with the same source."""
    if table.planned is None or table.planned.method == "adopt":
        return None
    with suppress(NoSuchTable):
        flag = client.find_shadow(table.planned.target)
        if flag is not None:
            return flag
    source, uuid = shadow_source(table), table.found.uuid if table.planned.method == "register" else ""
    with suppress(Forbidden):  # without the privilege only the planned name can be checked
        for flag in client.list_shadows():
            if flag["source"] == source and uuid in {"", flag["table-uuid"]}:
                return flag
    return None
