"""Names, values and types as SQL text; and sessions that would not take the text as it stands."""

import pytest

from nunatak_spark.errors import CannotRun
from nunatak_spark.sql_text import (
    REQUIRED_SETTINGS,
    literal,
    protect_sql_text,
    quote_identifier,
    quote_name,
    require_type_text,
)
from tests.support.sql_session import Session


def test_a_session_takes_sql_text_literally_before_a_statement_is_sent() -> None:
    session = Session({"spark.sql.ansi.enabled": "true"})

    protect_sql_text(session)  # type: ignore[arg-type]

    assert session.conf.values == {"spark.sql.ansi.enabled": "true", **REQUIRED_SETTINGS}
    assert REQUIRED_SETTINGS["spark.sql.variable.substitute"] == "false"


@pytest.mark.parametrize("key", REQUIRED_SETTINGS)
def test_a_session_whose_settings_cannot_be_changed_is_refused_before_a_statement_is_sent(key: str) -> None:
    for session in (Session({key: "true"}), Session(locked=(key,))):
        with pytest.raises(CannotRun, match=key):
            protect_sql_text(session)  # type: ignore[arg-type]
        assert session.statements == []


def test_a_session_that_changes_the_text_all_the_same_is_refused() -> None:
    replaced = Session(change=lambda text: text.replace("${env:PATH}", "/bin"))

    with pytest.raises(CannotRun, match="changes the text"):
        protect_sql_text(replaced)  # type: ignore[arg-type]


def test_names_and_values_are_quoted_by_one_function_each() -> None:
    assert quote_identifier("a`b") == "`a``b`"
    assert quote_name(("lake", "n`s", "t.u")) == "`lake`.`n``s`.`t.u`"
    assert literal("it's \\ ${env:X}") == r"'it\'s \\ ${env:X}'"


@pytest.mark.parametrize(
    "kind",
    [
        "int",
        "STRING",
        "decimal(10, 2)",
        "varchar(20)",
        "timestamp with local time zone",
        "array<struct<a:int,b:map<string,array<decimal(3,1)>>>>",
        "struct<`a``b, c>`:int, größe:string, x.y:date>",
        "struct<>",
        "interval_day",
    ],
)
def test_data_types_pass(kind: str) -> None:
    assert require_type_text(kind) == kind


@pytest.mark.parametrize(
    "kind",
    [
        "int) USING iceberg LOCATION 'file:///tmp' --",
        "int, b int",
        "int COMMENT 'x'",
        "int DEFAULT (SELECT 1)",
        "int GENERATED ALWAYS AS (reflect('java.lang.System', 'getenv'))",
        "array<int> NOT NULL",
        "array<int>, b array<int>",
        "struct<a:int>) --<b:int>",
        "struct<a:int COMMENT 'x'>",
        "struct<a--b:int>",
        "struct<a/*:int>",
        "struct<`a:int>",
        "map<int>",
        "decimal(10) (2)",
        "${env:X}",
        "int;drop",
        "",
    ],
)
def test_what_is_more_than_a_data_type_is_refused(kind: str) -> None:
    with pytest.raises(CannotRun):
        require_type_text(kind)
