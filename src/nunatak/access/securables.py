"""How a securable is written down, so that whatever lies inside it begins with its text.

    server              (empty)
    warehouse           wh␟
    namespace a.b       wh␟a␟b␟
    table or view t     wh␟a␟b␟␞t

␟ and ␞ are control characters, which no name may hold.
"""

from nunatak.errors import BadRequest

SERVER = ""
LEVEL, ENTRY = "\x1f", "\x1e"


def warehouse(name: str) -> str:
    return f"{name}{LEVEL}"


def namespace(warehouse_name: str, levels: tuple[str, ...]) -> str:
    return LEVEL.join((warehouse_name, *levels, ""))


def entry(warehouse_name: str, levels: tuple[str, ...], name: str) -> str:
    """A table or a view: they share their names."""
    return f"{namespace(warehouse_name, levels)}{ENTRY}{name}"


def chain(securable: str) -> list[str]:
    """The securable and everything it lies in, outermost first."""
    container, mark, name = securable.partition(ENTRY)
    levels = container.split(LEVEL)[:-1]
    found = [SERVER, *(LEVEL.join((*levels[:end], "")) for end in range(1, len(levels) + 1))]
    return [*found, f"{container}{mark}{name}"] if mark else found


def is_container(securable: str) -> bool:
    return ENTRY not in securable


def printed(securable: str) -> str:
    """As people write it: server, warehouse:wh, namespace:wh/a/b, table:wh/a/b/t; a slash in a name is %2F."""
    if securable == SERVER:
        return "server"
    container, mark, name = securable.partition(ENTRY)
    levels = container.split(LEVEL)[:-1]
    kind = "table" if mark else ("warehouse" if len(levels) == 1 else "namespace")
    return f"{kind}:{'/'.join(_escaped(each) for each in (*levels, *([name] if mark else [])))}"


def parsed(text: str) -> str:
    """What `printed` wrote, and `view:…`; anything else is refused."""
    if text == "server":
        return SERVER
    kind, colon, path = text.partition(":")
    parts = [_unescaped(each) for each in path.split("/")]
    if colon and all(parts):
        if kind == "warehouse" and len(parts) == 1:
            return warehouse(parts[0])
        if kind == "namespace" and len(parts) >= 2:
            return namespace(parts[0], tuple(parts[1:]))
        if kind in ("table", "view") and len(parts) >= 3:
            return entry(parts[0], tuple(parts[1:-1]), parts[-1])
    raise BadRequest(
        f"Not a securable: {text[:200]!r}",
        hint="Write server, warehouse:NAME, namespace:WAREHOUSE/A/B, table:WAREHOUSE/A/T or view:WAREHOUSE/A/V.",
    )


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _unescaped(text: str) -> str:
    return text.replace("%2F", "/").replace("%2f", "/").replace("%25", "%")
