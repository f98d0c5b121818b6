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
    ],
)
def test_a_shared_value_stands_once(text: str, stands_in: set[str]) -> None:
    files = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if re.search(text, path.read_text("utf-8"))}

    assert files == stands_in
