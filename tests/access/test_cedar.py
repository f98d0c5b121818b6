"""Cedar as the decision point, with the real engine and the policies of the docs."""

import asyncio
import logging
import os
import re
from pathlib import Path
from typing import Any

import cedarpy
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nunatak import settings
from nunatak.access import cedar as cedar_module
from nunatak.access.cedar import ACTIONS, SCHEMA, Cedar, open_cedar
from nunatak.access.privileges import ADMIN, BUNDLES, EVERYTHING, READ, WRITE, Privilege, names_of
from nunatak.access.securables import SERVER, entry, namespace, warehouse
from nunatak.access.sessions import Session, session_of
from nunatak.errors import ServiceUnavailable
from nunatak.settings import SettingsError
from tests.support.pages import blocks_with

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "decide-with-cedar.md"
(EXAMPLE,) = blocks_with(PAGE, "cedar")

SALES = namespace("default", ("sales",))
ORDERS = entry("default", ("sales",), "orders")
RAW = entry("default", ("sales",), "_raw_orders")
LEDGER = entry("default", ("finance",), "ledger")

ANA = session_of("ana", ("analysts",), method="oidc")
ETL = session_of("etl", (), method="embedded")
ROOT = session_of("root", ("admins",))

EVERYBODY = "permit (principal, action, resource);"


def opened(folder: Path, policies: str) -> Cedar:
    path = folder / "policies.cedar"
    path.write_text(policies)
    return open_cedar(settings.load({"cedar_policies": str(path)}, {}))


def rights_of(cedar: Cedar, session: Session, *securables: str) -> list[int]:
    return asyncio.run(cedar.rights(session, securables))


def sees(cedar: Cedar, session: Session, container: str) -> bool:
    return rights_of(cedar, session, container) != [0]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Cedar:
    """With the policies that the page shows."""
    return opened(tmp_path_factory.mktemp("cedar"), EXAMPLE)


@pytest.mark.parametrize(
    ("session", "securable", "held"),
    [
        (ANA, ORDERS, READ),
        (ANA, SALES, READ),
        (ANA, entry("default", ("sales", "eu"), "orders"), READ),
        (ANA, RAW, 0),
        (ANA, LEDGER, 0),
        (ANA, warehouse("default"), Privilege.SEE),
        (ANA, SERVER, Privilege.SEE),
        (ANA, namespace("default", ("sales2",)), 0),
        (ANA, entry("other", ("sales",), "orders"), 0),
        (session_of("ana", ()), ORDERS, 0),
        (session_of("analysts", ()), ORDERS, 0),
        (ETL, RAW, WRITE),
        (ETL, LEDGER, WRITE & ~Privilege.TABLE_WRITE),
        (session_of("etl", (), method="oidc"), LEDGER, WRITE),
        (ETL, SERVER, 0),
        (ROOT, SERVER, EVERYTHING),
        (ROOT, RAW, EVERYTHING),
        (session_of("", ()), ORDERS, 0),
    ],
)
def test_the_policies_of_the_docs_decide_as_the_page_says(
    example: Cedar, session: Session, securable: str, held: int
) -> None:
    """003-41, 003-75: who may do what is the policy engine's word."""
    assert rights_of(example, session, securable) == [held]


def test_a_container_is_seen_by_whoever_may_see_it_or_use_it(example: Cedar) -> None:
    assert sees(example, ANA, SERVER)
    assert sees(example, ANA, warehouse("default"))
    assert sees(example, ANA, SALES)
    assert not sees(example, ANA, warehouse("other"))
    assert not sees(example, session_of("ana", ()), SERVER)


def test_seeing_is_no_right(tmp_path: Path) -> None:
    cedar = opened(tmp_path, 'permit (principal, action == Nunatak::Action::"SEE", resource);')

    assert rights_of(cedar, ANA, SALES) == [Privilege.SEE]
    assert not Privilege.SEE & EVERYTHING


def test_the_schema_has_the_privileges_and_bundles_of_the_code(tmp_path: Path) -> None:
    for name, bundle in BUNDLES.items():
        policy = f'permit (principal, action in Nunatak::Action::"{name}", resource);'
        assert rights_of(opened(tmp_path, policy), ANA, ORDERS) == [bundle]
    for name in ACTIONS:
        policy = f'permit (principal, action == Nunatak::Action::"{name}", resource);'
        (held,) = rights_of(opened(tmp_path, policy), ANA, ORDERS)
        assert names_of(held) == [name] or name in ("SEE", "SERVER_ADMIN", "WAREHOUSE_ADMIN")
    known = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", re.sub(r"//.*", "", SCHEMA.read_text("utf-8"))))
    assert known == {*ACTIONS, *BUNDLES}


