"""The connection pool for MariaDB and MySQL: blocking sessions, each used by one thread at a time, and their errors."""

import asyncio
import contextlib
import logging
import re
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from nunatak.addresses import is_loopback
from nunatak.database.changes import NO_RESULT, Result, Step, Steps, drive
from nunatak.database.refusals import key_taken
from nunatak.database.statements import in_named_style, read_statements
from nunatak.errors import BadRequest, CatalogError, InternalError, ServiceUnavailable

try:
    import pymysql  # type: ignore[import-untyped]
    from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS  # type: ignore[import-untyped]
except ModuleNotFoundError:  # pragma: no cover - the extra `mariadb` brings it
    pymysql = None

log = logging.getLogger(__name__)

T = TypeVar("T")

POOL_SIZE = 10  # more than about five sessions per database core make it slower
CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 30.0  # without a response for this long, the connection counts as lost
WAIT_SECONDS = 10.0  # for a session, when all are in use
LOCK_SECONDS = 5  # wait for a row or table lock; then the change is retried
SMALLEST_PACKET = 1 << 20  # assumed until the server has reported its max_allowed_packet
STATEMENT_BYTES = 64 * 1024  # most bytes of a statement besides the metadata in it
OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}  # the first versions with SKIP LOCKED

# Overrides the server's default: values are refused, not truncated, and `||` concatenates as in the other databases.
SQL_MODE = "STRICT_ALL_TABLES,STRICT_TRANS_TABLES,ONLY_FULL_GROUP_BY,NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT"

# Orders and compares by UTF-8 bytes and, unlike utf8mb4_bin, does not ignore trailing spaces.
BYTE_ORDER = {"MariaDB": "utf8mb4_nopad_bin", "MySQL": "utf8mb4_0900_bin"}

# Error numbers: of the server, and above 2000 of the driver.
DUPLICATE, NOT_NULL, DEADLOCK, LOCK_TIMEOUT, CHANGED = 1062, 1048, 1213, 1205, 1020
REPEATED = {DEADLOCK, LOCK_TIMEOUT, CHANGED}  # rolled back, and worth a retry
_LOST = {2006, 2013, 2014, 2027, 2055, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 4031}
_BUSY = {1021, 1037, 1040, 1041, 1114, 1135, 1203, 1206, 1226, 1290, 1792, 1836, 1969, 2002, 2003, 3024}
_UNREADABLE = {1264, 1300, 1366, 1406, 3854}  # too long for its column, out of range, or not valid text
_UNUSABLE = {1044, 1045, 1049, 1130, 1698}  # no such user or database, or not allowed

# Quotes, the escape character, the statement separator, and characters that may terminate a string on the server.
_UNQUOTED = re.compile(r"""['"`\\;\x00\x1a]""")
_SEVERAL_ON, _SEVERAL_OFF = b"\0\0", b"\1\0"  # of COM_SET_OPTION

Statements = Mapping[str, tuple[str, tuple[str, ...]]]


class MariadbNotInstalled(InternalError):
    """The driver is missing; the extra `mariadb` installs it."""


class Unsuitable(InternalError):
    """The server is reachable, but its version or configuration is not safe for a catalog."""


def mariadb_statements() -> Statements:
    return {name: in_named_style(sql) for name, sql in read_statements("mariadb").items()}


