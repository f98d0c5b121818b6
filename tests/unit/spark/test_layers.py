"""Who may import whom in nunatak_spark, what it takes from the catalog, and pyspark only once a session is wanted."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_layers import imported_modules

SOURCE = Path(__file__).parents[3] / "src"
PACKAGE = SOURCE / "nunatak_spark"
FILES = sorted(PACKAGE.rglob("*.py"))

# Each part imports only parts of later lines; parts of one line do not know each other.
LAYERS = [
    ("cli",),
    ("demo", "runner"),
    ("worker", "migration", "telemetry", "comparison_jobs", "doctor"),
    ("job_lease",),
    ("maintenance",),
    ("comparison", "progress", "console", "spark_session", "system_tables", "shutdown"),
    ("configuration", "fingerprint", "jobs"),
    ("installation", "jars", "column_types", "session_settings", "sql_text"),
    ("java", "failure_reason"),
    ("compatibility",),
    ("errors",),
    ("redaction",),
]
RANKS = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
ABOVE = {"__init__", "__main__"}  # what the package offers, and how it is started

# A job talks to the server over HTTP alone; a command is also a part of the catalog's command line.
OF_THE_CATALOG = (
    "nunatak.client",
    "nunatak.errors",
    "nunatak.iceberg.conventions",
    "nunatak.maintenance.job_spec",
    "nunatak.terminal",
)
OF_ITS_COMMAND_LINE = ("nunatak.cli", "nunatak.settings", "nunatak.maintenance.commands")


def title(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """The parts of nunatak_spark that a file imports."""
    names = {name.split(".")[1] for name in imported_modules(parsed(path), path) if name.startswith("nunatak_spark.")}
    return {name for name in names if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}


def may_import(importer: str, imported: str) -> bool:
    return importer == imported or importer in ABOVE or RANKS[importer] < RANKS[imported]


@pytest.mark.parametrize("path", FILES, ids=title)
def test_a_part_imports_only_parts_below_it(path: Path) -> None:
    part = part_of(path)
    assert part in RANKS or part in ABOVE, f"{title(path)} belongs to no layer; give it one in this test"

    assert {name for name in imported_parts(path) if not may_import(part, name)} == set()


@pytest.mark.parametrize("path", FILES, ids=title)
def test_a_job_talks_to_the_server_only_through_the_client(path: Path) -> None:
    of_the_server = {name for name in imported_modules(parsed(path), path) if name.split(".")[0] == "nunatak"}
    allowed = OF_THE_CATALOG + (OF_ITS_COMMAND_LINE if part_of(path) == "cli" else ())

    assert {name for name in of_the_server if not name.startswith(allowed)} == set()


@pytest.mark.parametrize("path", FILES, ids=title)
def test_imports_stand_at_the_top_and_pyspark_only_for_annotations(path: Path) -> None:
    tree = parsed(path)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    hidden = [
        node for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    at_runtime = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    assert hidden == []
    assert not any(name.split(".")[0] == "pyspark" for node in at_runtime for name in imported_modules(node, path))


@pytest.mark.parametrize("path", FILES, ids=title)
def test_a_module_opens_with_a_sentence(path: Path) -> None:
    assert ast.get_docstring(parsed(path))


def test_the_rule_itself_refuses_what_it_should() -> None:
    assert may_import("cli", "maintenance")
    assert may_import("worker", "job_lease")
    assert not may_import("maintenance", "cli")
    assert not may_import("worker", "migration")
    assert not may_import("errors", "compatibility")
    assert imported_parts(PACKAGE / "errors.py") == {"redaction"}
    assert len(RANKS) == sum(map(len, LAYERS)), "a part stands in one line"


def test_everything_can_be_imported_without_pyspark() -> None:
    modules = [title(path).removesuffix(".py").replace("/", ".") for path in FILES if path.stem != "__main__"]
    script = f"""
import sys
sys.modules["pyspark"] = None  # as if it were not installed: importing it fails
import {", ".join(modules)}
print("imported")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "imported\n"