def test_nothing_is_permitted_by_an_empty_file(tmp_path: Path) -> None:
    cedar = opened(tmp_path, "// later\n")

    assert rights_of(cedar, ROOT, SERVER, ORDERS) == [0, 0]
    assert not sees(cedar, ROOT, SERVER)


def test_a_session_limited_to_roles_gets_nothing_by_name_and_loses_what_is_forbidden_by_name(tmp_path: Path) -> None:
    cedar = opened(
        tmp_path,
        'permit (principal == Nunatak::Principal::"ana", action in Nunatak::Action::"ADMIN", resource);'
        'permit (principal in Nunatak::Role::"analysts", action in Nunatak::Action::"READ", resource);'
        'forbid (principal == Nunatak::Principal::"mallory", action, resource);',
    )

    assert rights_of(cedar, ANA, ORDERS) == [ADMIN]
    assert rights_of(cedar, session_of("ana", ("analysts",), only_roles=True), ORDERS) == [READ]
    assert rights_of(cedar, session_of("mallory", ("analysts",), only_roles=True), ORDERS) == [0]
    assert rights_of(cedar, session_of("bob", ("analysts",), only_roles=True), ORDERS) == [READ]
    assert not sees(cedar, session_of("mallory", ("analysts",), only_roles=True), SALES)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12), min_size=3, max_size=5)
)
def test_whatever_the_names_only_the_named_table_is_meant(hostile: Cedar, names: list[str]) -> None:
    home, *levels, table = names
    session = session_of(names[0], (names[1],))

    assert rights_of(hostile, session, entry(home, tuple(levels), table)) == [0]
    assert rights_of(hostile, session, entry('w"h', ("a/b", "c%2F"), "t\\")) == [READ]
    assert rights_of(hostile, session, entry('w"h', ("a", "b", "c%2F"), "t\\")) == [0]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Cedar:
    table = r'Nunatak::Table::"w\"h/a%2Fb/c%252F/t\\"'
    return opened(
        tmp_path_factory.mktemp("hostile"),
        f'permit (principal, action in Nunatak::Action::"READ", resource == {table});',
    )


# The file


@pytest.mark.parametrize(
    ("policies", "complaint"),
    [
        ("permit (principal, action, resource)", "unexpected end"),
        ('permit (principal, action == Nunatak::Action::"TABLE_REED", resource);', "TABLE_REED"),
        ('permit (principal == Nunatak::User::"ana", action, resource);', "Nunatak::User"),
        ('permit (principal == Principal::"ana", action, resource);', "Principal"),
        ('forbid (principal, action, resource) when { resource.nam == "x" };', "nam"),
        ('forbid (principal, action, resource) when { resource.warehouse == "x" };', "warehouse"),
        ("forbid (principal, action, resource) when { context.hour == 1 };", "hour"),
        ("forbid (principal == ?principal, action, resource);", "template"),
    ],
)
def test_policies_that_make_no_sense_keep_the_server_from_starting(
    tmp_path: Path, policies: str, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(complaint)) as refused:
        opened(tmp_path, policies)

    assert "policies.cedar" in str(refused.value)


def test_a_file_that_is_not_there_or_not_text_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("absent", "bytes", "."):
        with pytest.raises(SettingsError, match="cedar_policies"):
            open_cedar(settings.load({"cedar_policies": str(tmp_path / name)}, {}))
    with pytest.raises(SettingsError, match="cedar_policies"):
        open_cedar(settings.load({}, {}))


def test_without_the_package_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cedar_module, "cedarpy", None)

    with pytest.raises(SettingsError, match=r"nunatak\[cedar\]"):
        opened(tmp_path, EVERYBODY)


def replace_file(folder: Path, policies: str) -> None:
    draft = folder / "policies.cedar.new"
    draft.write_text(policies)
    os.replace(draft, folder / "policies.cedar")


def test_a_changed_file_decides_the_next_question(tmp_path: Path) -> None:
    cedar = opened(tmp_path, EVERYBODY)
    assert rights_of(cedar, ANA, ORDERS) == [EVERYTHING]

    replace_file(tmp_path, EVERYBODY + 'forbid (principal == Nunatak::Principal::"ana", action, resource);')

    assert rights_of(cedar, ANA, ORDERS) == [0]
    assert not sees(cedar, ANA, SALES)
    assert rights_of(cedar, ETL, ORDERS) == [EVERYTHING]


def test_a_file_of_the_same_length_and_time_is_noticed_when_it_is_replaced(tmp_path: Path) -> None:
    cedar = opened(tmp_path, 'permit (principal == Nunatak::Principal::"ana", action, resource);')
    before = (tmp_path / "policies.cedar").stat()
    draft = tmp_path / "policies.cedar.new"
    draft.write_text('permit (principal == Nunatak::Principal::"eva", action, resource);')
    os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(draft, tmp_path / "policies.cedar")

    assert rights_of(cedar, ANA, ORDERS) == [0]