class MariadbSession:
    """One connection. It holds a server lock named `token` (GET_LOCK), by which other sessions see whether it lives."""

    __slots__ = ("_connection", "_statements", "flavour", "packet_bytes", "token")

    def __init__(self, connection: Any, statements: Statements, flavour: str, token: str, packet_bytes: int) -> None:
        self._connection = connection
        self._statements = statements
        self.flavour = flavour
        self.token = token
        self.packet_bytes = packet_bytes

    def drive(self, steps: Steps[T]) -> T:
        """Runs a generator of `changes` to its end."""
        return drive(steps, self.batch, pymysql.err.IntegrityError)

    def batch(self, steps: Sequence[Step]) -> list[Result]:
        """Sends the named statements in one round trip; the first error stops the rest and is raised."""
        texts = [self._text(name, values) for name, values in steps]
        results = iter(self._send_texts([text for text in texts if text]))
        return [next(results) if text else NO_RESULT for text in texts]

    def _send_texts(self, texts: Sequence[bytes]) -> list[Result]:
        results: list[Result] = []
        packet: list[bytes] = []
        size = 0
        for text in texts:
            if len(text) + 2 > self.packet_bytes:
                raise BadRequest(
                    f"MariaDB cannot store a value of this request: a statement of {len(text)} bytes is larger "
                    f"than its max_allowed_packet of {self.packet_bytes}"
                )
            if size + len(text) + 2 > self.packet_bytes:
                results += self._send_together(packet)
                packet, size = [], 0
            packet.append(text)
            size += len(text) + 2
        return results + self._send_together(packet) if packet else results

    def rows(self, name: str, values: Mapping[str, object]) -> Sequence[Any]:
        return self.batch([(name, values)])[0].rows

    def row(self, name: str, values: Mapping[str, object]) -> Any:
        """Returns the first row, or None."""
        found = self.rows(name, values)
        return found[0] if found else None

    def statement(self, sql: str) -> Result:
        """Runs one statement without parameters; the server refuses a second one after a semicolon."""
        (result,) = self._send(sql.encode())
        return result

    def script(self, sql: str) -> None:
        """Runs several constant statements, such as a migration; never with user-supplied values in them."""
        self._send_together([sql.encode()], several=True)

    def _text(self, name: str, values: Mapping[str, object]) -> bytes:
        sql, names = self._statements[name]
        text: str = sql % {each: self._literal(self._fitting(each, values[each])) for each in names}
        return text.encode()  # a lone surrogate raises here, before anything is sent

    def _fitting(self, name: str, value: object) -> object:
        """Returns the value, or None for metadata whose hex form exceeds a packet: it is then read from the file."""
        if name != "content" or not isinstance(value, bytes):
            return value
        return value if 2 * len(value) + STATEMENT_BYTES <= self.packet_bytes else None

    def _literal(self, value: object) -> str:
        """Returns a value as a SQL literal. A text with quotes, escapes or separators becomes a hexadecimal literal:
        it cannot inject SQL, whichever quoting rules the server applies."""
        if isinstance(value, str) and _UNQUOTED.search(value):
            return f"_utf8mb4 X'{value.encode().hex()}'"
        if isinstance(value, list | tuple):
            return f"({','.join(map(self._literal, value))})"
        literal: str = self._connection.escape(value)
        return literal

    def _send_together(self, statements: Sequence[bytes], *, several: bool = False) -> list[Result]:
        """Sends statements in one round trip; multi-statement mode is enabled only for this text, against injection."""
        text = b";\n".join(statements)
        if len(statements) == 1 and not several:
            return self._send(text)
        connection = self._connection
        connection._execute_command(COMMAND.COM_SET_OPTION, _SEVERAL_ON)
        connection._execute_command(COMMAND.COM_QUERY, text)
        connection._execute_command(COMMAND.COM_SET_OPTION, _SEVERAL_OFF)
        self._read_option()
        try:
            connection._next_seq_id = 1  # the packet sequence restarts with each response
            return self._read_results()
        finally:
            if not self.is_closed():
                self._read_option()

    def _send(self, text: bytes) -> list[Result]:
        self._connection._execute_command(COMMAND.COM_QUERY, text)
        return self._read_results()

    def _read_results(self) -> list[Result]:
        connection = self._connection
        results: list[Result] = []
        while not results or connection._result.has_next:
            connection._read_query_result()
            results.append(Result(connection._result.affected_rows, connection._result.rows or ()))
        return results

    def _read_option(self) -> None:
        self._connection._next_seq_id = 1
        self._connection._read_packet()

    def in_transaction(self) -> bool:
        return bool(self._connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def is_closed(self) -> bool:
        return not self._connection.open

    def usable(self) -> bool:
        return not self.is_closed() and not self.in_transaction()

    def end(self) -> None:
        """Closes the socket without a message to the server, which may not respond."""
        self._connection._force_close()

    def close(self) -> None:
        """Closes the connection with a message to the server; ignores one that is unreachable."""
        with contextlib.suppress(OSError, pymysql.Error):
            self._connection.close()
        self.end()


class MariadbConnections:
    """A pool of at most `size` sessions. Work begun in a thread is finished even if its caller is cancelled."""

    def __init__(self, url: str, statements: Statements, size: int = POOL_SIZE) -> None:
        if pymysql is None:
            raise MariadbNotInstalled("MariaDB and MySQL need a driver: pip install 'nunatak[mariadb]'")
        self._address = read_url(url)
        self._statements = statements
        self._threads = ThreadPoolExecutor(2 * size, thread_name_prefix="mariadb")  # half to resolve unknown outcomes
        self.size = size
        self._slots = asyncio.Semaphore(size)
        self._idle: list[MariadbSession] = []  # append and pop are safe among threads
        self._closed = False
        self.in_use = 0
        self.waiting = 0

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def call(self, work: Callable[[MariadbSession], T]) -> T:
        """Runs `work` in a thread with a session of the pool; raises ServiceUnavailable if none is free in time."""
        await self._await_turn()
        if self._closed:
            self._slots.release()
            raise ServiceUnavailable("The server is stopping.")
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)
        self.in_use += 1
        future.add_done_callback(self._end_turn)
        return await asyncio.shield(future)

    async def _await_turn(self) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError as error:
            raise ServiceUnavailable("The database is busy: no connection became free in time") from error
        finally:
            self.waiting -= 1

    def _end_turn(self, _: "asyncio.Future[Any]") -> None:
        self.in_use -= 1
        self._slots.release()

    async def call_apart(self, work: Callable[[MariadbSession], T]) -> T:
        """Runs `work` in a thread with a new session outside the pool, closed afterwards."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, self._work_apart, work))

    def _work(self, work: Callable[[MariadbSession], T]) -> T:
        session = self._take()
        try:
            return work(session)
        finally:
            self._give_back(session)

    def _work_apart(self, work: Callable[[MariadbSession], T]) -> T:
        session = self.open()
        try:
            return work(session)
        finally:
            session.close()

    def _take(self) -> MariadbSession:
        try:
            return self._idle.pop()
        except IndexError:
            return self.open()

    def _give_back(self, session: MariadbSession) -> None:
        """Returns a session to the pool; closes one that is in a transaction, which the server then rolls back."""
        if self._closed or not session.usable():
            session.end()
        else:
            self._idle.append(session)

    def forget_idle(self) -> None:
        """Closes all idle sessions: after one was lost, the others most likely are, too."""
        with contextlib.suppress(IndexError):
            for _ in range(len(self._idle)):
                self._idle.pop().end()

    def open(self, *, command_seconds: float = COMMAND_SECONDS) -> MariadbSession:
        """Opens a session; raises ServiceUnavailable if the server is unreachable, Unsuitable if misconfigured."""
        connection = None
        try:
            connection = pymysql.connect(
                **self._address,
                charset="utf8mb4",
                sql_mode=SQL_MODE,
                autocommit=True,  # transactions begin with an explicit START TRANSACTION
                client_flag=CLIENT.FOUND_ROWS,  # without MULTI_STATEMENTS: see MariadbSession._send_together
                connect_timeout=CONNECT_SECONDS,
                read_timeout=CONNECT_SECONDS,
                write_timeout=command_seconds,
                program_name="nunatak",
            )
            session = self._prepare(connection)
        except BaseException as error:
            if connection is not None:
                connection._force_close()
            if number_of(error) in _UNUSABLE:
                raise Unsuitable(f"MariaDB refused the connection: {error_text(error)}") from error
            if isinstance(error, OSError | pymysql.Error):
                raise ServiceUnavailable(f"Cannot connect to MariaDB: {error_text(error)}") from error
            raise
        connection._read_timeout = command_seconds  # the constructor's read timeout also covers the handshake
        return session

    def _prepare(self, connection: Any) -> MariadbSession:
        version: str = connection.get_server_info()
        flavour = "MariaDB" if "mariadb" in version.lower() else "MySQL"
        _refuse_old(flavour, version)
        session = MariadbSession(
            connection, self._statements, flavour, f"nunatak {secrets.token_hex(16)}", SMALLEST_PACKET
        )
        session.script(
            f"SET NAMES utf8mb4 COLLATE {BYTE_ORDER[flavour]};"
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
            f"SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}, SESSION lock_wait_timeout = {LOCK_SECONDS},"
            " SESSION time_zone = '+00:00'"
        )
        if flavour == "MariaDB":
            # A transaction is never idle between statements for long; MySQL has no such setting.
            session.statement(f"SET SESSION idle_transaction_timeout = {int(COMMAND_SECONDS)}")
        held, found = session.batch([("hold_token", {"token": session.token}), ("server_variables", {})])
        if held.rows[0][0] != 1:
            raise ServiceUnavailable("MariaDB gave no lock to a new session")
        variables = {name.lower(): str(value).upper() for name, value in found.rows}
        _refuse_unsuitable(variables)
        session.packet_bytes = int(variables["max_allowed_packet"])
        return session

    async def close(self) -> None:
        """Waits for running work, then closes all sessions."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        while self._idle:
            await asyncio.to_thread(self._idle.pop().close)


