"""Whatever a server or a file says, a terminal shows it and does not act on it; JSON stays the same value."""

import ast
import json
import unicodedata
from pathlib import Path

import pytest

import nunatak_spark
from nunatak.cli import output
from nunatak.terminal import printable, printable_json
from nunatak_spark import console, runner
from nunatak_spark.jobs import ProgressStep
from tests.unit.cli.conftest import Run

CLI = Path(output.__file__).parent
SPARK = Path(nunatak_spark.__file__).parent
HOSTILE = "a\x1b[31m\x1b]0;title\x07b\x9b2J\x7f\u202egnp.exe\u2066\u200bc\u2028d\u2029e\U000e0041f\x00g"
ALL_HOSTILE = [
    chr(code)
    for code in range(0x110000)
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and chr(code) not in "\n\t"
]


def harmless(text: str) -> bool:
    return not any(each in text for each in ALL_HOSTILE[:400]) and not any(
        unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") and each not in "\n\t" for each in text
    )


def test_every_character_that_a_terminal_acts_on_is_escaped() -> None:
    assert len(ALL_HOSTILE) > 2000, "with the halves of characters"
    assert all(printable(each).isprintable() for each in ALL_HOSTILE)
    assert printable("\x1b\x9b\u202e\U000e0041") == r"\x1b\x9b\u202e\U000e0041"


def test_what_it_does_not_act_on_stays() -> None:
    for text in ("naïve 表 🙂", "two\nlines\tand a tab", r"a\x1b"):
        assert printable(text) == printable_json(text) == text
    assert printable("two\nlines", one_line=True) == r"two\x0alines"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_stays_the_same_value(indent: int | None) -> None:
    value = {HOSTILE: [HOSTILE, {"b": "".join(each for each in ALL_HOSTILE if not "\ud800" <= each <= "\udfff")}]}
    printed = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))

    assert json.loads(printed) == value
    assert harmless(printed)


def a_hostile_table(run: Run, namespace: str) -> str:
    """In all that a server lets through: a name refuses control characters, a column, a comment and a value none."""
    name = f"{namespace}.t\u202eevil\u200b"
    field = {"id": 1, "name": HOSTILE, "doc": HOSTILE, "required": False, "type": "long"}
    schema = json.dumps({"fields": [field]})
    properties = [f"--property=key{HOSTILE.replace(chr(0), '')}=value{HOSTILE.replace(chr(0), '')}"]
    outcome = run("table", "create", name, "--schema", schema, *properties)
    assert harmless(outcome.out + outcome.err)
    return name


def test_a_table_is_shown_and_listed_without_its_escapes(run: Run, namespace: str) -> None:
    name = a_hostile_table(run, namespace)

    for command in (
        ("table", "show", name),
        ("table", "list", namespace),
        ("table", "list"),
        ("search", "evil"),
        ("table", "show", name, "-o", "json"),
        ("table", "list", namespace, "-o", "json"),
        ("health", name),
        ("health", name, "-o", "json"),
        ("table", "drop", name),
    ):
        outcome = run(*command)
        assert harmless(outcome.out + outcome.err), command
        if "json" in command:
            assert json.loads(outcome.out)


def test_the_escapes_are_still_told(run: Run, namespace: str) -> None:
    name = a_hostile_table(run, namespace)

    assert r"\x1b[31m" in run("table", "show", name).out
    assert r"\u202e" in run("table", "list", namespace).out
    fields = run("table", "show", name, "-o", "json").json["metadata"]["schemas"][0]["fields"]
    assert fields[0]["name"] == HOSTILE


def test_errors_are_told_without_escapes(run: Run, namespace: str) -> None:
    for command, code in (
        (("table", "show", f"{namespace}.\u202enone"), 1),
        (("table", "create", f"{namespace}.t\x1b[31m", "--column", "id:long"), 1),
        (("table", "create", f"{namespace}.t", "--column", "id:lo\x1b[31mng"), 1),
        (("namespace", "drop", "\x9bnone"), 1),
    ):
        outcome = run(*command, code=code)
        assert outcome.err
        assert harmless(outcome.out + outcome.err), command


def test_progress_of_spark_is_told_without_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    step = ProgressStep(HOSTILE, 1, 2)
    event = console.WorkerEvent(event="step", text=HOSTILE, step=step)
    for event_printer in (console.print_lines, console.print_json_lines, console.print_with_bars):
        with event_printer() as print_event:
            print_event(event)
            print_event(console.WorkerEvent(event="done", text=HOSTILE))
    for shown in (runner._text, runner._json, runner._bar):
        with shown() as progress:
            progress(step)

    captured = capfd.readouterr()
    assert "a" in captured.out
    assert "\x1b]0;" not in captured.out + captured.err
    assert "\x9b" not in captured.out + captured.err
    assert "\u202e" not in captured.out + captured.err


@pytest.mark.parametrize("file", [*sorted(CLI.glob("*.py")), SPARK / "console.py", SPARK / "runner.py"], ids=str)
def test_nothing_prints_past_the_one_place(file: Path) -> None:
    calls = [
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and file.name != "output.py"
    ]

    assert not {"click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write"} & set(calls)