def test_a_broken_or_missing_file_leaves_the_policies_before_it_in_force(tmp_path: Path, caplog: Any) -> None:
    policies = 'permit (principal in Nunatak::Role::"analysts", action in Nunatak::Action::"READ", resource);'
    cedar = opened(tmp_path, policies)
    with caplog.at_level(logging.WARNING):
        replace_file(tmp_path, EVERYBODY + "permit (principal")
        assert [rights_of(cedar, ANA, ORDERS) for _ in range(3)] == [[READ]] * 3
        assert rights_of(cedar, ETL, ORDERS) == [0]
        (tmp_path / "policies.cedar").unlink()
        assert [rights_of(cedar, ANA, ORDERS) for _ in range(3)] == [[READ]] * 3
        replace_file(tmp_path, policies.replace("READ", "WRITE"))
        assert rights_of(cedar, ANA, ORDERS) == [WRITE]

    said = [(record.levelname, "cannot be used" in record.getMessage()) for record in caplog.records]
    assert said == [("ERROR", True), ("ERROR", True), ("WARNING", False)]


def test_a_policy_that_fails_lets_nobody_in_even_if_another_permits(tmp_path: Path, caplog: Any) -> None:
    """Cedar passes over a policy that fails: had it been a forbid, its mistake would open the door."""
    overflow = "forbid (principal, action, resource) when { 9223372036854775807 + 1 == 0 };"
    cedar = opened(tmp_path, EVERYBODY + overflow)

    with pytest.raises(ServiceUnavailable) as refused, caplog.at_level(logging.ERROR):
        rights_of(cedar, ANA, ORDERS)
    with pytest.raises(ServiceUnavailable):
        sees(cedar, ANA, SALES)

    assert refused.value.status == 503
    assert "overflow" not in refused.value.message
    assert any("table:default/sales/orders" in record.getMessage() for record in caplog.records)


def test_what_the_engine_refuses_to_judge_lets_nobody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should it ever answer for fewer actions than were asked about, or not at all."""
    cedar = opened(tmp_path, EVERYBODY)
    judge = cedarpy.is_authorized_batch

    monkeypatch.setattr(cedarpy, "is_authorized_batch", lambda *arguments: judge(*arguments)[:-1])
    with pytest.raises(ServiceUnavailable):
        rights_of(cedar, ANA, ORDERS)

    def refuse(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(cedarpy, "is_authorized_batch", refuse)
    with pytest.raises(ServiceUnavailable):
        rights_of(cedar, ANA, ORDERS)


# What is remembered


def test_a_question_is_evaluated_once_and_never_answers_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cedar = opened(
        tmp_path,
        'permit (principal == Nunatak::Principal::"ana", action, resource) when { principal.method == "oidc" };'
        'permit (principal in Nunatak::Role::"a,b", action in Nunatak::Action::"READ", resource);',
    )
    evaluated = []
    evaluate = Cedar._evaluate

    def counted(self: Cedar, *question: Any) -> list[str]:
        evaluated.append(question)
        return evaluate(self, *question)

    monkeypatch.setattr(Cedar, "_evaluate", counted)
    asked = [
        (ANA, [EVERYTHING]),
        (session_of("ana", ("analysts",), method="proxy"), [0]),
        (session_of("ana", ("analysts",), method="oidc", only_roles=True), [0]),
        (session_of("eva", ("a", "b")), [0]),
        (session_of("eva", ("a,b",)), [READ]),
        (session_of("eva", ()), [0]),
    ]

    for _ in range(3):
        assert [rights_of(cedar, session, ORDERS) for session, _ in asked] == [held for _, held in asked]

    assert len(evaluated) == len(asked) + 1  # twice for the one that is limited to its roles


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cedar_module, "MAX_DECIDED", 10)
    cedar = opened(tmp_path, EVERYBODY)

    tables = [entry("default", ("sales",), f"t{number}") for number in range(25)]

    assert rights_of(cedar, ANA, *tables) == [EVERYTHING] * 25
    assert len(cedar._decided) <= 10


def test_a_long_list_lets_others_work_in_between(tmp_path: Path) -> None:
    cedar = opened(tmp_path, EVERYBODY)
    tables = [entry("default", ("sales",), f"t{number}") for number in range(20)]
    turns = 0

    async def scene() -> None:
        nonlocal turns
        listing = asyncio.create_task(cedar.rights(ANA, tables))
        while not listing.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(scene())
    assert turns >= len(tables)
