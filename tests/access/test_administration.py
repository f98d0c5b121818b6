"""Principals, roles, grants, credentials and warehouses: what a change does, and what is refused, on every database."""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nunatak.access import administration as admin
from nunatak.access import securables
from nunatak.access.administration import Actor, WarehouseRow
from nunatak.access.credentials import NewCredential
from nunatak.access.grants import Grants
from nunatak.access.privileges import ADMIN, GRANTABLE, READ, WRITE, Privilege, expand_rights
from nunatak.access.sessions import session_of
from nunatak.database.records import Change, CreateNamespace, Write
from nunatak.database.store import Store
from nunatak.errors import AlreadyExists, BadRequest, CatalogError, Conflict, Forbidden, NotFound
from nunatak.secret import Secret
from tests.backends.conftest import Run

ROOT = Actor("root", 1000, "request-1", '{"address": "127.0.0.1"}')
P = Privilege
ALL = int(GRANTABLE)
SALES = securables.namespace("default", ("sales",))


class Office:
    """Applies what administration.py makes, and answers questions in plain values."""

    def __init__(self, store: Store, run: Run[Any]) -> None:
        self.store = store
        self._run = run

    def does(self, changes: Sequence[Change] | Coroutine[Any, Any, list[Change]]) -> None:
        self._run(self._apply(changes))

    async def _apply(self, changes: Sequence[Change] | Coroutine[Any, Any, list[Change]]) -> None:
        await self.store.apply(await changes if isinstance(changes, Coroutine) else changes)

    def together(self, *works: Sequence[Change]) -> list[object]:
        async def all_of_them() -> list[object]:
            return await asyncio.gather(*(self._apply(work) for work in works), return_exceptions=True)

        found: list[object] = self._run(all_of_them())
        return found

    def asks(self, question: Coroutine[Any, Any, Any]) -> Any:
        return self._run(question)

    def rights(self, principal: str, securable: str) -> int:
        _, roles = self.asks(admin.load_principal(self.store, principal))
        (held,) = self.asks(Grants(self.store).rights(session_of(principal, roles), [securable]))
        return int(held)

    def audit(self) -> list[tuple[str, str, Any]]:
        rows = self.asks(self.store.rows("audit_after", {"after": 0, "last": 1000, "limit": 100}))
        return [(row[3], row[4], None if row[6] is None else json.loads(row[6])) for row in rows]

    def version(self) -> int:
        rows = self.asks(self.store.rows("policy_version", {}))
        return int(rows[0][0])

    def warehouses(self) -> list[tuple[Any, ...]]:
        """Without the time of creation."""
        rows = self.asks(self.store.rows("list_warehouses", {}))
        return [(*row[:2], *row[3:6], None if row[6] is None else bytes(row[6]), row[7]) for row in rows]

    def principals(self, *names: str) -> None:
        for name in names:
            self.does(admin.create_principal(ROOT, name))

    def grants(self, grantee: str, securable: str, privileges: Privilege, rights: int = ALL) -> None:
        self.does(admin.grant(ROOT, rights, admin.parse_grantee(grantee), securable, privileges))

    def revokes(self, grantee: str, securable: str, privileges: Privilege, rights: int = ALL) -> None:
        self.does(admin.revoke(self.store, ROOT, rights, admin.parse_grantee(grantee), securable, privileges))


@pytest.fixture
def office(store: Store, run: Run[Any]) -> Office:
    return Office(store, run)


# Principals and roles


def test_a_principal_is_kept_listed_and_dropped(office: Office) -> None:
    office.principals("bob", "alice")

    assert [each.name for each in office.asks(admin.list_principals(office.store, "", 10))] == ["alice", "bob"]
    assert [each.name for each in office.asks(admin.list_principals(office.store, "alice", 10))] == ["bob"]
    with pytest.raises(AlreadyExists):
        office.principals("bob")

    office.does(admin.drop_principal(office.store, ROOT, "bob"))

    with pytest.raises(NotFound):
        office.asks(admin.load_principal(office.store, "bob"))
    with pytest.raises(NotFound):
        office.does(admin.drop_principal(office.store, ROOT, "bob"))


