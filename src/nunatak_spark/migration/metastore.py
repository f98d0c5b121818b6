"""A client of the Hive metastore over PyIceberg's Thrift bindings: databases, tables, permissions, and a rename.

Connection properties are those of Iceberg's Hive catalog in Spark: `hadoop.hive.metastore.…`.
"""

import getpass
import logging
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import SourceColumn, SourcePermission
from nunatak_spark.migration.optional_packages import load_module

logging.getLogger("thrift").addHandler(logging.NullHandler())  # thrift logs errors that it also raises

BATCH = 100  # tables or partitions per call
ALL_PARTITIONS = -1
PRINCIPAL_TYPES = {1: "user", 2: "role", 3: "group"}
LOCK_TRIES, LOCK_WAIT_SECONDS = 60, 1.0
DEFAULT_PORT = 9083
TIMEOUT_MS = 60_000
MAX_RESPONSE_BYTES = 1 << 30  # a larger length means that the peer does not speak Thrift
MAX_LIST_LENGTH = 100_000_000

# Settings of Hive's clients, under the prefix by which Iceberg's Spark catalogs hand them to Hadoop.
HADOOP = "hadoop."
USE_TLS = f"{HADOOP}hive.metastore.use.SSL"
USE_SASL = f"{HADOOP}hive.metastore.sasl.enabled"
PRINCIPAL = f"{HADOOP}hive.metastore.kerberos.principal"
AUTH_MODE = f"{HADOOP}hive.metastore.client.auth.mode"
PLAIN_USER = f"{HADOOP}hive.metastore.client.plain.username"
PASSWORD = "password"  # from the environment, never a property of the source


@dataclass(frozen=True)
class HiveTable:
    """A table of the metastore; `described` is the original Thrift object."""

    database: str
    name: str
    owner: str
    table_type: str
    location: str
    input_format: str
    serde: str
    serde_properties: dict[str, str]
    columns: tuple[SourceColumn, ...]
    partition_keys: tuple[SourceColumn, ...]
    properties: dict[str, str]
    view_text: str
    described: Any


