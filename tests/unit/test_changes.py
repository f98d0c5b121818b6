"""The generators of changes, run without a database: what they ask, and what they make of the answers."""

import re
from pathlib import Path

import pytest

from nunatak.database import changes
from nunatak.database.changes import NO_RESULT, ConstraintViolation, Result, Step, drive, steps_by_change
from nunatak.database.ddl import DIALECTS, Dialect
from nunatak.database.namespace_children import at_once
from nunatak.database.records import Change
from nunatak.database.statements import read_covered, read_statements, returns_rows
from nunatak.errors import AlreadyExists, CatalogError
from tests.backends.builders import create_namespace, insert, key, rename

STEP = re.compile(r'\(\s*"([a-z_]+)",')
THERE, NOTHING = Result(1, [(1,)]), NO_RESULT


def steps_named() -> set[str]:
    return set(STEP.findall(Path(changes.__file__).read_text()))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_step_of_a_change_is_a_statement_of_every_database(dialect: Dialect) -> None:
    covered = {name for names in read_covered(dialect).values() for name in names}

    assert {"insert_pointer", "add_job", "forget_outcomes"} <= steps_named()
    assert steps_named() - read_statements(dialect).keys() - covered == set()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_step_without_sql_is_done_by_another_or_needed_by_another_database_only(dialect: Dialect) -> None:
    empty = {name for name, sql in read_statements(dialect).items() if not sql}

    assert all(any(read_statements(other)[name] for other in DIALECTS) for name in empty)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_is_known_which_statements_return_rows(dialect: Dialect) -> None:
    for name, sql in read_statements(dialect).items():
        words = sql.rstrip(";").split(None, 1)
        if words and words[0] in ("INSERT", "UPDATE", "DELETE", "CREATE", "START", "COMMIT", "SET", "KILL"):
            assert returns_rows(sql) == (" RETURNING " in f" {' '.join(sql.split())} "), name
        elif words:
            assert returns_rows(sql), name


def apply(change: Change, answers: dict[str, Result | Exception]) -> tuple[object, list[list[str]]]:
    """What a change comes to when its statements are answered like this, or else with nothing; and its batches."""
    batches: list[list[str]] = []

    def carry_out(batch: list[Step]) -> list[Result]:
        batches.append([name for name, _ in batch])
        results = []
        for name, _ in batch:
            answer = answers.get(name, NOTHING)
            if isinstance(answer, Exception):
                raise answer
            results.append(answer)
        return results

    try:
        return drive(steps_by_change(at_once)[type(change)](change), carry_out, KeyError), batches
    except CatalogError as refusal:
        return refusal, batches


def test_a_name_that_is_taken_between_look_and_insertion_is_refused() -> None:
    """By a constraint, or by a statement that changes nothing: databases differ."""
    for taken in (KeyError("unique key"), Result(0, ())):
        refusal, batches = apply(insert("t"), {"namespace_exists": THERE, "insert_pointer": taken})

        assert isinstance(refusal, AlreadyExists)
        assert batches[-1] == ["find_type"], "who has it now is looked up"


def test_a_rename_that_meets_a_constraint_is_refused() -> None:
    answers: dict[str, Result | Exception] = {"namespace_exists": THERE, "rename_pointer": KeyError("unique key")}
    found = iter([Result(1, [("TABLE", 1)]), NOTHING])

    def carry_out(batch: list[Step]) -> list[Result]:
        results = []
        for name, _ in batch:
            answer = next(found) if name == "find_type" else answers.get(name, NOTHING)
            if isinstance(answer, Exception):
                raise answer
            results.append(answer)
        return results

    with pytest.raises(AlreadyExists) as raised:
        drive(changes.rename_pointer(rename(key("t"), key("u"))), carry_out, KeyError)
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_constraint_that_nobody_expects_stays_the_error_of_the_driver() -> None:
    def carry_out(batch: list[Step]) -> list[Result]:
        raise KeyError("unique key")

    with pytest.raises(KeyError) as raised:
        drive(changes.create_namespace(create_namespace()), carry_out, KeyError)
    assert not isinstance(raised.value, ConstraintViolation)


def test_a_plain_table_is_created_in_three_batches() -> None:
    """What need not be known for the next question is asked together: a driver may send it in one round trip."""
    _, batches = apply(insert("t"), {"namespace_exists": THERE, "insert_pointer": Result(1, ())})

    assert [len(batch) for batch in batches] == [2, 1, 7]