def test_what_is_not_named_in_an_update_stays(office: Office) -> None:
    office.does(admin.create_principal(ROOT, "alice", "from sales"))

    office.does(admin.update_principal(office.store, ROOT, "alice", disabled=True))
    disabled, _ = office.asks(admin.load_principal(office.store, "alice"))
    office.does(admin.update_principal(office.store, ROOT, "alice", disabled=False, note=""))
    enabled, _ = office.asks(admin.load_principal(office.store, "alice"))

    assert (disabled.disabled, disabled.note) == (True, "from sales")
    assert (enabled.disabled, enabled.note) == (False, "")
    with pytest.raises(NotFound):
        office.does(admin.update_principal(office.store, ROOT, "nobody", note="x"))


def test_a_dropped_principal_leaves_nothing_behind(office: Office) -> None:
    office.principals("alice")
    office.does(admin.create_role(ROOT, "analyst"))
    office.does(admin.add_member(ROOT, "analyst", "alice"))
    office.grants("principal:alice", SALES, READ)
    office.does(admin.create_credential(ROOT, "alice", NewCredential("id1", "api-key", Secret("x"), b"hash")))

    office.does(admin.drop_principal(office.store, ROOT, "alice"))
    office.principals("alice")

    assert office.rights("alice", SALES) == 0
    assert office.asks(admin.list_members(office.store, "analyst", "", 10)) == []
    assert office.asks(admin.list_credentials(office.store, "alice")) == []


def test_a_role_gives_its_members_what_it_was_granted_until_it_is_dropped(office: Office) -> None:
    office.principals("alice")
    office.does(admin.create_role(ROOT, "analyst"))
    office.grants("role:analyst", SALES, READ)
    assert office.rights("alice", SALES) == 0

    office.does(admin.add_member(ROOT, "analyst", "alice"))
    as_member = office.rights("alice", securables.entry("default", ("sales",), "orders"))
    with pytest.raises(AlreadyExists):
        office.does(admin.add_member(ROOT, "analyst", "alice"))
    office.does(admin.remove_member(office.store, ROOT, "analyst", "alice"))

    assert as_member == READ
    assert office.rights("alice", SALES) == 0
    with pytest.raises(NotFound):
        office.does(admin.remove_member(office.store, ROOT, "analyst", "alice"))

    office.does(admin.add_member(ROOT, "analyst", "alice"))
    office.does(admin.drop_role(office.store, ROOT, "analyst"))
    office.does(admin.create_role(ROOT, "analyst"))

    assert office.rights("alice", SALES) == 0
    assert office.asks(admin.list_members(office.store, "analyst", "", 10)) == []


def test_only_who_is_kept_becomes_a_member_or_a_grantee(office: Office) -> None:
    office.principals("alice")
    office.does(admin.create_role(ROOT, "analyst"))

    for changes in (
        admin.add_member(ROOT, "analyst", "nobody"),
        admin.add_member(ROOT, "nothing", "alice"),
        admin.grant(ROOT, ALL, "p:nobody", SALES, READ),
        admin.grant(ROOT, ALL, "r:nothing", SALES, READ),
        admin.create_credential(ROOT, "nobody", NewCredential("id", "api-key", Secret("x"), b"h")),
    ):
        with pytest.raises(NotFound):
            office.does(changes)


@pytest.mark.parametrize(
    "name", ["a", "alice@example.org", "spiffe://x/y", "Ann Smith", "x" * 128, "auth0|123", "é", "a:b"]
)
def test_a_name_that_can_be_printed_is_taken(name: str) -> None:
    assert admin.check_principal_name(name) == name
    assert admin.parse_grantee(f"role:{name}") == f"r:{name}"
    assert admin.format_grantee(f"r:{name}") == f"role:{name}"


@pytest.mark.parametrize("name", ["", " a", "a ", "a,b", "a\x1fb", "a\nb", "x" * 129, "a\u200bb", "\x00"])
def test_a_name_that_would_confuse_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        admin.check_principal_name(name)
    with pytest.raises(BadRequest):
        admin.create_role(ROOT, name)


def test_nobody_is_called_anonymous() -> None:
    with pytest.raises(BadRequest):
        admin.create_principal(ROOT, "anonymous")


# Grants


def test_a_grant_covers_what_lies_inside_and_nothing_beside(office: Office) -> None:
    office.principals("alice")
    office.grants("principal:alice", SALES, WRITE)

    assert office.rights("alice", securables.entry("default", ("sales", "eu"), "t")) == WRITE
    assert office.rights("alice", securables.namespace("default", ("sales2",))) == 0
    assert office.rights("alice", securables.warehouse("default")) == 0