class Metastore:
    """One connection to a metastore; not for concurrent calls."""

    def __init__(
        self,
        address: str,
        properties: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme != "thrift" or not parts.hostname:
            raise CannotRun(f"{address} is not a metastore", fix="Write it like thrift://host:9083.")
        self.address = address
        self._errors = _load("thrift.Thrift")
        self._types = _load("hive_metastore.ttypes")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
        self._transport = _transport(host, port, properties or {}, secrets or {})
        protocol = _load("thrift.protocol.TBinaryProtocol").TBinaryProtocol(
            self._transport,
            strictRead=True,
            strictWrite=True,
            string_length_limit=MAX_RESPONSE_BYTES,
            container_length_limit=MAX_LIST_LENGTH,
        )
        self._client = _load("hive_metastore.ThriftHiveMetastore").Client(protocol)
        try:
            self._transport.open()
        except (OSError, EOFError, self._errors.TException) as error:
            self._close()
            raise CannotRun(
                f"No metastore answers at {address}: {_text(error)}",
                fix="Check the address, and whether the metastore requires TLS or SASL.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._transport.isOpen():
            self._transport.close()

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the Thrift interface; raises CannotRun if the metastore refuses or does not answer."""
        try:
            return getattr(self._client, name)(*arguments)
        except self._types.NoSuchObjectException:
            raise
        except (OSError, EOFError, self._errors.TException) as error:
            is_refusal = type(error).__module__ == self._types.__name__
            what = "refused" if is_refusal else "did not answer"
            raise CannotRun(f"{self.address} {what} {name}: {_text(error)}", fix="Look at the metastore.") from error

    def databases(self) -> list[str]:
        return sorted(self.call("get_all_databases"))

    def database_properties(self, database: str) -> dict[str, str]:
        """Returns the database's properties as Iceberg's Hive catalog maps them for a namespace."""
        found = self.call("get_database", database)
        known = {"comment": found.description, "location": found.locationUri}
        if found.ownerName:
            known["hive.metastore.database.owner"] = found.ownerName
            known["hive.metastore.database.owner-type"] = PRINCIPAL_TYPES.get(found.ownerType or 1, "user").upper()
        return {**(found.parameters or {}), **{key: value for key, value in known.items() if value}}

    def tables(self, database: str) -> Iterator[HiveTable]:
        """Yields all tables of a database, loaded in batches."""
        names = sorted(self.call("get_all_tables", database))
        for start in range(0, len(names), BATCH):
            found = self.call("get_table_objects_by_name", database, names[start : start + BATCH])
            yield from map(_table, found)

    def find_table(self, database: str, name: str) -> HiveTable | None:
        try:
            return _table(self.call("get_table", database, name))
        except self._types.NoSuchObjectException:
            return None

    def partition_locations(self, database: str, name: str) -> list[str]:
        """Returns the location of every partition; partitions are loaded in batches."""
        names = self.call("get_partition_names", database, name, ALL_PARTITIONS)
        places = []
        for start in range(0, len(names), BATCH):
            found = self.call("get_partitions_by_names", database, name, names[start : start + BATCH])
            places += [part.sd.location for part in found]
        return places

    def permissions(self, database: str, table: str = "") -> tuple[SourcePermission, ...]:
        """Returns the privileges granted on a table, or on the database itself."""
        kinds = self._types.HiveObjectType
        reference = self._types.HiveObjectRef(
            objectType=kinds.TABLE if table else kinds.DATABASE, dbName=database, objectName=table or None
        )
        try:
            found = self._client.list_privileges(None, None, reference)
        except (self._types.MetaException, self._errors.TApplicationException):
            return ()  # the metastore does not manage privileges
        return tuple(_permission(one) for one in found)

    def rename(self, database: str, name: str, new: str) -> None:
        """Renames an external table under the lock that Iceberg's commits take, so that no commit is lost."""
        with self._lock_table(database, name):
            table = self.find_table(database, name)
            if table is None:
                raise CannotRun(f"The metastore has no table {database}.{name}", fix="Look at the source.")
            renamed = table.described
            renamed.tableName = new
            self.call("alter_table", database, name, renamed)

    @contextmanager
    def _lock_table(self, database: str, name: str) -> Iterator[None]:
        types = self._types
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=database,
            tablename=name,
            operationType=types.DataOperationType.UNSET,
        )
        request = types.LockRequest(component=[component], user=getpass.getuser(), hostname=socket.gethostname())
        lock = self.call("lock", request)
        try:
            for _ in range(LOCK_TRIES):
                if lock.state != types.LockState.WAITING:
                    break
                time.sleep(LOCK_WAIT_SECONDS)
                lock = self.call("check_lock", types.CheckLockRequest(lockid=lock.lockid))
            if lock.state != types.LockState.ACQUIRED:
                raise CannotRun(f"{database}.{name} is locked by another client", fix="Try again when it is not.")
            yield
        finally:
            with suppress(types.NoSuchObjectException):
                self.call("unlock", types.UnlockRequest(lockid=lock.lockid))


# Connecting


def _load(name: str) -> Any:
    return load_module(name, "asking a Hive metastore", extra="hive")


def _transport(host: str, port: int, properties: Mapping[str, str], secrets: Mapping[str, str]) -> Any:
    transports = _load("thrift.transport.TTransport")
    plain = _socket(host, port, properties)
    plain.setTimeout(TIMEOUT_MS)
    if properties.get(AUTH_MODE, "").upper() == "PLAIN":
        login = {"username": properties.get(PLAIN_USER) or getpass.getuser(), "password": secrets.get(PASSWORD, "")}
        return _sasl(transports, plain, host, "hive", "PLAIN", login)
    if _is_true(properties, USE_SASL):
        service = properties.get(PRINCIPAL, "hive").partition("@")[0].partition("/")[0]
        load_module("kerberos", "Kerberos", fix="pip install 'pyiceberg[hive-kerberos]'")
        return _sasl(transports, plain, host, service, "GSSAPI", {})
    return transports.TBufferedTransport(plain)


def _socket(host: str, port: int, properties: Mapping[str, str]) -> Any:
    if not _is_true(properties, USE_TLS):
        return _load("thrift.transport.TSocket").TSocket(host, port)
    # Certificates are verified against the system's CAs, or those in SSL_CERT_FILE.
    return _load("thrift.transport.TSSLSocket").TSSLSocket(host, port, ssl_context=ssl.create_default_context())


def _sasl(transports: Any, plain: Any, host: str, service: str, mechanism: str, login: Mapping[str, str]) -> Any:
    _load("puresasl.client")
    return transports.TSaslClientTransport(plain, host=host, service=service, mechanism=mechanism, **login)


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "").lower() == "true"


def _text(error: BaseException) -> str:
    """Returns an error's text; the metastore's errors have their own `message`."""
    return str(getattr(error, "message", None) or error or type(error).__name__)


# Thrift objects


def _permission(one: Any) -> SourcePermission:
    privilege = one.grantInfo.privilege if one.grantInfo else ""
    return SourcePermission(
        one.principalName or "", privilege or "", PRINCIPAL_TYPES.get(one.principalType or 1, "user")
    )


def _table(found: Any) -> HiveTable:
    storage = found.sd
    serde = storage.serdeInfo if storage else None
    return HiveTable(
        database=found.dbName,
        name=found.tableName,
        owner=found.owner or "",
        table_type=found.tableType or "",
        location=(storage.location if storage else "") or "",
        input_format=(storage.inputFormat if storage else "") or "",
        serde=(serde.serializationLib if serde else "") or "",
        serde_properties=dict((serde.parameters if serde else None) or {}),
        columns=_columns(storage.cols if storage else None),
        partition_keys=_columns(found.partitionKeys),
        properties=dict(found.parameters or {}),
        view_text=found.viewOriginalText or "",
        described=found,
    )


def _columns(fields: Any) -> tuple[SourceColumn, ...]:
    return tuple(SourceColumn(one.name, one.type or "") for one in fields or ())
