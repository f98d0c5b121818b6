"""What the server and the Spark jobs agree on stands in one file."""

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
CONVENTIONS = "nunatak/iceberg/conventions.py"


@pytest.mark.parametrize(
    ("text", "stands_in"),
    [
        (r"nunatak-pin-", {CONVENTIONS}),
        (r"\b512 (<< 20|\* ?(MIB|1024 \* 1024))", {CONVENTIONS}),
        (r"def _?is_loopback", {"nunatak/addresses.py"}),
        (r'"127\.0\.0\.1", "::1"', set()),
        (r"write\.metadata\.(delete-after-commit|previous-versions-max)", {CONVENTIONS}),
        (r"write\.folder-storage\.path", {CONVENTIONS}),
        (r'= "\.metadata\.json"', {CONVENTIONS}),
        (r"\b8 << 20\b", {CONVENTIONS, "nunatak_spark/maintenance/manifest_rewrite.py"}),  # there, of manifests
        (r"GRANT \| Privilege\.WAREHOUSE_ADMIN \| Privilege\.SERVER_ADMIN", {"nunatak/access/administration.py"}),
    ],
)
def test_a_shared_value_stands_once(text: str, stands_in: set[str]) -> None:
    files = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if re.search(text, path.read_text("utf-8"))}

    assert files == stands_in