def test_grants_add_up_and_are_taken_away_one_by_one(office: Office) -> None:
    office.principals("alice")
    office.grants("principal:alice", SALES, P.TABLE_LIST)
    office.grants("principal:alice", SALES, P.TABLE_WRITE | P.TABLE_DROP)

    office.revokes("principal:alice", SALES, P.TABLE_WRITE)
    left = office.rights("alice", SALES)
    with pytest.raises(NotFound):
        office.revokes("principal:alice", SALES, P.TABLE_WRITE)
    office.revokes("principal:alice", SALES, READ | P.TABLE_DROP)

    assert left == P.TABLE_LIST | P.TABLE_DROP
    assert office.asks(admin.grants_of(office.store, "p:alice", None, 10)) == []


@pytest.mark.parametrize(
    ("rights", "privileges", "allowed"),
    [
        (ADMIN, READ, True),
        (ADMIN, ADMIN, True),
        (ADMIN, ADMIN | P.LOCATION_CHOOSE, False),
        (WRITE, READ, False),
        (READ | P.GRANT, READ, True),
        (READ | P.GRANT, WRITE, False),
        (P.GRANT, P.GRANT, True),
        (expand_rights(P.WAREHOUSE_ADMIN), ADMIN | P.LOCATION_CHOOSE, True),
        (expand_rights(P.SERVER_ADMIN), ADMIN, True),
        (0, READ, False),
    ],
)
def test_nobody_grants_or_revokes_more_than_they_hold(
    plain_store: Store, run: Run[Any], rights: int, privileges: Privilege, allowed: bool
) -> None:
    office = Office(plain_store, run)
    office.principals("alice")
    office.grants("principal:alice", SALES, ADMIN | P.LOCATION_CHOOSE)

    for change in (office.grants, office.revokes):
        if allowed:
            change("principal:alice", SALES, privileges, rights)
        else:
            with pytest.raises(Forbidden):
                change("principal:alice", SALES, privileges, rights)


def test_an_administrator_is_named_where_the_word_means_what_it_says() -> None:
    for privilege, place in ((P.SERVER_ADMIN, "warehouse:default"), (P.WAREHOUSE_ADMIN, "namespace:default/sales")):
        with pytest.raises(BadRequest):
            admin.grant(ROOT, ALL, "p:alice", securables.parse_securable(place), privilege)


@pytest.mark.parametrize("names", [[], ["NOTHING"], ["CONFIG_READ"], ["PUBLIC"], ["READ", ""]])
def test_a_privilege_that_cannot_be_granted_is_refused(names: list[str]) -> None:
    with pytest.raises(BadRequest):
        admin.parse_privileges(names)


def test_privileges_are_named_singly_or_in_bundles_in_any_case() -> None:
    assert admin.parse_privileges(["read", "TABLE_DROP"]) == READ | P.TABLE_DROP


def test_grants_are_listed_page_by_page(office: Office) -> None:
    office.principals("alice", "bob")
    for place in ("server", "warehouse:default", "namespace:default/a", "table:default/a/t"):
        office.grants("principal:alice", securables.parse_securable(place), READ)
    office.grants("principal:bob", securables.SERVER, READ)

    first = office.asks(admin.grants_of(office.store, "p:alice", None, 2))
    rest = office.asks(admin.grants_of(office.store, "p:alice", first[-1].securable, 9))
    on_server = office.asks(admin.grants_on(office.store, securables.SERVER, "", 9))
    half = office.asks(admin.list_grants(office.store, ("", ""), 3))
    other = office.asks(admin.list_grants(office.store, (half[-1].grantee, half[-1].securable), 9))

    assert [securables.format_securable(each.securable) for each in [*first, *rest]] == [
        "server",
        "warehouse:default",
        "namespace:default/a",
        "table:default/a/t",
    ]
    assert [each.grantee for each in on_server] == ["p:alice", "p:bob"]
    assert len(half) == 3
    assert len(other) == 2


# The last administrator


