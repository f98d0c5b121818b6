"""A Hive metastore over Thrift: what its tables are, who may use them, and how one is renamed under its lock."""

import getpass
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration import thrift
from nunatak_spark.migration.thrift import I16, I64, STRING, STRUCT, Fields, NotThrift, Refused
from nunatak_spark.migration.values import Column, Permission

BATCH = 100  # tables per call
ALL_PARTITIONS = -1
PRINCIPAL_TYPES = {1: "user", 2: "role", 3: "group"}
# Numbers that the metastore's interface gives to kinds of locks and objects.
EXCLUSIVE, LEVEL_TABLE, OPERATION_UNSET = 3, 2, 5
ACQUIRED, WAITING = 1, 2
OBJECT_DATABASE, OBJECT_TABLE = 2, 3
LOCK_TRIES, LOCK_WAIT_SECONDS = 60, 1.0
DEFAULT_PORT = 9083


@dataclass(frozen=True)
class HiveTable:
    """A table as the metastore describes it; `fields` is the whole description as it came."""

    database: str
    name: str
    owner: str
    table_type: str
    location: str
    input_format: str
    serde: str
    serde_properties: dict[str, str]
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...]
    properties: dict[str, str]
    view_text: str
    fields: Fields


class Metastore:
    """One connection to a metastore, opened on first use by `with`."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme != "thrift" or not parts.hostname:
            raise CannotRun(f"{address} is not a metastore", fix="Write it like thrift://host:9083.")
        self.address = address
        try:
            self._connection = thrift.Connection(parts.hostname, parts.port or DEFAULT_PORT)
        except OSError as error:
            raise CannotRun(f"No metastore answers at {address}: {error}", fix="Look at the address.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.__exit__(kind, error, trace)

    def call(self, name: str, fields: Fields) -> Any:
        """One call as it stands; Refused if the metastore throws."""
        try:
            return self._connection.call(name, fields)
        except (NotThrift, OSError) as error:
            raise CannotRun(f"{self.address} did not answer {name}: {error}", fix="Look at the metastore.") from error

    def databases(self) -> list[str]:
        return sorted(map(thrift.decoded, self.call("get_all_databases", {}).value))

    def tables(self, database: str) -> Iterator[HiveTable]:
        """All of a database, some at a time."""
        named = self.call("get_all_tables", {1: thrift.text(database)}).value
        names = sorted(map(thrift.decoded, named))
        for start in range(0, len(names), BATCH):
            wanted = thrift.listing([thrift.text(name) for name in names[start : start + BATCH]], STRING)
            found = self.call("get_table_objects_by_name", {1: thrift.text(database), 2: wanted})
            yield from map(_table, found.value)

    def find_table(self, database: str, name: str) -> HiveTable | None:
        try:
            found = self.call("get_table", {1: thrift.text(database), 2: thrift.text(name)})
        except Refused as error:
            if error.number == 2:  # NoSuchObjectException; the other one is the metastore's own failure
                return None
            raise
        return _table(found)

    def partition_locations(self, database: str, name: str) -> list[str]:
        arguments = {1: thrift.text(database), 2: thrift.text(name), 3: thrift.number(ALL_PARTITIONS, I16)}
        return [thrift.string(part[6].value, 2) for part in self.call("get_partitions", arguments).value]

    def permissions(self, database: str, table: str = "") -> tuple[Permission, ...]:
        """What was granted on a table, or on the database itself."""
        kind = OBJECT_TABLE if table else OBJECT_DATABASE
        reference = {1: thrift.number(kind), 2: thrift.text(database)}
        if table:
            reference[3] = thrift.text(table)
        try:
            found = self.call("list_privileges", {3: thrift.structure(reference)}).value
        except Refused:  # some metastores leave permissions to others, and say so
            return ()
        return tuple(_permission(one) for one in found)

    def rename(self, database: str, name: str, new: str) -> None:
        """Rename a table that is not managed, under the lock that Iceberg's commits take: none of them gets lost."""
        with self._locked(database, name):
            table = self.find_table(database, name)
            if table is None:
                raise CannotRun(f"The metastore has no table {database}.{name}", fix="Look at the source.")
            renamed = {**table.fields, 1: thrift.text(new)}
            self.call("alter_table", {1: thrift.text(database), 2: thrift.text(name), 3: thrift.structure(renamed)})

    @contextmanager
    def _locked(self, database: str, name: str) -> Iterator[None]:
        component = {
            1: thrift.number(EXCLUSIVE),
            2: thrift.number(LEVEL_TABLE),
            3: thrift.text(database),
            4: thrift.text(name),
            6: thrift.number(OPERATION_UNSET),
        }
        request = {
            1: thrift.listing([thrift.structure(component)], STRUCT),
            3: thrift.text(getpass.getuser()),
            4: thrift.text(socket.gethostname()),
        }
        lock_id, state = _lock(self.call("lock", {1: thrift.structure(request)}))
        this = {1: thrift.structure({1: thrift.number(lock_id, I64)})}
        try:
            for _ in range(LOCK_TRIES):
                if state != WAITING:
                    break
                time.sleep(LOCK_WAIT_SECONDS)
                _, state = _lock(self.call("check_lock", this))
            if state != ACQUIRED:
                raise CannotRun(f"{database}.{name} is locked by somebody else", fix="Try again when it is not.")
            yield
        finally:
            self.call("unlock", this)


def _lock(found: Fields) -> tuple[int, int]:
    return found[1].value, found[2].value


def _permission(one: Fields) -> Permission:
    kind = PRINCIPAL_TYPES.get(one[3].value if 3 in one else 1, "user")
    privilege = thrift.string(one[4].value, 1) if 4 in one else ""
    return Permission(thrift.string(one, 2), privilege, kind)


def _table(fields: Fields) -> HiveTable:
    storage: Fields = fields[7].value if 7 in fields else {}
    serde: Fields = storage[7].value if 7 in storage else {}
    return HiveTable(
        database=thrift.string(fields, 2),
        name=thrift.string(fields, 1),
        owner=thrift.string(fields, 3),
        table_type=thrift.string(fields, 12),
        location=thrift.string(storage, 2),
        input_format=thrift.string(storage, 3),
        serde=thrift.string(serde, 2),
        serde_properties=thrift.strings(serde, 3),
        columns=_columns(storage, 1),
        partition_keys=_columns(fields, 8),
        properties=thrift.strings(fields, 9),
        view_text=thrift.string(fields, 10),
        fields=fields,
    )


def _columns(fields: Fields, field: int) -> tuple[Column, ...]:
    return tuple(Column(thrift.string(one, 1), thrift.string(one, 2)) for one in thrift.structures(fields, field))
