"""Normalizes database URLs: JDBC and SQLAlchemy spellings become the form that our drivers read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

MEMORY_URL = "sqlite:///:memory:"
WRITE = "write sqlite:///path, postgresql://user@host/name or mariadb://user@host/name, or leave it empty"

_DIALECTS = {each: each for each in ("sqlite", "postgresql", "mariadb", "mysql")} | {"postgres": "postgresql"}
_DRIVER = re.compile(r"[a-z0-9_]+")
_HOST = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(:[0-9]*)?")
_SQLITE_OPTION = re.compile(r"\?[A-Za-z_]+=")

Options = list[tuple[str, str]]

# Options of other drivers, in lower case, and their names here; a mapping of values translates those as well.
_SERVER_TYPES = {"primary": "primary", "master": "primary", "any": "any", "secondary": "standby", "slave": "standby"}
_PG_MODES = {each: each for each in ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")}
_PG_MODES |= {"true": "verify-full", "": "verify-full", "false": "disable"}
_MYSQL_MODES = {
    **{each: each for each in ("off", "required", "verify")},
    **dict.fromkeys(("disabled", "disable", "false"), "off"),
    **dict.fromkeys(("required", "preferred", "trust"), "required"),
    **dict.fromkeys(("verify_ca", "verify_identity", "verify-ca", "verify-full", "true"), "verify"),
}
_RENAMED: dict[str, dict[str, tuple[str, Mapping[str, str]]]] = {
    "postgresql": {
        "currentschema": ("search_path", {}),
        "applicationname": ("application_name", {}),
        "targetservertype": ("target_session_attrs", _SERVER_TYPES),
        "ssl": ("sslmode", _PG_MODES),
    },
    "mysql": {
        "usessl": ("ssl", _MYSQL_MODES),
        "sslmode": ("ssl", _MYSQL_MODES),
        "serversslcert": ("ssl_ca", {}),
        "localsocket": ("unix_socket", {}),
    },
}
_KNOWN = {
    "postgresql": {
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "target_session_attrs"),
        *("application_name", "search_path", "options", "host", "port", "dbname", "passfile"),
    },
    "mysql": {"ssl", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket"},
}
# Options that tune other drivers and have no meaning here: ignored.
_DROPPED = {
    *("connecttimeout", "logintimeout", "sockettimeout", "tcpkeepalive", "preparethreshold", "rewritebatchedinserts"),
    *("defaultrowfetchsize", "stringtype", "preparedstatementcachequeries", "loadbalancehosts", "binarytransfer"),
    *("connect_timeout", "client_encoding", "keepalives", "prepared_statement_cache_size", "charset", "autocommit"),
    *("characterencoding", "useunicode", "servertimezone", "allowpublickeyretrieval", "rewritebatchedstatements"),
    *("cacheprepstmts", "prepstmtcachesize", "prepstmtcachesqllimit", "useserverprepstmts", "autoreconnect"),
    *("connectiontimezone", "zerodatetimebehavior", "nullcatalogmeanscurrent", "pinglobaltxtophysicalconnection"),
}


def normal_url(text: str) -> str:
    """Returns the URL in the form of our drivers; raises ValueError, whose message never quotes the URL (passwords)."""
    if not text:
        return text
    of_java = text[:5].lower() == "jdbc:"
    scheme, colon, rest = text[5 if of_java else 0 :].partition(":")
    name, plus, driver = scheme.partition("+")
    dialect = _DIALECTS.get(name.lower())
    if not colon or dialect is None or (plus and (of_java or not _DRIVER.fullmatch(driver.lower()))):
        hint = f"H2 is not served; for tests write {MEMORY_URL}" if name.lower() == "h2" else WRITE
        raise ValueError(hint)
    if dialect == "sqlite":
        return _sqlite(rest, of_java=of_java)
    translated = of_java or bool(plus)
    if not translated:
        _refuse_malformed(text)
        return text
    return _server(dialect, rest, of_java=of_java)


def _sqlite(rest: str, *, of_java: bool) -> str:
    """Normalizes a SQLite URL: in JDBC the path follows the colon, elsewhere three slashes."""
    if not of_java and not rest.startswith("///"):
        raise ValueError(f"write sqlite:///path, or {MEMORY_URL} for a catalog in memory")
    path = rest.removeprefix("file:") if of_java else rest[3:]
    if _SQLITE_OPTION.search(path):
        raise ValueError("options of SQLite are not taken: leave out what stands behind the question mark")
    if not path:  # elsewhere this means in-memory; an unset variable in the URL must not lose a catalog
        raise ValueError(f"it names no file; write {MEMORY_URL} for a catalog in memory")
    return f"sqlite:///{path}"


def _server(dialect: str, rest: str, *, of_java: bool) -> str:
    if of_java and not rest.startswith("//"):
        if dialect != "postgresql" or "://" in rest:
            raise ValueError(f"write jdbc:{dialect}://host/name")
        rest = f"///{rest.removeprefix('/')}"  # PostgreSQL on this machine
    _refuse_malformed(f"{dialect}:{rest}")
    parts = urlsplit(f"{dialect}:{rest}")
    account, _, hosts = parts.netloc.rpartition("@")
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ValueError("its options are not written as name=value&name=value") from error
    login = {name: value for name, value in given if name in ("user", "password")}
    if login and account:
        raise ValueError("it names its user before the host and again among the options")
    if login:
        password = f":{quote(login['password'], safe='')}" if "password" in login else ""
        account = f"{quote(login.get('user', ''), safe='')}{password}"
    if of_java:
        hosts = hosts or "localhost"
    options = urlencode(list(_options(dialect, given)), safe="/", quote_via=quote)
    return f"{dialect}://{account}{'@' if account else ''}{hosts}{parts.path}{'?' if options else ''}{options}"


def _options(dialect: str, given: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the supported options under our names; drops those that only tune drivers, raises for unknown ones."""
    kind = "postgresql" if dialect == "postgresql" else "mysql"
    unknown = []
    for name, value in given:
        lower = name.lower()
        renamed, values = _RENAMED[kind].get(lower, (lower, {}))
        if lower in ("user", "password") or lower in _DROPPED or lower.startswith("keepalives_"):
            continue
        if renamed not in _KNOWN[kind]:
            unknown.append(name)
        elif values and value.lower() not in values:
            raise ValueError(f"its option {name} is one of {', '.join(each for each in values if each)}")
        else:
            yield renamed, values.get(value.lower(), value)
    if unknown:
        raise ValueError(f"it has options that are not known here: {', '.join(sorted(unknown))[:200]}")


def _refuse_malformed(url: str) -> None:
    """Refuses a URL that cannot be parsed: a driver's error would quote it, with a part of the password."""
    try:
        hosts = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:  # its message quotes the URL, so it is not chained
        raise ValueError("it cannot be read as an address; percent-encode what stands in the password") from None
    if not url.partition(":")[2].startswith("//"):
        raise ValueError(WRITE)
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError("the host is not one; in a password, write / ? # @ [ and ] percent-encoded, such as %2F")