@pytest.fixture
def two_administrators(office: Office) -> Office:
    """root by itself, and alice through a role."""
    office.principals("root", "alice", "bob")
    office.does(admin.create_role(ROOT, "admins"))
    office.does(admin.add_member(ROOT, "admins", "alice"))
    office.grants("principal:root", securables.SERVER, P.SERVER_ADMIN)
    office.grants("role:admins", securables.SERVER, P.SERVER_ADMIN)
    return office


def test_the_last_administrator_is_kept(two_administrators: Office) -> None:
    office, store = two_administrators, two_administrators.store
    office.does(admin.update_principal(store, ROOT, "root", disabled=True))

    for change in (
        admin.update_principal(store, ROOT, "alice", disabled=True),
        admin.drop_principal(store, ROOT, "alice"),
        admin.remove_member(store, ROOT, "admins", "alice"),
        admin.drop_role(store, ROOT, "admins"),
        admin.revoke(store, ROOT, ALL, "r:admins", securables.SERVER, P.SERVER_ADMIN),
    ):
        with pytest.raises(Conflict, match="No principal would be left"):
            office.does(change)

    assert office.rights("alice", securables.SERVER) & P.SERVER_ADMIN
    office.does(admin.drop_principal(store, ROOT, "bob"))
    office.does(admin.update_principal(store, ROOT, "root", disabled=False))
    office.does(admin.drop_principal(store, ROOT, "alice"))


def test_two_administrators_who_remove_each_other_at_once_do_not_both_succeed(two_administrators: Office) -> None:
    office, store = two_administrators, two_administrators.store
    first = office.asks(admin.update_principal(store, ROOT, "root", disabled=True))
    second = office.asks(admin.drop_principal(store, ROOT, "alice"))

    outcomes = office.together(first, second)

    refused = [each for each in outcomes if isinstance(each, CatalogError)]
    assert len(refused) == 1
    assert "No principal would be left" in refused[0].message


def test_where_nobody_is_kept_as_administrator_nobody_needs_to_be_left(office: Office) -> None:
    office.principals("alice")
    office.does(admin.create_role(ROOT, "from-a-token"))
    office.grants("role:from-a-token", securables.SERVER, P.SERVER_ADMIN)

    office.does(admin.drop_principal(office.store, ROOT, "alice"))


# The last credential of an administrator

NOW = ROOT.at_ms
DAY = admin.LAST_CREDENTIAL_MS


def gives_key(office: Office, principal: str, key: str, **fields: Any) -> None:
    new = NewCredential(key, "api-key", Secret("never stored"), b"digest")
    office.does(admin.create_credential(ROOT, principal, new, **fields))


async def dropping_key(store: Store, principal: str, key: str) -> list[Change]:
    return [*admin.drop_credential(ROOT, principal, key), *await admin.keep_a_credential(store, ROOT)]


@pytest.mark.parametrize("limit", [None, ["admins"], ["other", "admins"], ["ädmins", "admins"]])
def test_the_last_credential_that_administers_is_kept(two_administrators: Office, limit: list[str] | None) -> None:
    office, store = two_administrators, two_administrators.store
    gives_key(office, "alice", "key-alice", roles=limit)
    # None of these is of use to administer the server.
    gives_key(office, "bob", "key-bob")
    gives_key(office, "alice", "key-other", roles=["other"])
    gives_key(office, "alice", "key-none", roles=[])
    gives_key(office, "root", "key-root", roles=["admins"])
    gives_key(office, "alice", "key-old", expires_ms=NOW)

    for change in (
        dropping_key(store, "alice", "key-alice"),
        admin.update_principal(store, ROOT, "alice", disabled=True),
        admin.drop_principal(store, ROOT, "alice"),
        admin.remove_member(store, ROOT, "admins", "alice"),
        admin.drop_role(store, ROOT, "admins"),
        admin.revoke(store, ROOT, ALL, "r:admins", securables.SERVER, P.SERVER_ADMIN),
    ):
        with pytest.raises(Conflict, match="No credential would be left"):
            office.does(change)

    office.does(dropping_key(store, "bob", "key-bob"))
    gives_key(office, "root", "key-whole", expires_ms=NOW + DAY + 1)
    office.does(dropping_key(store, "alice", "key-alice"))


