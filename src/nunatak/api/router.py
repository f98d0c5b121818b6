"""From a raw path to a route: split first, decode later, and forgive what users get wrong about base paths."""

from collections.abc import Sequence
from typing import Any

from nunatak.api.routes import ROUTES, Route
from nunatak.errors import BadRequest, MethodNotAllowed

# The same API under each of these; clients put them before /v1.
ROOTS: tuple[tuple[str, ...], ...] = (("iceberg",), ("apis", "iceberg"), ("api", "catalog"))
# What may follow /v1 without a prefix; a warehouse of such a name could not be addressed.
TOP_WORDS = frozenset({"v1", "config", "oauth", "namespaces", "tables", "views", "transactions", "search"})
_ANY = "*"


class Router:
    """A tree of path words; `*` stands for a name."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self._api: dict[str, Any] = {}
        self._plain: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            words = route.template.strip("/").split("/")
            if words[0] != "v1":
                self._plain.setdefault(tuple(word for word in words if word), {})[route.method] = route
                continue
            node = self._api
            for word in words[1:]:
                if word == "{prefix}":
                    continue
                node = node.setdefault(_ANY if word.startswith("{") else word, {})
            node.setdefault("", {})[route.method] = route

    def match(self, method: str, path: str) -> tuple[Route, str, list[str]]:
        """The route, the raw prefix (empty for none) and the raw names in the path."""
        words = path.split("/")[1:]
        if words and words[-1] == "":
            words.pop()
        start = 0
        for root in ROOTS:
            if tuple(words[: len(root)]) == root:
                start = len(root)
                break
        if len(words) <= start or words[start] != "v1":
            plain = self._plain.get(tuple(words)) or self._plain.get(tuple(words[start:]))
            if plain is None:
                raise _no_route(method, path)
            return _choose(plain, method, path), "", []
        start += 1
        if len(words) > start and words[start] == "v1":  # a base URL that already ended in /v1
            start += 1
        prefix = ""
        if len(words) > start and words[start] not in TOP_WORDS:
            prefix = words[start]
            start += 1
        node: dict[str, Any] | None = self._api
        names: list[str] = []
        for word in words[start:]:
            assert node is not None
            inner = node.get(word)
            if inner is None or word in ("", _ANY):
                inner = node.get(_ANY)
                names.append(word)
            node = inner
            if node is None:
                raise _no_route(method, path)
        methods = node.get("") if node is not None else None
        if not isinstance(methods, dict) or not methods:
            raise _no_route(method, path)
        return _choose(methods, method, path), prefix, names


def _choose(methods: dict[str, Route], method: str, path: str) -> Route:
    route = methods.get(method)
    if route is None:
        allowed = ", ".join(sorted(methods))
        raise MethodNotAllowed(f"Method {method} is not allowed for {path[:200]}", allowed=allowed)
    return route


def _no_route(method: str, path: str) -> BadRequest:
    hint = "Every route is listed in `endpoints` of /v1/config; the base URL is the part before /v1."
    if path.rstrip("/").endswith("/oauth/tokens"):
        hint = "This server issues no tokens: leave `credential` and `token` out of the client's configuration."
    return BadRequest(f"No route for request: {method} {path[:200]}", hint=hint)
