"""What nunatak_spark stands on: the client and the errors of the catalog, and pyspark only once a session is wanted."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_layers import imported_modules

SOURCE = Path(__file__).parents[3] / "src"
FILES = sorted((SOURCE / "nunatak_spark").rglob("*.py"))
MAY_IMPORT = ("nunatak.client", "nunatak.errors", "nunatak.maintenance.job_spec", "nunatak.terminal")
COMMANDS = ("migrate.py", "migrate_run.py", "report.py", "spark.py", "spark_work.py")
MAY_BE_IMPORTED_BY = {SOURCE / "nunatak" / "cli" / name for name in COMMANDS}


def title(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imports(path: Path) -> set[str]:
    return set(imported_modules(ast.parse(path.read_text("utf-8")), path))


@pytest.mark.parametrize("path", FILES, ids=title)
def test_a_job_talks_to_the_server_only_through_the_client(path: Path) -> None:
    of_the_server = {name for name in imports(path) if name == "nunatak" or name.startswith("nunatak.")}

    assert {name for name in of_the_server if not name.startswith(MAY_IMPORT)} == set()


@pytest.mark.parametrize("path", FILES, ids=title)
def test_imports_stand_at_the_top_and_pyspark_only_for_annotations(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    hidden = [
        node for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    at_runtime = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    assert hidden == []
    assert not any(name.split(".")[0] == "pyspark" for node in at_runtime for name in imported_modules(node, path))


@pytest.mark.parametrize("path", FILES, ids=title)
def test_a_module_opens_with_a_sentence(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


def test_of_the_server_only_the_command_knows_spark() -> None:
    importers = {
        path
        for path in (SOURCE / "nunatak").rglob("*.py")
        if any(name.split(".")[0] in {"nunatak_spark", "pyspark"} for name in imports(path))
    }

    assert importers == MAY_BE_IMPORTED_BY


def test_everything_can_be_imported_without_pyspark() -> None:
    modules = [title(path).removesuffix(".py").replace("/", ".") for path in FILES if path.stem != "__main__"]
    script = f"""
import sys
sys.modules["pyspark"] = None  # as if it were not installed: importing it fails
import {", ".join(modules)}, nunatak.cli.spark
print("imported")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "imported\n"