def test_a_credential_that_is_about_to_expire_replaces_no_lasting_one(two_administrators: Office) -> None:
    office, store = two_administrators, two_administrators.store
    gives_key(office, "root", "soon", expires_ms=NOW + DAY)
    gives_key(office, "root", "sooner", expires_ms=NOW + 1)
    office.does(dropping_key(store, "root", "sooner"))  # there is none that lasts for a day
    with pytest.raises(Conflict, match="No credential would be left"):
        office.does(dropping_key(store, "root", "soon"))

    gives_key(office, "root", "lasting")
    with pytest.raises(Conflict, match="No credential would be left"):
        office.does(dropping_key(store, "root", "lasting"))
    office.does(dropping_key(store, "root", "soon"))


def test_two_who_drop_each_others_credential_at_once_do_not_both_succeed(two_administrators: Office) -> None:
    office, store = two_administrators, two_administrators.store
    gives_key(office, "root", "key-root")
    gives_key(office, "alice", "key-alice")
    first = office.asks(dropping_key(store, "root", "key-root"))
    second = office.asks(dropping_key(store, "alice", "key-alice"))

    outcomes = office.together(first, second)

    assert len([each for each in outcomes if isinstance(each, Conflict)]) == 1


def test_an_administrator_from_outside_needs_no_credential_to_be_left(two_administrators: Office) -> None:
    office, store = two_administrators, two_administrators.store
    gives_key(office, "root", "key-root")
    outside = replace(ROOT, principal="alice", external=True)

    office.does(admin.drop_principal(store, outside, "root"))
    with pytest.raises(Conflict, match="No principal would be left"):
        office.does(admin.drop_principal(store, outside, "alice"))


# Credentials


def test_a_credential_belongs_to_its_principal_alone(office: Office) -> None:
    office.principals("alice", "bob")
    new = NewCredential("key1", "api-key", Secret("never stored"), b"digest")
    office.does(admin.create_credential(ROOT, "alice", new, roles=["analyst"], note="laptop", expires_ms=5000))

    (listed,) = office.asks(admin.list_credentials(office.store, "alice"))
    with pytest.raises(NotFound):
        office.does(admin.drop_credential(ROOT, "bob", "key1"))
    with pytest.raises(Conflict):
        office.does(admin.create_credential(ROOT, "bob", new))
    office.does(admin.drop_credential(ROOT, "alice", "key1"))

    assert (listed.kind, listed.roles, listed.note, listed.expires_ms) == ("api-key", ("analyst",), "laptop", 5000)
    assert not hasattr(listed, "secret")
    assert office.asks(admin.list_credentials(office.store, "alice")) == []


# Warehouses


def test_a_warehouse_that_overlaps_another_is_refused_by_the_database_itself(office: Office) -> None:
    office.does(admin.create_warehouse(ROOT, WarehouseRow("one", "file:///w/one")))

    for name, location in (
        ("one", "file:///w/elsewhere"),
        ("two", "file:///w/one"),
        ("two", "file:///w/one/inside"),
        ("two", "file:///w"),
    ):
        with pytest.raises(AlreadyExists):
            office.does(admin.create_warehouse(ROOT, WarehouseRow(name, location)))
    office.does(admin.create_warehouse(ROOT, WarehouseRow("onward", "file:///w/onward")))
    office.does(admin.create_warehouse(ROOT, WarehouseRow("on", "file:///w/on")))

    rows = office.asks(office.store.rows("list_warehouses", {}))
    assert [row[0] for row in rows] == ["on", "one", "onward"]


def test_of_two_overlapping_warehouses_made_at_once_there_is_one(office: Office) -> None:
    outcomes = office.together(
        admin.create_warehouse(ROOT, WarehouseRow("outer", "file:///w/a")),
        admin.create_warehouse(ROOT, WarehouseRow("inner", "file:///w/a/b")),
    )

    assert sum(isinstance(each, AlreadyExists) for each in outcomes) == 1


@pytest.mark.parametrize(
    ("base", "further"),
    [
        ("s3://lake/one", ()),  # the same place
        ("s3://lake/one/inside", ()),
        ("s3://lake", ()),
        ("s3://other/two", ("s3://archive/one/inside",)),
        ("s3://other/two", ("s3://lake/x", "s3://archive",)),
        ("s3://archive/one", ()),  # a further place of the other
    ],
)  # fmt: skip
def test_no_two_warehouses_share_any_of_their_locations(office: Office, base: str, further: tuple[str, ...]) -> None:
    office.does(admin.create_warehouse(ROOT, WarehouseRow("one", "s3://lake/one", further=("s3://archive/one",))))

    with pytest.raises(Conflict):
        office.does(admin.create_warehouse(ROOT, WarehouseRow("two", base, further=further)))
    office.does(admin.create_warehouse(ROOT, WarehouseRow("three", "s3://lake/one2", further=("s3://archive/one2",))))

    assert [name for name, *_ in office.warehouses()] == ["one", "three"]


