"""The text form of securables, in which the text of a container is a prefix of everything inside it.

    server              (empty)
    warehouse           wh␟
    namespace a, b      wh␟a.b.
    table or view t     wh␟a.b.␞t

␟ and ␞ are control characters, which no name may contain; namespaces are written as in the JDBC tables, so that SQL can
build the text of a row.
"""

from nunatak.errors import BadRequest
from nunatak.iceberg.identifiers import from_jdbc, to_jdbc

SERVER = ""
WAREHOUSE_END, ENTRY = "\x1f", "\x1e"
BEHIND = "\U0010ffff"  # sorts after every character of a name


def warehouse(name: str) -> str:
    return f"{name}{WAREHOUSE_END}"


def namespace(warehouse_name: str, levels: tuple[str, ...]) -> str:
    return f"{warehouse_name}{WAREHOUSE_END}{to_jdbc(levels)}." if levels else warehouse(warehouse_name)


def entry(warehouse_name: str, levels: tuple[str, ...], name: str) -> str:
    """Returns the securable of a table or view; both share one set of names."""
    return f"{namespace(warehouse_name, levels)}{ENTRY}{name}"


def chain(securable: str) -> list[str]:
    """Returns the securable and its ancestors, outermost first."""
    if securable == SERVER:
        return [SERVER]
    home, _, rest = securable.partition(WAREHOUSE_END)
    found = [SERVER, f"{home}{WAREHOUSE_END}"]
    path, mark, name = rest.partition(ENTRY)
    for level in path.split(".")[:-1]:
        found.append(f"{found[-1]}{level}.")
    return [*found, f"{found[-1]}{mark}{name}"] if mark else found


def parts(securable: str) -> tuple[str, tuple[str, ...], str | None]:
    """Returns the warehouse, the levels of the namespace, and the name of the table or view or None."""
    home, _, rest = securable.partition(WAREHOUSE_END)
    path, mark, name = rest.partition(ENTRY)
    return home, from_jdbc(path[:-1]) if path else (), name if mark else None


def is_container(securable: str) -> bool:
    return ENTRY not in securable


def behind(securable: str) -> str:
    """Returns the exclusive upper bound of the range that holds the securable and everything inside it."""
    return securable + (BEHIND if is_container(securable) else "\x01")


def format_securable(securable: str) -> str:
    """Returns the readable form: server, warehouse:wh, namespace:wh/a/b, table:wh/a/b/t; a slash in a name is %2F."""
    if securable == SERVER:
        return "server"
    home, levels, name = parts(securable)
    kind = "table" if name is not None else ("namespace" if levels else "warehouse")
    return f"{kind}:{'/'.join(_escape(each) for each in (home, *levels, *([name] if name is not None else [])))}"


def parse_securable(text: str) -> str:
    """Parses the output of `format_securable`, and `view:…`; raises BadRequest for anything else."""
    if text == "server":
        return SERVER
    kind, colon, path = text.partition(":")
    names = [_unescape(each) for each in path.split("/")]
    if colon and all(names):
        if kind == "warehouse" and len(names) == 1:
            return warehouse(names[0])
        if kind == "namespace" and len(names) >= 2:
            return namespace(names[0], tuple(names[1:]))
        if kind in ("table", "view") and len(names) >= 3:
            return entry(names[0], tuple(names[1:-1]), names[-1])
    raise BadRequest(
        f"Not a securable: {text[:200]!r}",
        hint="Write server, warehouse:NAME, namespace:WAREHOUSE/A/B, table:WAREHOUSE/A/T or view:WAREHOUSE/A/V.",
    )


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _unescape(text: str) -> str:
    return text.replace("%2F", "/").replace("%2f", "/").replace("%25", "%")
