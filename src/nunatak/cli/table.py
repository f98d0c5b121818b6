"""`nunatak table …`: lists, shows, creates, drops and renames tables."""

from itertools import chain

import click

from nunatak.cli.columns import column_rows, properties_option, schema_of
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.names import NAME, NAMESPACE, beside, print_name
from nunatak.cli.options import CommandSession, talks_to_server
from nunatak.cli.output import echo, print_facts, print_json, print_rows, properties_of, time_of
from nunatak.client import Json, Levels


@click.group(cls=SuggestingGroup)
def table() -> None:
    """List, show, create, drop and rename tables."""


@table.command("list")
@click.argument("namespace", type=NAMESPACE, required=False)
@talks_to_server
def list_tables(session: CommandSession, namespace: Levels | None) -> None:
    """List the tables of NAMESPACE, or of the whole warehouse."""
    namespaces = [namespace] if namespace else session.client.walk_namespaces()
    found = list(chain.from_iterable(map(session.client.list_tables, namespaces)))
    if session.output == "json":
        print_json({"identifiers": [{"namespace": name[:-1], "name": name[-1]} for name in found]})
    else:
        print_rows(["table"], [[print_name(name)] for name in found])


@table.command()
@click.argument("name", type=NAME)
@talks_to_server
def show(session: CommandSession, name: Levels) -> None:
    """Show a table: columns, partitioning, snapshots, properties."""
    loaded = session.client.load_table(name)
    if session.output == "json":
        print_json(loaded)
        return
    print_facts(table_facts(name, loaded))
    print_rows(["id", "column", "type", ""], column_rows(current_schema(loaded["metadata"])))


@table.command()
@click.argument("name", type=NAME)
@click.option("--column", "columns", multiple=True, metavar="NAME:TYPE[!]", help="A column; ! means not null.")
@click.option("--schema", metavar="JSON", help="The schema as Iceberg JSON, for nested types.")
@click.option("--location", help="Location of the table; chosen inside the warehouse unless given.")
@properties_option
@talks_to_server
def create(
    session: CommandSession,
    name: Levels,
    *,
    columns: tuple[str, ...],
    schema: str | None,
    location: str | None,
    properties: dict[str, str],
) -> None:
    """Create a table.

    \b
    nunatak table create shop.orders --column id:long! --column note:string
    """
    request: Json = {"schema": schema_of(columns, schema), "properties": properties}
    if location is not None:
        request["location"] = location
    created = session.client.create_table(name, request)
    if session.output == "json":
        print_json(created)
    else:
        echo(f"created table {print_name(name)} at {created['metadata']['location']}")


@table.command()
@click.argument("name", type=NAME)
@click.option("--purge", is_flag=True, help="Also delete the table's files; they cannot be restored.")
@talks_to_server
def drop(session: CommandSession, name: Levels, purge: bool) -> None:
    """Drop a table; its files are kept unless --purge is given."""
    session.client.drop_table(name, purge=purge)
    if session.output == "json":
        print_json({"dropped": name, "purged": purge})
    else:
        echo(f"dropped table {print_name(name)}{' and its files' if purge else ''}")


@table.command()
@click.argument("name", type=NAME)
@click.argument("new_name", type=NAMESPACE, metavar="NEW_NAME")
@talks_to_server
def rename(session: CommandSession, name: Levels, new_name: Levels) -> None:
    """Rename a table; NEW_NAME without a namespace keeps the namespace."""
    destination = beside(name, new_name)
    session.client.rename_table(name, destination)
    if session.output == "json":
        print_json({"source": name, "destination": destination})
    else:
        echo(f"renamed table {print_name(name)} to {print_name(destination)}")


def current_schema(metadata: Json) -> Json:
    schemas: list[Json] = metadata.get("schemas") or [metadata["schema"]]  # v1 metadata may have only `schema`
    return next(schema for schema in schemas if schema.get("schema-id", 0) == metadata.get("current-schema-id", 0))


def table_facts(name: Levels, loaded: Json) -> dict[str, object]:
    metadata = loaded["metadata"]
    current = metadata.get("current-snapshot-id")
    return {
        "table": print_name(name),
        "uuid": metadata["table-uuid"],
        "format": f"v{metadata['format-version']}",
        "location": metadata["location"],
        "metadata": loaded.get("metadata-location"),
        "updated": time_of(metadata["last-updated-ms"]),
        "partitioned by": _partition_fields(metadata),
        "snapshot": "none" if current in (None, -1) else f"{current} of {len(metadata.get('snapshots', []))}",
        "branches and tags": ", ".join(sorted(metadata.get("refs", {}))) or "none",
        "properties": properties_of(metadata.get("properties", {})),
    }


def _partition_fields(metadata: Json) -> str:
    specs = {spec["spec-id"]: spec["fields"] for spec in metadata.get("partition-specs", [])}
    fields = specs.get(metadata.get("default-spec-id", 0), [])
    return ", ".join(f"{field['name']} ({field['transform']})" for field in fields) or "nothing"
