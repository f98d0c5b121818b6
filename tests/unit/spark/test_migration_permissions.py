"""Owners and grants of a source as grants of the target; MISSION 003-67: the plan for mapping permissions."""

import pytest

from nunatak_spark.migration.model import InventoryTable, MigrationTable, SourcePermission, TablePlan
from nunatak_spark.migration.permissions import grantee_of, map_permissions, reduce_privileges


def a_table(*permissions: SourcePermission, owner: str = "", method: str = "register") -> MigrationTable:
    found = InventoryTable(source="old", name=("sales", "a/b"), kind="iceberg", owner=owner, permissions=permissions)
    return MigrationTable(found=found, planned=TablePlan(method, found.name))  # type: ignore[arg-type]


def test_every_holder_gets_one_line_and_the_rest_is_named() -> None:
    """MISSION: 003-67"""
    table = a_table(
        SourcePermission("alice", "SELECT"),
        SourcePermission("alice", "INSERT"),
        SourcePermission("etl", "ALL", "role"),
        SourcePermission("bob", "LOCK"),
        SourcePermission("IAM_ALLOWED_PRINCIPALS", "SELECT", "iam"),
        owner="ann",
    )

    mapped = map_permissions([table], "")

    assert mapped.grants == (
        "nunatak grant add principal:alice WRITE table:default/sales/a%2Fb",
        "nunatak grant add principal:ann ADMIN table:default/sales/a%2Fb",
        "nunatak grant add role:etl ADMIN table:default/sales/a%2Fb",
    )
    assert [finding.text for finding in mapped.unmapped] == [
        "user bob has a privilege that means nothing here: LOCK",
        "iam IAM_ALLOWED_PRINCIPALS is not a principal that a grant can name: SELECT",
    ]


def test_a_name_cannot_smuggle_a_command_into_the_lines() -> None:
    (line,) = map_permissions([a_table(SourcePermission("x; rm -rf /", "SELECT"))], "").grants

    assert "'principal:x; rm -rf /'" in line


def test_what_does_not_move_needs_no_grants() -> None:
    assert map_permissions([a_table(owner="ann", method="refused")], "").grants == ()


@pytest.mark.parametrize(
    ("principal", "grantee"),
    [
        ("arn:aws:iam::123456789012:user/team/alice", "principal:alice"),
        ("arn:aws:iam::123456789012:role/etl", "principal:etl"),
        ("arn:aws:iam::123456789012:root", ""),
    ],
)
def test_names_of_amazon_become_principals(principal: str, grantee: str) -> None:
    assert grantee_of(SourcePermission(principal, "SELECT", "iam")) == grantee


def test_a_bundle_says_what_it_holds() -> None:
    assert reduce_privileges({"READ", "WRITE", "TABLE_ALTER", "TABLE_DROP"}) == ["TABLE_DROP", "WRITE"]
    assert reduce_privileges({"ADMIN", "READ", "TABLE_DROP", "TABLE_LIST"}) == ["ADMIN"]
    assert reduce_privileges({"TABLE_LIST", "TABLE_READ_META"}) == ["TABLE_LIST", "TABLE_READ_META"]
