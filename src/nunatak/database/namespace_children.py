"""Lists the direct children of a namespace in one of three ways, each the fastest on one database.

Descendants are skipped by index lookups, so the cost depends on the page, not on the size of the subtree. A namespace
also exists if only descendants of it do. A descendant of a child that is marked or holds tables adds no second entry.
"""

from collections.abc import Mapping

from nunatak.database import bindings
from nunatak.database.changes import Steps

Page = tuple[list[str], str | None]  # names in order, and the position of the next page, or None at the end

MAX_NAMESPACES_AT_ONCE = 1000  # namespaces read at once by `in_pages`


def one_by_one(catalog: str, parent: str, after: str, limit: int) -> Steps[Page]:
    """Runs one statement per child: SQLite finds the next name in microseconds, but scans a whole index for many."""
    prefix, position, before = bindings.children_between(parent, after)
    children: list[str] = []
    while True:
        (row,) = yield [("next_namespace", {"catalog": catalog, "after": position, "before": before})]
        found = row.rows[0][0] if row.rows else None
        if found is None:
            return children, None
        child = _child_of(prefix, found)
        stands = False
        if child != found:
            (there,) = yield [("namespace_stands", {"catalog": catalog, "namespace": child})]
            stands = bool(there.rows[0][0])
        if not stands:
            if len(children) == limit:
                return children, position
            children.append(child)
        position = found if child == found else f"{child}.{bindings.BEHIND_ALL}"


def at_once(catalog: str, parent: str, after: str, limit: int) -> Steps[Page]:
    """Runs one recursive statement, for PostgreSQL."""
    prefix, position, before = bindings.children_between(parent, after)
    values = {"catalog": catalog, "prefix": prefix, "after": position, "before": before, "limit": limit}
    (found,) = yield [("list_children", {**values, "behind_all": bindings.BEHIND_ALL})]
    rows = found.rows
    return [row[0] for row in rows[:limit]], rows[limit - 1][1] if len(rows) > limit else None


def in_pages(catalog: str, parent: str, after: str, limit: int) -> Steps[Page]:
    """Reads many names per round trip, for MariaDB, which does the skip scan of the index by itself."""
    prefix, start, before = bindings.children_between(parent, after)
    step = min(limit + 1, MAX_NAMESPACES_AT_ONCE)
    position = last = start
    listed: dict[str, None] = {}
    while True:
        values = {"catalog": catalog, "after": position, "before": before, "limit": step}
        (page,) = yield [("next_namespaces", values)]
        for (name,) in page.rows:
            if name <= position:
                continue  # a descendant of a child that was handled before
            child = _child_of(prefix, name)
            position = name if child == name else f"{child}.{bindings.BEHIND_ALL}"
            if child != name and (yield from _was_listed(catalog, child, start, listed)):
                continue
            if len(listed) == limit:
                return list(listed), last
            listed[child] = None
            last = position
        if len(page.rows) < step:
            return list(listed), None


def _was_listed(catalog: str, child: str, start: str, listed: Mapping[str, None]) -> Steps[bool]:
    """Whether the child of a found descendant exists by itself, so that it was listed before, maybe on another page."""
    if child > start:
        return child in listed
    (stands,) = yield [("namespace_stands", {"catalog": catalog, "namespace": child})]
    return bool(stands.rows[0][0])


def _child_of(prefix: str, descendant: str) -> str:
    return prefix + descendant[len(prefix) :].partition(".")[0]
