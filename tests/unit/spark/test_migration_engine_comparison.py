"""What is made of the answers of engines; the engines here are the smallest that can be asked."""

from collections.abc import Sequence
from typing import Any

import pytest

from nunatak_spark.migration.engine_comparison import Engine, EngineComparison, remove_login_secrets
from nunatak_spark.migration.engine_queries import ColumnMeasure, CountFilter, QueryColumn, SampleRows

COLUMNS = (QueryColumn(("id",), "integer"), QueryColumn(("f",), "float"))


class Says:
    """An engine that holds three rows, and says of some questions what it is told to."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def measure(self, asked: Sequence[ColumnMeasure]) -> tuple[int, list[Any]]:
        truth = {"count": 3, "least": 1, "most": 3, "sum": 6, "distinct": 3, "not-a-number": 0}
        return 3, [self.answers.get(f"{one.of}_{one.column.name}", truth[one.of]) for one in asked]

    def rows(self, asked: SampleRows) -> list[list[Any]]:
        return [[n, float(n)] for n in (1, 2, 3)]

    def count(self, asked: Sequence[CountFilter]) -> list[int]:
        return [self.answers.get("count", 2) for _ in asked]


def ask(engines: dict[str, Says | Exception]) -> EngineComparison:
    asked = EngineComparison(COLUMNS)
    for name, engine in engines.items():

        def start(engine: Says | Exception = engine) -> Engine:
            if isinstance(engine, Exception):
                raise engine
            return engine

        asked.ask_engine(name, start)
    return asked


def test_engines_that_agree_are_no_finding() -> None:
    looked = ask({"one": Says(), "two": Says(sum_f=6.000000001)}).outcome()

    assert looked.findings == ()
    assert looked.facts["engines"] == {"one": "answered", "two": "answered"}
    assert looked.facts["answers"]["first 5 rows by id"] == '[["1", "1.0"], ["2", "2.0"], ["3", "3.0"]]'
    assert looked.facts["answers"]["rows with id <= 2"] == "2"


def test_an_engine_that_says_something_else_is_named_with_the_question() -> None:
    looked = ask({"one": Says(), "two": Says(most_id=4), "three": Says(count=1)}).outcome()

    assert [(one.kind, one.where, one.text) for one in looked.findings] == [
        ("engines-disagree", "id", "most of id: one says 3, two says 4"),
        ("engines-disagree", "", "rows with id <= 2: one says 2, three says 1"),
    ]


@pytest.mark.parametrize("broken", ["one", "two", "three"])
def test_one_engine_may_fail_if_two_answer(broken: str) -> None:
    engines: dict[str, Says | Exception] = {"one": Says(), "two": Says(), "three": Says()}
    engines[broken] = RuntimeError("Unsupported type\n  variant")

    looked = ask(engines).outcome()

    assert looked.findings == ()
    assert looked.facts["engines"][broken] == "could not: Unsupported type variant"


def test_one_engine_alone_proves_nothing() -> None:
    looked = ask({"one": Says(), "two": RuntimeError("not installed")}).outcome()

    (finding,) = looked.findings
    assert (finding.kind, finding.text) == ("too-few-engines", "1 of 2 engines answered; two could not: not installed")


def test_no_engine_is_a_finding_too() -> None:
    (finding,) = ask({"one": RuntimeError("a"), "two": RuntimeError("b")}).outcome().findings

    assert finding.text == "0 of 2 engines answered; one could not: a; two could not: b"


def test_a_reason_tells_no_secret() -> None:
    text = "Parser Error: LINE 1: CREATE SECRET … CLIENT_SECRET 'hush' TOKEN 'abc'"

    assert remove_login_secrets(text, {"credential": "me:hush", "uri": "http://x"}) == text.replace("hush", "…")
    assert remove_login_secrets(text, {"token": "abc"}) == text.replace("abc", "…")
    assert remove_login_secrets(text, {}) == text
