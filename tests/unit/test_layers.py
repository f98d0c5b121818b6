"""Who may import whom: each layer imports only layers to its right, and imports stand at the top of the file.

tests/unit/spark/test_layers.py asks the same of nunatak_spark.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "nunatak"

LAYERS = [
    "cli",
    "server",
    "checks",
    "api",
    "maintenance",
    "catalog",
    "events",
    "access",
    "objectstore",
    "database",
    "iceberg",
    "settings",
    "errors",
]
# These stand beside the line, each on what it names; the layers that may use them follow.
BESIDE = {
    "client": ({"iceberg", "errors"}, {"cli"}),
    "connect": (set[str](), {"cli", "server", "api"}),
    "terminal": (set[str](), {"cli"}),
    "secret": (set[str](), set(LAYERS) | {"client"}),
    "database_url": (set[str](), {"settings", "checks", "server", "cli"}),
    "addresses": (set[str](), {"checks", "api", "access", "database"}),
    "address_file": (set[str](), {"cli", "server"}),
}
DRIVERS = {
    "nunatak.database.sqlite",
    "nunatak.database.sqlite_writer",
    "nunatak.database.sqlite_backup",
    "nunatak.database.postgres",
    "nunatak.database.postgres_backup",
    "nunatak.database.postgres_batches",
    "nunatak.database.postgres_connections",
    "nunatak.database.postgres_migrations",
    "nunatak.database.mariadb",
    "nunatak.database.mariadb_connections",
    "nunatak.database.mariadb_migrations",
    "nunatak.objectstore.local",
}
DRIVERS_NAMED_BY = {"server"}

# An import that has to hide inside a function shows a function in the wrong file. `file: reason` for each exception.
HIDDEN_IMPORTS: dict[str, str] = {}

FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
LAYERED = [file for file in FILES if str(file) not in {"__init__.py", "__main__.py"}]


def part_of(module: str) -> str | None:
    """`nunatak.api.tables` belongs to `api`; the package itself (its version) belongs to nobody."""
    pieces = module.split(".")
    return pieces[1] if pieces[0] == "nunatak" and len(pieces) > 1 else None


def layer_of(file: Path) -> str:
    return file.parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST, file: Path) -> Iterator[str]:
    """Every module that is imported anywhere in the file, by its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively; write the full name"
            assert node.module is not None
            yield node.module
            # `from nunatak import server` and `from nunatak.database import sqlite` name modules, too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def known_modules(tree: ast.AST, file: Path) -> Iterator[str]:
    """Those of them that are ours and exist as a file or folder."""
    for module in imported_modules(tree, file):
        inside = SOURCE.joinpath(*module.split(".")[1:])
        if part_of(module) and (inside.is_dir() or inside.with_suffix(".py").is_file()):
            yield module


def may_import(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if imported in BESIDE and importer in BESIDE[imported][1]:
        return True
    if importer in BESIDE:
        return imported in BESIDE[importer][0]
    if imported in BESIDE:
        return False
    return LAYERS.index(importer) < LAYERS.index(imported)


def parsed(file: Path) -> ast.Module:
    return ast.parse((SOURCE / file).read_text("utf-8"))


@pytest.mark.parametrize("file", LAYERED, ids=str)
def test_a_file_imports_only_to_its_right(file: Path) -> None:
    importer = layer_of(file)
    assert importer in LAYERS or importer in BESIDE, f"{file} belongs to no layer; give it one in this test"

    wrong = [module for module in known_modules(parsed(file), file) if not may_import(importer, part_of(module) or "")]

    assert wrong == []


@pytest.mark.parametrize("file", FILES, ids=str)
def test_only_the_server_names_a_driver(file: Path) -> None:
    named = DRIVERS & set(known_modules(parsed(file), file))

    if str(file.parent) not in {"database", "objectstore"} and layer_of(file) not in DRIVERS_NAMED_BY:
        assert named == set()


def names_of_spark(tree: ast.AST, file: Path) -> set[str]:
    """Modules of nunatak_spark or pyspark that the file imports, or names in a text as `import_module` takes it."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = {*imported_modules(tree, file), *(text for text in texts if re.fullmatch(r"[\w.]+(:\w+)?", text))}
    return {name for name in named if re.split(r"[.:]", name)[0] in {"nunatak_spark", "pyspark"}}


@pytest.mark.parametrize("file", FILES, ids=str)
def test_the_server_stands_without_spark(file: Path) -> None:
    assert names_of_spark(parsed(file), file) == set()


def test_a_hidden_import_of_spark_is_found() -> None:
    hidden = ast.parse("import_module('nunatak_spark.jobs'); place = 'nunatak_spark.cli.spark:spark'")

    assert names_of_spark(hidden, Path("x.py")) == {"nunatak_spark.jobs", "nunatak_spark.cli.spark:spark"}
    assert names_of_spark(ast.parse("'pyspark of nunatak_spark is missing'"), Path("x.py")) == set()


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_stand_at_the_top(file: Path) -> None:
    functions = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    hidden = [
        node.lineno
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert (hidden != []) == (str(file) in HIDDEN_IMPORTS), f"{file} imports inside a function at lines {hidden}"


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_module_opens_with_a_sentence(file: Path) -> None:
    opening = ast.get_docstring(parsed(file))

    assert (opening and opening.strip()) or not (SOURCE / file).read_text().strip(), f"{file} does not say what is here"


def test_the_rule_itself_refuses_what_it_should() -> None:
    assert may_import("api", "catalog")
    assert not may_import("catalog", "api")
    assert not may_import("iceberg", "database")
    assert not may_import("server", "cli")
    assert not may_import("client", "catalog")
    assert not may_import("catalog", "client")
    assert may_import("cli", "client")
    assert may_import("settings", "secret")
    assert may_import("client", "secret")
    assert not may_import("secret", "settings")
    assert set(known_modules(ast.parse("from nunatak import server\nimport os"), Path("x.py"))) <= {"nunatak.server"}
