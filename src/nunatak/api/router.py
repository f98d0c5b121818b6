"""Maps a raw path to a route: splits before decoding, and accepts common mistakes in base paths."""

from collections.abc import Sequence
from typing import Any

from nunatak.access.privileges import Privilege
from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.route import TOP_WORDS, Route
from nunatak.api.routes import ROUTES
from nunatak.errors import MethodNotAllowed, NoSuchRoute

# Base paths under which the same API is served; clients put them before /v1.
ROOTS: tuple[tuple[str, ...], ...] = (("iceberg",), ("apis", "iceberg"), ("api", "catalog"))
MANAGEMENT = ("management", "v1")
_ANY = "*"

MAX_CACHED_PATHS, MAX_CACHED_PATH_LENGTH = (
    4096,
    300,
)  # entries and characters: engines request the same paths repeatedly

Tree = dict[str, Any]
Match = tuple[Route, str, Sequence[str]]


class Router:
    """Two trees of path segments, in which `*` matches a name, and a dictionary of the other paths."""

    def __init__(self, routes: Sequence[Route] = (*ROUTES, *MANAGEMENT_ROUTES), base_paths: Sequence[str] = ()) -> None:
        roots = (*ROOTS, *(tuple(path.strip("/").split("/")) for path in base_paths))
        self._roots = sorted(roots, key=len, reverse=True)  # the longest match wins
        self.management_routes = tuple(route for route in routes if route.template.startswith("/management/"))
        # Names in the audit trail of operations that change nothing, and of logins.
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
        """Returns the route, the raw prefix (or empty) and the raw names of the path; cached, must not be changed."""
        found = self._found.get((method, path))
        if found is None:
            found = self._match(method, path)
            if len(path) <= MAX_CACHED_PATH_LENGTH:
                if len(self._found) >= MAX_CACHED_PATHS:
                    self._found.clear()
                self._found[method, path] = found
        return found

    def _match(self, method: str, path: str) -> Match:
        words = path.split("/")[1:]
        if words and words[-1] == "":
            words.pop()  # a trailing slash is ignored
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
        if len(words) > start and words[start] == "v1":  # the client appended /v1 to a base URL that ends in /v1
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
    """Returns the routes at a path by method, empty if there are none, and the names in the path."""
    node: Tree = tree
    names: list[str] = []
    for word in words:
        # "" and "*" are keys of the tree itself: a segment of that text can only be a name.
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
    """Returns the first segments of all paths; no base path may start with one of them."""
    return frozenset(route.template.split("/")[1] for route in (*ROUTES, *MANAGEMENT_ROUTES))


def _no_route(method: str, path: str) -> NoSuchRoute:
    hint = "Every route is listed in `endpoints` of /v1/config; the base URL is the part before /v1."
    if path.rstrip("/").endswith("/oauth/tokens"):
        hint = "The token endpoint is /v1/oauth/tokens."
    return NoSuchRoute(f"No route for request: {method} {path[:200]}", hint=hint)
