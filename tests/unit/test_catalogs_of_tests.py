"""Tests get a catalog in one of the three ways of tests/support/catalogs; no file builds a server of its own."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
BUILT = {
    "support/catalogs/local.py",  # LocalCatalog and opened_app
    "support/broken_server.py",  # puts a broken function in its place
    "faults/test_power_cut.py",  # the power goes: the application is never closed in order
}


def builds_a_server(source: str) -> bool:
    """True if the source uses `build_app`, by whatever name it was imported."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "build_app" for alias in node.names):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "build_app":
            return True
    return False


def test_only_the_local_catalog_builds_a_server() -> None:
    files = {str(file.relative_to(TESTS)): file.read_text() for file in TESTS.rglob("*.py")}

    assert {name for name, source in files.items() if builds_a_server(source)} == BUILT


def test_a_server_that_is_built_elsewhere_is_found() -> None:
    assert builds_a_server("from nunatak.server import build_app as build")
    assert builds_a_server("from nunatak import server\nserver.build_app(settings)")
    assert not builds_a_server("from nunatak.server import close_app")