def test_a_change_of_a_warehouse_is_refused_when_another_came_before(office: Office) -> None:
    row = WarehouseRow("one", "s3://lake/one", profile="p1", options="o1", secret=b"s1", further=("s3://lake/two",))
    office.does(admin.create_warehouse(ROOT, row))
    assert office.warehouses() == [("one", "s3://lake/one", 1, "p1", "o1", b"s1", "s3://lake/two")]

    changed = WarehouseRow("one", "s3://lake/one", profile="p2", options="o2", further=("s3://lake/3", "s3://lake/4"))
    office.does(admin.change_warehouse(ROOT, changed, 1))
    with pytest.raises(Conflict, match="not at version 1"):
        office.does(admin.change_warehouse(ROOT, row, 1))
    with pytest.raises(Conflict, match="not at version"):
        office.does(admin.change_warehouse(ROOT, WarehouseRow("none", "s3://lake/none"), 1))

    assert office.warehouses() == [
        ("one", "s3://lake/one", 2, "p2", "o2", None, "s3://lake/3"),
        ("one", "s3://lake/one", 2, "p2", "o2", None, "s3://lake/4"),
    ]


def test_a_dropped_warehouse_leaves_its_further_locations_to_others(office: Office) -> None:
    office.does(admin.create_warehouse(ROOT, WarehouseRow("one", "s3://lake/one", further=("s3://lake/two",))))
    office.does(admin.drop_warehouse(ROOT, "one"))

    office.does(admin.create_warehouse(ROOT, WarehouseRow("two", "s3://lake/two", further=("s3://lake/one",))))

    assert len(office.warehouses()) == 1


def test_of_two_changes_that_take_one_location_at_once_there_is_one(office: Office) -> None:
    for name in ("one", "two"):
        office.does(admin.create_warehouse(ROOT, WarehouseRow(name, f"s3://lake/{name}")))

    outcomes = office.together(
        admin.change_warehouse(ROOT, WarehouseRow("one", "s3://lake/one", further=("s3://archive/a",)), 1),
        admin.change_warehouse(ROOT, WarehouseRow("two", "s3://lake/two", further=("s3://archive/a/b",)), 1),
    )

    assert sum(isinstance(each, Conflict) for each in outcomes) == 1


def test_a_warehouse_is_dropped_with_its_grants_when_it_is_empty(office: Office) -> None:
    office.principals("alice")
    office.does(admin.create_warehouse(ROOT, WarehouseRow("one", "file:///w/one")))
    office.grants("principal:alice", securables.warehouse("one"), READ)
    office.does([CreateNamespace("one", "a", (), {}, "a")])

    with pytest.raises(Conflict, match="not empty"):
        office.does(admin.drop_warehouse(ROOT, "one"))
    office.does([Write("touch_warehouse", {"warehouse": "one"}, NotFound("it must still be there"))])
    assert office.rights("alice", securables.warehouse("one")) == READ
    office.does(admin.create_warehouse(ROOT, WarehouseRow("two", "file:///w/two")))
    office.grants("principal:alice", securables.warehouse("two"), READ)
    office.does(admin.drop_warehouse(ROOT, "two"))

    assert office.rights("alice", securables.warehouse("two")) == 0
    with pytest.raises(NotFound):
        office.does(admin.drop_warehouse(ROOT, "two"))


# What every change does


def test_every_change_is_audited_and_raises_the_policys_version_in_its_own_transaction(office: Office) -> None:
    office.principals("alice")
    before = office.version()
    office.grants("principal:alice", SALES, READ)
    with pytest.raises(NotFound):
        office.revokes("principal:alice", SALES, P.TABLE_DROP)

    told = office.audit()

    assert office.version() == before + 1
    assert [action for action, _, _ in told] == ["create-principal", "grant"]
    assert told[1][1] == SALES
    assert told[1][2]["grantee"] == "principal:alice"
    assert "TABLE_READ_DATA" in told[1][2]["privileges"]
