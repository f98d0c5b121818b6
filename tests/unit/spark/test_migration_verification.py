"""What a level says that did not get to its end, and that every kind of finding is explained."""

import re
from pathlib import Path

import pytest

from nunatak_spark.migration import (
    content_comparison,
    engine_comparison,
    file_reachability,
    metadata_comparison,
    verification,
)
from nunatak_spark.migration.verification import failure_finding

EXPLAINED = Path(__file__).parents[3] / "docs" / "explanation" / "migration-evidence.md"
KIND = re.compile(r'(?:Finding|_one_value|_by_key)\(\s*"([a-z-]+)"|"([a-z]+-file|wrong-size)": ')


@pytest.mark.parametrize(
    "module", [metadata_comparison, file_reachability, content_comparison, engine_comparison, verification]
)
def test_every_kind_of_finding_is_explained(module: object) -> None:
    source = Path(str(module.__file__)).read_text("utf-8")  # type: ignore[attr-defined]
    kinds = {one or other for one, other in KIND.findall(source)}

    assert kinds
    assert {kind for kind in kinds if f"`{kind}`" not in EXPLAINED.read_text("utf-8")} == set()


@pytest.mark.parametrize(
    "text",
    [
        "aborted: org.x.NotFoundException: Failed to open input stream for file: s3://b/x.parquet\n\tat A",
        "NotFoundException: Location does not exist: s3://b/x.parquet",
        "java.io.FileNotFoundException: File does not exist: s3://b/x.parquet.",
    ],
)
def test_a_file_that_spark_could_not_open_is_named(text: str) -> None:
    found = failure_finding(RuntimeError(text))

    assert (found.kind, found.where) == ("missing-file", "s3://b/x.parquet")


def test_any_other_trouble_is_told_by_its_first_line() -> None:
    assert failure_finding(RuntimeError("\nno such thing\n\tat B")).text.endswith(": no such thing")
    assert failure_finding(KeyError()).text.endswith(": KeyError")
    assert failure_finding(KeyError()).kind == "not-carried-out"