def read_url(url: str) -> dict[str, Any]:
    """Parses `mariadb://user:password@host:port/database?option=…` to driver arguments; raises Unsuitable."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    database = unquote(parts.path.removeprefix("/"))
    unknown = set(options) - {"ssl", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket"}
    if unknown:
        raise Unsuitable(f"database_url has an option that is not known: {', '.join(sorted(unknown))}")
    if not database or not parts.username:
        raise Unsuitable("database_url must name a user and a database: mariadb://user@host/name")
    host = parts.hostname or "127.0.0.1"
    socket = {"unix_socket": options["unix_socket"]} if "unix_socket" in options else {}
    default = "off" if socket or is_loopback(host) else "verify"
    return {
        "host": host,
        "port": parts.port or 3306,
        "user": unquote(parts.username),
        "password": unquote(parts.password or "").encode(),
        "database": database,
        **socket,
        **_encryption(options.get("ssl", default), options),
    }


def _encryption(mode: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Returns the TLS arguments of the driver for a mode of `ssl=`: verify, required (no verification) or off."""
    if mode == "off":
        return {"ssl_disabled": True}
    if mode not in ("verify", "required"):
        raise Unsuitable(f"database_url has ssl={mode}: it is one of verify, required and off")
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except OSError as error:
        raise Unsuitable(f"database_url names a certificate that cannot be read: {error}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # MariaDB's self-made CA certificates fail strict checks
    if mode == "required":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}


