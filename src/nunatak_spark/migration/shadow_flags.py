"""The target's flag on a table that the source still owns: `shadow` sets it, `cutover` changes it, `retire` lifts it.

While the flag says `shadow`, the target refuses commits and runs no maintenance on the table; while it says `cut-over`,
commits work and no job deletes a file. Adopted tables are the source's own rows and have no flag.
"""

from contextlib import suppress

from nunatak.client import Client, Json, is_unknown_route
from nunatak.errors import CatalogError, Forbidden, NoSuchTable
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import MigrationTable, table_title

LONGEST_SOURCE = 500  # characters that the server keeps of a source's name


def shadow_source(table: MigrationTable) -> str:
    """What the target is told about where a table comes from; printable, and of bounded length."""
    name = "".join(letter if letter.isprintable() else "?" for letter in table_title(table.found))
    return name[:LONGEST_SOURCE]


def require_shadow_support(client: Client) -> None:
    """Refuse a target that would treat a shadow as its own table, and so might delete the source's files."""
    try:
        client.list_shadows()
    except CatalogError as error:
        if is_unknown_route(error):
            raise CannotRun(
                f"The server at {client.uri} does not know shadows: its maintenance might delete the source's files",
                fix="Upgrade the target's server first.",
            ) from error


def ensure_shadow(client: Client, table: MigrationTable, name: tuple[str, ...]) -> None:
    """Flag a table at the target unless it is flagged already; a flag `cut-over` is left as it is."""
    if client.find_shadow(name) is None:
        client.set_shadow(name, shadow_source(table), "shadow")


def mark_cut_over(client: Client, table: MigrationTable) -> None:
    """Let writers in. Files that the source also knows stay until it is retired; a copy has files of its own."""
    if table.planned is None or table.planned.method == "adopt":
        return
    if table.planned.method == "copy":
        lift_flag(client, table)
    else:
        client.set_shadow(table.planned.target, shadow_source(table), "cut-over")


def lift_flag(client: Client, table: MigrationTable) -> None:
    """Remove the flag, wherever the table is now; a table that was dropped has none."""
    flag = find_flag(client, table)
    if flag is not None:
        with suppress(NoSuchTable):
            client.lift_shadow(str(flag["securable"]))


def find_flag(client: Client, table: MigrationTable) -> Json | None:
    """The flag by the planned name, or by the source that it names if the table was renamed at the target."""
    if table.planned is None or table.planned.method == "adopt":
        return None
    with suppress(NoSuchTable):
        flag = client.find_shadow(table.planned.target)
        if flag is not None:
            return flag
    source, uuid = shadow_source(table), table.found.uuid if table.planned.method == "register" else ""
    with suppress(Forbidden):  # whoever may not see the whole warehouse sees the planned name alone
        for flag in client.list_shadows():
            if flag["source"] == source and uuid in {"", flag["table-uuid"]}:
                return flag
    return None
