"""From a raw path to a route: split first, decode later, and forgive what users get wrong about base paths."""

from collections.abc import Sequence
from typing import Any

from nunatak.access.privileges import Privilege
from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.route import TOP_WORDS, Route
from nunatak.api.routes import ROUTES
from nunatak.errors import MethodNotAllowed, NoSuchRoute

# The same API under each of these; clients put them before /v1.
ROOTS: tuple[tuple[str, ...], ...] = (("iceberg",), ("apis", "iceberg"), ("api", "catalog"))
MANAGEMENT = ("management", "v1")
_ANY = "*"

MOST_REMEMBERED, LONGEST_REMEMBERED = 4096, 300  # paths: engines ask for the same ones again and again

Tree = dict[str, Any]
Match = tuple[Route, str, Sequence[str]]


class Router:
    """Two trees of path words, in which `*` stands for a name, and the paths that have none."""

    def __init__(self, routes: Sequence[Route] = (*ROUTES, *MANAGEMENT_ROUTES), base_paths: Sequence[str] = ()) -> None:
        roots = (*ROOTS, *(tuple(path.strip("/").split("/")) for path in base_paths))
        self._roots = sorted(roots, key=len, reverse=True)  # of two that fit, the longer is meant
        self.management_routes = tuple(route for route in routes if route.template.startswith("/management/"))
        # What the audit trail calls them: operations that change nothing, and logins.
        self.reads = frozenset({route.operation for route in routes if not route.mutates} | {"getToken"})
        self._api: Tree = {}
        self._management: Tree = {}
        self._plain: dict[tuple[str, ...], dict[str, Route]] = {}
        self._found: dict[tuple[str, str], Match] = {}
        for route in routes:
            if not isinstance(route.privilege, Privilege):
                raise TypeError(f"{route.operation} declares no privilege: it would be open to everybody")
            words = route.template.strip("/").split("/")
            if words[0] == "v1":
                _add(self._api, [word for word in words[1:] if word != "{prefix}"], route)
            elif tuple(words[:2]) == MANAGEMENT:
                _add(self._management, words[2:], route)
            else:
                self._plain.setdefault(tuple(word for word in words if word), {})[route.method] = route

    def match(self, method: str, path: str) -> Match:
        """The route, the raw prefix (empty for none) and the raw names in the path; remembered, not to be changed."""
        found = self._found.get((method, path))
        if found is None:
            found = self._match(method, path)
            if len(path) <= LONGEST_REMEMBERED:
                if len(self._found) >= MOST_REMEMBERED:
                    self._found.clear()
                self._found[method, path] = found
        return found

    def _match(self, method: str, path: str) -> Match:
        words = path.split("/")[1:]
        if words and words[-1] == "":
            words.pop()
        start = 0
        for root in self._roots:
            if tuple(words[: len(root)]) == root:
                start = len(root)
                break
        if tuple(words[start : start + 2]) == MANAGEMENT:
            methods, names = _walk(self._management, words[start + 2 :])
            return _choose(methods, method, path), "", names
        if len(words) <= start or words[start] != "v1":
            plain = self._plain.get(tuple(words)) or self._plain.get(tuple(words[start:])) or {}
            return _choose(plain, method, path), "", []
        start += 1
        if len(words) > start and words[start] == "v1":  # a base URL that already ended in /v1
            start += 1
        prefix = ""
        if len(words) > start and words[start] not in TOP_WORDS:
            prefix = words[start]
            start += 1
        methods, names = _walk(self._api, words[start:])
        return _choose(methods, method, path), prefix, names


def _add(tree: Tree, words: Sequence[str], route: Route) -> None:
    node = tree
    for word in words:
        node = node.setdefault(_ANY if word.startswith("{") else word, {})
    node.setdefault("", {})[route.method] = route


def _walk(tree: Tree, words: Sequence[str]) -> tuple[dict[str, Route], list[str]]:
    """The routes at the end of the path by their methods, none if it leads nowhere, and the names on the way."""
    node: Tree = tree
    names: list[str] = []
    for word in words:
        inner = node.get(word)
        if inner is None or word in ("", _ANY):
            inner = node.get(_ANY)
            names.append(word)
        if inner is None:
            return {}, []
        node = inner
    return node.get("", {}), names


def _choose(methods: dict[str, Route], method: str, path: str) -> Route:
    if not methods:
        raise _no_route(method, path)
    route = methods.get(method)
    if route is None:
        allowed = ", ".join(sorted(methods))
        raise MethodNotAllowed(f"Method {method} is not allowed for {path[:200]}", allowed=allowed)
    return route


def first_words() -> frozenset[str]:
    """The first words of all paths: no base path may begin with one of them."""
    return frozenset(route.template.split("/")[1] for route in (*ROUTES, *MANAGEMENT_ROUTES))


def _no_route(method: str, path: str) -> NoSuchRoute:
    hint = "Every route is listed in `endpoints` of /v1/config; the base URL is the part before /v1."
    if path.rstrip("/").endswith("/oauth/tokens"):
        hint = "Tokens are asked for at /v1/oauth/tokens."
    return NoSuchRoute(f"No route for request: {method} {path[:200]}", hint=hint)
