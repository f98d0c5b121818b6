"""Checks while planning whether the target would refuse a table at `shadow`: locations, privileges, names, types.

Only reads from the target. Each reason is a sentence that says what to do.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from nunatak.client import Client, Json, Levels
from nunatak.errors import BadRequest, CatalogError, NotFound
from nunatak.iceberg.conventions import STEERING_PROPERTIES
from nunatak_spark.migration.model import InventoryTable, MigrationSource, TablePlan, display_name, table_title
from nunatak_spark.migration.source_files import location_segments

SETTING = "NUNATAK_ALLOWED_LOCATIONS"
NEWEST_FORMAT = 3  # highest format version that the target serves
# Properties with write locations; the target refuses a table that writes outside of the allowed locations.
# Types of Spark and Hive that Iceberg does not have.
UNKNOWN_TYPES = re.compile(r"\b(interval|void|null|uniontype|calendarinterval)\b")
RIGHTS: Mapping[str, tuple[str, ...]] = {
    "register": ("TABLE_CREATE", "LOCATION_CHOOSE"),
    "add_files": ("TABLE_CREATE", "TABLE_WRITE"),
    "copy": ("TABLE_CREATE", "TABLE_WRITE"),
}


class TargetChecks:
    """Checks against the target; each request is made once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._home: Json | None = None
        self._rights: dict[tuple[Levels, str], str] = {}
        self._exists: dict[Levels, bool] = {}

    def refusal_reasons(self, found: InventoryTable, planned: TablePlan, source: MigrationSource) -> list[str]:
        """Returns every reason for which the target would refuse the table."""
        if planned.method in {"refused", "adopt"}:
            return []
        reasons = [*_unknown_columns(found), *_unknown_format(found, planned), *self._same_catalog(planned, source)]
        if planned.method == "register":
            reasons += self._location_reasons(found)
        return [*reasons, *self._name_reasons(planned.target), *self._privilege_reasons(planned)]

    def _same_catalog(self, planned: TablePlan, source: MigrationSource) -> Iterable[str]:
        """A warehouse holds a table under one name only, so a shadow in the source's own warehouse is impossible."""
        is_same = source.kind == "rest" and _base_uri(source.address) == _base_uri(self._client.uri)
        warehouse = source.properties.get("warehouse")
        if (
            planned.method == "register"
            and is_same
            and warehouse in {self._client.warehouse, self._warehouse()["name"]}
        ):
            yield "the source is the target's own warehouse; `nunatak table rename` gives it another name there"

    def _location_reasons(self, found: InventoryTable) -> Iterable[str]:
        outside = [place for place in table_locations(found) if not self._is_allowed(place)]
        if outside:
            place = f"{outside[0]} is outside the locations that the target allows"
            yield f"{place}; {self._advice(found.location or outside[0])}"

    def _is_allowed(self, place: str) -> bool:
        # An older server does not list them; it decides at `shadow`.
        told = self._warehouse().get("allowed-locations")
        if told is None:
            return True
        wanted = location_segments(place)
        return any(wanted[: len(location_segments(each))] == location_segments(each) for each in told)

    def _advice(self, location: str) -> str:
        if self._warehouse()["default"]:
            return f"add {location} to {SETTING} there"
        # Only the default warehouse has the setting.
        return "create a warehouse there whose location contains it, or move it into the default one"

    def _warehouse(self) -> Json:
        if self._home is None:
            name = self._client.warehouse or self._client.default_warehouse()
            self._home = self._client.manage("GET", ("warehouses", name))
        return self._home

    def _name_reasons(self, target: Levels) -> Iterable[str]:
        """Asks for the table: the target validates the name first."""
        try:
            self._client.table_exists(target)
        except BadRequest as error:
            yield f"the target refuses the name {display_name(target)}: {error.message}; choose another with --map"

    def _privilege_reasons(self, planned: TablePlan) -> Iterable[str]:
        namespace = planned.target[:-1]
        wanted = RIGHTS[planned.method] if self._namespace_exists(namespace) else ("NS_CREATE", *RIGHTS[planned.method])
        for privilege in wanted:
            who = self._missing_privilege(namespace, privilege)
            if who:
                place = self._client.securable_of(namespace)
                yield f"{who} lacks {privilege} at the target: nunatak grant add principal:{who} {privilege} {place}"

    def _namespace_exists(self, namespace: Levels) -> bool:
        if namespace not in self._exists:
            self._exists[namespace] = False
            with suppress(NotFound):
                self._client.load_namespace(namespace)
                self._exists[namespace] = True
        return self._exists[namespace]

    def _missing_privilege(self, namespace: Levels, privilege: str) -> str:
        """Returns our principal at the target if it lacks the privilege, else an empty text."""
        key = (namespace, privilege)
        if key not in self._rights:
            query = {"securable": self._client.securable_of(namespace), "privilege": privilege}
            try:
                told = self._client.manage("GET", ("access", "explain"), query=query)
            except CatalogError:  # not allowed to ask: the target decides at `shadow`
                told = {"allowed": True}
            is_held = told["allowed"] or told.get("decided-by") == "nobody"
            self._rights[key] = "" if is_held else str(told["principal"])
        return self._rights[key]


def _base_uri(uri: str) -> str:
    return uri.rstrip("/").removesuffix("/v1").rstrip("/")


def table_locations(found: InventoryTable) -> list[str]:
    """Returns the locations where a table keeps and writes its files."""
    steered = [found.properties[key] for key in STEERING_PROPERTIES if found.properties.get(key)]
    return [place for place in (found.pointer, found.location, *steered) if place]


def _unknown_columns(found: InventoryTable) -> Iterable[str]:
    for column in found.columns:
        if UNKNOWN_TYPES.search(column.type):
            yield f"its column {column.name} is of the type {column.type}, which Iceberg does not have"


def _unknown_format(found: InventoryTable, planned: TablePlan) -> Iterable[str]:
    if planned.method == "register" and (found.format_version or 1) > NEWEST_FORMAT:
        yield f"it is of format version {found.format_version}; the target serves versions up to {NEWEST_FORMAT}"


def allowed_locations_value(outside: Sequence[InventoryTable]) -> str:
    """Returns one setting value for all tables outside of the allowed locations: their parent folders,
    without nested ones.
    """
    folders = sorted({found.location.rstrip("/").rpartition("/")[0] for found in outside if found.location}, key=len)
    chosen: list[str] = []
    for folder in folders:
        inside = location_segments(folder)
        if not any(inside[: len(location_segments(each))] == location_segments(each) for each in chosen):
            chosen.append(folder)
    return ",".join(chosen)


def find_duplicate_tables(planned: Iterable[tuple[InventoryTable, TablePlan]]) -> dict[str, str]:
    """Returns tables that two sources hold, by title, with the title of the one that is registered first."""
    first: dict[str, str] = {}
    twins = {}
    for found, plan in planned:
        if plan.method != "register" or not found.uuid:
            continue
        other = first.setdefault(found.uuid, table_title(found))
        if other != table_title(found):
            twins[table_title(found)] = other
    return twins
