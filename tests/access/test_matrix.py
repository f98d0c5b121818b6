"""S2: every route, by six kinds of caller, on what is theirs, beside it, in another warehouse, and absent.

What is expected is worked out here from a table of its own, not from the server's: which privileges a route needs
(MISSION 000-78 to 000-80), who holds what where, and who may know what exists.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nunatak.access.privileges import Privilege
from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.routes import ROUTES
from tests.api.wire import a_commit, a_table, a_view, add_snapshot, set_branch, set_properties
from tests.support.catalogs.local import LocalCatalog

READ = {"NS_LIST", "TABLE_LIST", "TABLE_READ_META", "TABLE_READ_DATA"}
WRITE = READ | {"NS_CREATE", "NS_UPDATE", "TABLE_CREATE", "TABLE_WRITE", "TABLE_ALTER"}
ADMIN = WRITE | {"NS_DROP", "TABLE_DROP", "GRANT"}
ALL = ADMIN | {"LOCATION_CHOOSE", "WAREHOUSE_ADMIN", "AUDIT_READ"}
NOTHING: set[str] = set()

# Who, and what they hold on (what is theirs, its sibling, the other warehouse).
CALLERS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "stranger": (NOTHING, NOTHING, NOTHING),
    "reader": (READ, NOTHING, NOTHING),
    "writer": (WRITE, NOTHING, NOTHING),
    "owner": (ADMIN, NOTHING, NOTHING),
    "keeper": (ALL, ALL, NOTHING),
    "root": (ALL, ALL, ALL),
}
PLACES = ("own", "sibling", "other", "absent")

# What each operation needs, where: in the namespace, or on the entry inside it.
ON_NAMESPACE: dict[str, set[str]] = {
    "loadNamespaceMetadata": {"NS_LIST"},
    "namespaceExists": {"NS_LIST"},
    "updateProperties": {"NS_UPDATE"},
    "dropNamespace": {"NS_DROP"},
    "createTable": {"TABLE_CREATE"},
    "createView": {"TABLE_CREATE"},
    "registerTable": {"TABLE_CREATE", "LOCATION_CHOOSE"},
    "registerView": {"TABLE_CREATE", "LOCATION_CHOOSE"},
}
ON_ENTRY: dict[str, set[str]] = {
    "loadTable": {"TABLE_READ_META"},
    "tableExists": {"TABLE_READ_META"},
    "updateTable": {"TABLE_WRITE", "TABLE_ALTER"},
    "dropTable": {"TABLE_DROP"},
    "unregisterTable": {"TABLE_DROP"},
    "loadCredentials": {"TABLE_READ_DATA"},
    "signRequest": {"TABLE_READ_DATA"},
    "reportMetrics": {"TABLE_READ_META"},
    "renameTable": {"TABLE_ALTER", "TABLE_CREATE"},
    "commitTransaction": {"TABLE_WRITE"},
    "loadView": {"TABLE_READ_META"},
    "viewExists": {"TABLE_READ_META"},
    "replaceView": {"TABLE_WRITE"},
    "dropView": {"TABLE_DROP"},
    "renameView": {"TABLE_ALTER", "TABLE_CREATE"},
}
# The same operations with a body that names a place for files; each needs LOCATION_CHOOSE besides.
WITH_PLACE = {
    "createTable at a place": "createTable",
    "createView at a place": "createView",
    "updateProperties to a place": "updateProperties",
    "updateTable to a place": "updateTable",
    "updateTable to a place, as old clients say it": "updateTable",
    "replaceView to a place": "replaceView",
    "replaceView to a place, as old clients say it": "replaceView",
}
LISTS = {"listTables", "listViews"}
ON_WAREHOUSE = {"listNamespaces", "search", "getConfig"}
MANAGED = [route for route in MANAGEMENT_ROUTES if not (route.method == "POST" and route.template.endswith("/rotate"))]
CATALOG_ROUTES = [
    route for route in ROUTES if route.privilege is not Privilege.PUBLIC and route.template.startswith("/v1")
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCatalog]:
    data: Path = tmp_path_factory.mktemp("matrix")
    secured = LocalCatalog(data, {"NUNATAK_WAREHOUSES": f"elsewhere=file://{data}/elsewhere"}, auth=True)
    restore(secured)  # first: whoever creates something takes away what was granted there before
    secured.principal("stranger")
    secured.principal("victim")
    secured.principal("reader", default__own="READ")
    secured.principal("writer", default__own="WRITE")
    secured.principal("owner", default__own="ADMIN")
    secured.principal("keeper", default="WAREHOUSE_ADMIN")
    yield secured
    secured.close()


def where(place: str) -> tuple[str, str, str]:
    """The prefix of the warehouse, the namespace and the name of what is there."""
    if place == "other":
        return "elsewhere", "own", "t"
    if place == "sibling":
        return "default", "sibling", "t"
    return "default", "own", "t" if place == "own" else "nothing"


def restore(catalog: LocalCatalog) -> None:
    """Everything the cells speak of is there, whatever the last one did."""
    for prefix, namespace in (("default", "own"), ("default", "sibling"), ("elsewhere", "own")):
        base = f"/v1/{prefix}/namespaces"
        if catalog.call("HEAD", f"{base}/{namespace}").status != 204:
            assert catalog.call("POST", base, {"namespace": [namespace]}).status == 200
        for kind, body in (("tables", a_table("t")), ("views", a_view("v"))):
            name = body["name"]
            for leftover in ("new", "renamed"):
                catalog.call("DELETE", f"{base}/{namespace}/{kind}/{leftover}")
            if catalog.call("HEAD", f"{base}/{namespace}/{kind}/{name}").status != 204:
                assert catalog.call("POST", f"{base}/{namespace}/{kind}", body).status == 200
        for leftover in (f"{namespace}%1Finner", "missing%1Finner", "missing"):
            catalog.call("DELETE", f"{base}/{leftover}")


def request_for(operation: str, place: str) -> tuple[str, str, Any]:
    """Method, path and body of an operation on that place; absent means a name that nobody has."""
    prefix, namespace, table = where(place)
    view = "v" if table == "t" else table
    holder = "missing" if place == "absent" and operation in (*ON_NAMESPACE, *LISTS) else namespace
    base, one = f"/v1/{prefix}/namespaces", f"/v1/{prefix}/namespaces/{holder}"
    location = {"metadata-location": "file:///nowhere/v1.metadata.json"}
    snapshot = [add_snapshot(4711), set_branch(4711)]
    here = {"namespace": [namespace], "name": table}
    match operation:
        case "getConfig":
            return "GET", f"/v1/config?warehouse={prefix if place != 'absent' else 'missing'}", None
        case "listNamespaces":
            return "GET", base, None
        case "search":
            return "GET", f"/v1/{prefix}/search?query=t", None
        case "createNamespace":
            return "POST", base, {"namespace": ["missing" if place == "absent" else namespace, "inner"]}
        case "loadNamespaceMetadata":
            return "GET", one, None
        case "namespaceExists":
            return "HEAD", one, None
        case "dropNamespace":
            return "DELETE", one, None
        case "updateProperties":
            return "POST", one + "/properties", {"updates": {"a": "b"}}
        case "listTables":
            return "GET", one + "/tables", None
        case "listViews":
            return "GET", one + "/views", None
        case "createTable":
            return "POST", one + "/tables", a_table("new")
        case "createView":
            return "POST", one + "/views", a_view("new")
        case "registerTable":
            return "POST", one + "/register", {"name": "new", **location}
        case "registerView":
            return "POST", one + "/register-view", {"name": "new", **location}
        case "loadTable":
            return "GET", f"{one}/tables/{table}", None
        case "tableExists":
            return "HEAD", f"{one}/tables/{table}", None
        case "updateTable":
            return "POST", f"{one}/tables/{table}", a_commit(set_properties(a="b"))
        case "dropTable":
            return "DELETE", f"{one}/tables/{table}", None
        case "unregisterTable":
            return "POST", f"{one}/tables/{table}/unregister", {}
        case "loadCredentials":
            return "GET", f"{one}/tables/{table}/credentials", None
        case "signRequest":
            wanted = {"method": "GET", "region": "us-east-1", "uri": "https://s3.example/b/k", "headers": {}}
            return "POST", f"{one}/tables/{table}/sign", wanted
        case "reportMetrics":
            return "POST", f"{one}/tables/{table}/metrics", {"report-type": "scan-report"}
        case "renameTable":
            to = {"namespace": [namespace], "name": "renamed"}
            return "POST", f"/v1/{prefix}/tables/rename", {"source": here, "destination": to}
        case "commitTransaction":
            change = {"identifier": here, **a_commit(*snapshot)}
            return "POST", f"/v1/{prefix}/transactions/commit", {"table-changes": [change]}
        case "loadView":
            return "GET", f"{one}/views/{view}", None
        case "viewExists":
            return "HEAD", f"{one}/views/{view}", None
        case "replaceView":
            return "POST", f"{one}/views/{view}", a_commit(set_properties(a="b"))
        case "dropView":
            return "DELETE", f"{one}/views/{view}", None
        case "renameView":
            source = {"namespace": [namespace], "name": view}
            to = {"namespace": [namespace], "name": "renamed"}
            return "POST", f"/v1/{prefix}/views/rename", {"source": source, "destination": to}
    raise AssertionError(f"no request is known for {operation}: the matrix must cover every route")


def request_with_place(catalog: LocalCatalog, variant: str, place: str) -> tuple[str, str, Any]:
    method, path, body = request_for(WITH_PLACE[variant], place)
    base = catalog.data / "elsewhere" if place == "other" else catalog.warehouse
    chosen = f"file://{base}/{variant}/{place}".replace(" ", "-").replace(",", "")
    match variant:
        case "createTable at a place" | "createView at a place":
            return method, path, {**body, "location": chosen}
        case "updateProperties to a place":
            return method, path, {"updates": {"location": chosen}}
        case "updateTable to a place" | "replaceView to a place":
            return method, path, a_commit({"action": "set-location", "location": chosen})
    return method, path, a_commit({"action": "set-properties", "updated": {"write.metadata.path": chosen}})


def expected(operation: str, caller: str, place: str) -> str:
    """`done`, `forbidden` or `absent`."""
    with_place = operation in WITH_PLACE
    operation = WITH_PLACE.get(operation, operation)
    own, sibling, other = CALLERS[caller]
    # A name that nobody has: what is held on a namespace counts for what is inside it, not for another namespace.
    nowhere = sibling if operation in (*ON_NAMESPACE, *LISTS, "createNamespace") else own
    held = {"own": own, "sibling": sibling, "other": other, "absent": nowhere}[place]
    sees_warehouse = bool(other if place == "other" else own)
    if operation == "getConfig":
        return "done" if sees_warehouse and place != "absent" else "absent"
    if not sees_warehouse:
        return "absent"
    if operation in ("listNamespaces", "search"):
        return "done"
    if operation == "createNamespace":
        return "done" if "NS_CREATE" in held else "forbidden"
    if not held or place == "absent":
        return "absent"
    if operation in LISTS:
        return "done"
    needed = ON_NAMESPACE.get(operation) or ON_ENTRY[operation]
    if with_place:
        needed = needed | {"LOCATION_CHOOSE"}
    return "done" if needed <= held else "forbidden"


def met(status: int) -> str:
    return {401: "unknown", 403: "forbidden", 404: "absent"}.get(status, "done")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("operation", [*(route.operation for route in CATALOG_ROUTES), *WITH_PLACE])
def test_every_route_for_everybody_everywhere(catalog: LocalCatalog, operation: str, caller: str, place: str) -> None:
    """MISSION: 000-78, 000-79, 000-80, 004-28"""
    restore(catalog)
    if operation in WITH_PLACE:
        method, path, body = request_with_place(catalog, operation, place)
    else:
        method, path, body = request_for(operation, place)
    before = catalog.state()

    answer = catalog.call_as(caller, method, path, body)

    wanted = expected(operation, caller, place)
    if operation in ("registerTable", "registerView") and wanted == "done":
        assert answer.status == 400  # allowed to try: the place is outside the warehouse
    else:
        assert met(answer.status) == wanted, answer.body[:300]
        assert answer.status < 500, answer.body[:300]
    if wanted != "done":
        assert catalog.state() == before
        if method != "HEAD":
            assert answer.error


@pytest.mark.parametrize("route", CATALOG_ROUTES, ids=lambda route: route.operation)
def test_nobody_gets_in_without_saying_who_they_are(catalog: LocalCatalog, route: Any) -> None:
    """MISSION: 002-02"""
    for place in PLACES:
        method, path, body = request_for(route.operation, place)
        for headers in (
            {},
            {"Authorization": "Bearer nonsense"},
            {"Authorization": "Bearer None"},
            {"Authorization": "Basic eDp5"},
        ):
            answer = catalog.run(catalog.request(method, path, body, headers))

            assert answer.status == 401
            assert answer.headers["WWW-Authenticate".lower()].startswith("Bearer")


@pytest.mark.parametrize("names", ["existing", "absent"])
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", MANAGED, ids=lambda route: route.operation)
def test_the_management_api_is_for_administrators(catalog: LocalCatalog, route: Any, caller: str, names: str) -> None:
    """What a route leaves to its handler is tested beside the handler."""
    known = {"{principal}": "victim", "{role}": "auditors", "{warehouse}": "elsewhere", "{credential}": "x"}
    path = route.template
    for name, value in known.items():
        path = path.replace(name, value if names == "existing" else "nobody")

    stranger = catalog.run(catalog.request(route.method, path, {}, {}))
    # An administrator would carry it out: what is asked for then is nonsense, and refused for that.
    answer = catalog.call_as(caller, route.method, path, b"{" if caller == "root" else {})

    if route.privilege is not Privilege.PUBLIC:
        assert stranger.status == 401
    if route.privilege is Privilege.SERVER_ADMIN:
        assert (answer.status == 403) == (caller != "root")
    assert answer.status < 500


def test_the_matrix_is_as_large_as_promised() -> None:
    assert {route.operation for route in CATALOG_ROUTES} == {
        *ON_NAMESPACE,
        *ON_ENTRY,
        *LISTS,
        *ON_WAREHOUSE,
        "createNamespace",
    }
    cells = len(CATALOG_ROUTES) * len(CALLERS) * len(PLACES) + len(MANAGED) * len(CALLERS) * 2
    print(f"{cells} cells")
    assert cells >= 840
