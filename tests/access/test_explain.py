"""Why somebody may, or may not: the grant that decides, and who may do what on a part of the catalog."""

from typing import Any

import pytest

from nunatak.access import administration as admin
from nunatak.access import securables
from nunatak.access.administration import Actor
from nunatak.access.explain import Explanation, Holding, explain, matrix
from nunatak.access.grants import Grants
from nunatak.access.privileges import ADMIN, EVERYTHING, GRANTABLE, READ, WRITE, Privilege, names_of
from nunatak.access.sessions import session_of
from nunatak.database.store import Store
from nunatak.errors import BadRequest
from tests.backends.conftest import Run

ROOT = Actor("root", 1000)
P = Privilege
ORDERS = "table:default/sales/orders"


class World:
    """alice is an analyst and an auditor; root administers; bob has nothing; eve is disabled."""

    def __init__(self, store: Store, run: Run[Any]) -> None:
        self.store, self.run = store, run
        for name in ("root", "alice", "bob", "eve"):
            run(store.apply(admin.create_principal(ROOT, name)))
        for role in ("analyst", "auditor", "outside"):
            run(store.apply(admin.create_role(ROOT, role)))
        for role, name in (("analyst", "alice"), ("auditor", "alice"), ("analyst", "eve")):
            run(store.apply(admin.add_member(ROOT, role, name)))
        self.grant("principal:root", "server", P.SERVER_ADMIN)
        self.grant("role:analyst", "warehouse:default", READ)
        self.grant("role:auditor", "server", P.AUDIT_READ)
        self.grant("principal:alice", ORDERS, P.TABLE_WRITE)
        self.grant("role:outside", "namespace:default/sales", WRITE)
        self.grant("principal:eve", "server", ADMIN)
        run(store.apply(run(admin.update_principal(store, ROOT, "eve", disabled=True))))

    def grant(self, grantee: str, place: str, privileges: Privilege) -> None:
        changes = admin.grant(
            ROOT, int(GRANTABLE), admin.parse_grantee(grantee), securables.parse_securable(place), privileges
        )
        self.run(self.store.apply(changes))

    def explain(self, principal: str, privilege: Privilege, place: str, *roles: str) -> Explanation:
        found: Explanation = self.run(
            explain(self.store, principal, privilege, securables.parse_securable(place), roles)
        )
        return found

    def matrix(self, place: str) -> dict[tuple[str, str], Holding]:
        found = self.run(matrix(self.store, securables.parse_securable(place)))
        return {
            (securables.format_securable(each.securable), admin.format_grantee(each.holder)): each for each in found
        }


@pytest.fixture
def world(store: Store, run: Run[Any]) -> World:
    return World(store, run)


@pytest.mark.parametrize(
    ("principal", "privilege", "place", "decides"),
    [
        ("alice", P.TABLE_READ_DATA, ORDERS, "role:analyst on warehouse:default"),
        ("alice", P.TABLE_WRITE, ORDERS, f"principal:alice on {ORDERS}"),
        ("alice", P.TABLE_WRITE, "table:default/sales/other", None),
        ("alice", P.TABLE_READ_DATA, "table:other/sales/orders", None),
        ("alice", P.AUDIT_READ, ORDERS, "role:auditor on server"),
        ("root", P.TABLE_DROP, ORDERS, "principal:root on server"),
        ("bob", P.TABLE_LIST, ORDERS, None),
        ("eve", P.TABLE_LIST, ORDERS, None),
        ("stranger", P.TABLE_LIST, ORDERS, None),
    ],
)
def test_the_nearest_grant_that_gives_the_right_decides(
    plain_store: Store, run: Run[Any], principal: str, privilege: Privilege, place: str, decides: str | None
) -> None:
    found = World(plain_store, run).explain(principal, privilege, place)

    deciding = found.deciding
    named = (
        deciding and f"{admin.format_grantee(deciding.grantee)} on {securables.format_securable(deciding.securable)}"
    )
    assert named == decides
    assert found.allowed == (decides is not None)


def test_the_reason_says_whose_right_it_is_and_where_it_comes_from(world: World) -> None:
    assert world.explain("alice", P.TABLE_LIST, ORDERS).reason == (
        "alice holds a grant on warehouse:default through role:analyst"
    )
    assert "an administrator there may TABLE_DROP" in world.explain("root", P.TABLE_DROP, ORDERS).reason
    assert "no grant gives TABLE_DROP" in world.explain("alice", P.TABLE_DROP, ORDERS).reason
    assert "is not a principal of this catalog" in world.explain("stranger", P.TABLE_DROP, ORDERS).reason
    assert world.explain("eve", P.CONFIG_READ, "server").reason == "eve is disabled"
    assert world.explain("bob", P.CONFIG_READ, "server").allowed


def test_all_grants_that_bear_on_it_are_listed_outermost_first(world: World) -> None:
    found = world.explain("alice", P.TABLE_DROP, ORDERS)

    assert [securables.format_securable(each) for each in found.chain] == [
        "server",
        "warehouse:default",
        "namespace:default/sales",
        ORDERS,
    ]
    assert [admin.format_grantee(each.grantee) for each in found.grants] == [
        "role:auditor",
        "role:analyst",
        "principal:alice",
    ]


def test_a_role_that_a_token_would_bring_is_taken_into_account(world: World) -> None:
    alone = world.explain("stranger", P.TABLE_WRITE, ORDERS)
    with_role = world.explain("stranger", P.TABLE_WRITE, ORDERS, "outside")

    assert (alone.allowed, with_role.allowed) == (False, True)
    with pytest.raises(BadRequest):
        world.explain("stranger", P.TABLE_WRITE, ORDERS, "a,b")


@pytest.mark.parametrize("privilege", [single for single in P if single & GRANTABLE], ids=lambda each: each.name)
def test_what_is_explained_is_what_the_decision_point_decides(
    plain_store: Store, run: Run[Any], privilege: Privilege
) -> None:
    world = World(plain_store, run)
    for principal in ("alice", "root", "bob"):
        _, roles = run(admin.load_principal(plain_store, principal))
        for place in ("server", "warehouse:default", "namespace:default/sales", ORDERS, "table:other/a/t"):
            securable = securables.parse_securable(place)
            (held,) = run(Grants(plain_store).rights(session_of(principal, roles), [securable]))

            assert world.explain(principal, privilege, place).allowed == bool(held & privilege), (principal, place)


def test_the_matrix_lists_everybody_with_a_right_there_and_who_was_granted_more_inside(world: World) -> None:
    found = world.matrix("namespace:default/sales")

    assert set(found) == {
        ("namespace:default/sales", "principal:alice"),
        ("namespace:default/sales", "principal:root"),
        ("namespace:default/sales", "role:outside"),
        (ORDERS, "principal:alice"),
    }
    assert found["namespace:default/sales", "principal:alice"].privileges == READ | P.AUDIT_READ
    assert found["namespace:default/sales", "principal:root"].privileges == EVERYTHING
    assert names_of(found[ORDERS, "principal:alice"].privileges & ~READ) == ["TABLE_WRITE", "AUDIT_READ"]
    assert [admin.format_grantee(each.grantee) for each in found[ORDERS, "principal:alice"].through] == [
        "role:auditor",
        "role:analyst",
        "principal:alice",
    ]


def test_the_matrix_of_the_server_covers_everything(world: World) -> None:
    places = {place for place, _ in world.matrix("server")}

    assert places == {"server", "warehouse:default", "namespace:default/sales", ORDERS}