def _refuse_old(flavour: str, version: str) -> None:
    digits = version.removeprefix("5.5.5-").partition("-")[0].split(".")
    found = tuple(int(each) for each in digits[:2] if each.isdigit())
    if found < OLDEST[flavour]:
        oldest = ".".join(str(each) for each in OLDEST[flavour])
        raise Unsuitable(f"The database is {flavour} {version}: {oldest} or newer is needed")


def _refuse_unsuitable(variables: Mapping[str, str]) -> None:
    """Raises Unsuitable for global settings under which an acknowledged commit may not survive a power failure."""
    flush, sync = variables["innodb_flush_log_at_trx_commit"], variables["sync_binlog"]
    if flush != "1":
        raise Unsuitable(f"The database may lose commits: innodb_flush_log_at_trx_commit is {flush}, set it to 1")
    if variables["log_bin"] == "ON" and sync != "1":
        raise Unsuitable(f"The database may lose commits: it has a binary log and sync_binlog is {sync}, set it to 1")
    if variables["log_bin"] == "ON" and variables.get("binlog_format") == "STATEMENT":
        raise Unsuitable("The database writes a binary log of statements, set binlog_format to MIXED or ROW")
    if variables.get("wsrep_on") == "ON":
        raise Unsuitable("The database is a Galera cluster, between whose nodes locks do not hold: it cannot be used")


def number_of(error: BaseException) -> int:
    """Returns the server's or driver's error number, or 0."""
    number = error.args[0] if isinstance(error, pymysql.Error) and error.args else 0
    return number if isinstance(number, int) else 0


def error_text(error: BaseException) -> str:
    """Returns the message of the server or the driver, with its number."""
    number = number_of(error)
    return f"{error.args[1]} ({number})" if number and len(error.args) > 1 else str(error) or "it did not answer"


def is_lost(error: BaseException, session: MariadbSession) -> bool:
    """Whether the connection broke, so that the outcome of the last statement is unknown."""
    if isinstance(error, pymysql.Error):
        return number_of(error) in _LOST or session.is_closed()
    # A value that cannot be encoded raises before anything is sent; the connection stays usable.
    return not isinstance(error, ValueError) or session.is_closed()


def is_certain(error: BaseException) -> bool:
    """Whether an error can only come from a statement before COMMIT, so that COMMIT was not reached.

    COMMIT itself may fail half-way, for example when the binary log cannot be written.
    """
    certain = REPEATED | _UNREADABLE | {NOT_NULL, DUPLICATE}
    return number_of(error) in certain or not isinstance(error, pymysql.Error)


def refusal(error: BaseException) -> CatalogError:
    """Translates an error after which nothing was applied."""
    number = number_of(error)
    if number == NOT_NULL and "request_hash" in str(error):
        return key_taken()
    if number in _UNREADABLE:
        return BadRequest(f"MariaDB cannot store a value of this request: {error_text(error)}")
    if number in _LOST | _BUSY | REPEATED or isinstance(error, OSError):
        return ServiceUnavailable(f"MariaDB is unavailable: {error_text(error)}")
    if not isinstance(error, pymysql.Error):
        return InternalError(f"MariaDB rejected the statement: {error_text(error)}")
    return InternalError(f"MariaDB refused the request: {error_text(error)}")
