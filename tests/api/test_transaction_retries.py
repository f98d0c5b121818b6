"""A transaction that loses against another client of the database: tried again ten times, then refused as a whole."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nunatak.catalog import commits
from nunatak.database.records import Change, MovePointer
from tests.api.wire import a_commit, done, identifier, set_properties
from tests.support.catalogs.local import LocalCatalog

RETRIES = 10
_numbers = itertools.count(1)


def commit_outside(catalog: LocalCatalog, name: str) -> None:
    """As a client of the JDBC tables does it: a new file, then compare and swap."""
    (old,) = catalog.rows("SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", name)[0]
    file = Path(old.removeprefix("file://"))
    metadata = json.loads(file.read_bytes())
    number = next(_numbers)
    metadata["properties"]["outside"] = str(number)
    new = file.with_name(f"99{number:03}-outside.metadata.json")
    new.write_text(json.dumps(metadata))
    catalog.rows(
        "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
        "WHERE table_name = ? AND metadata_location = ?",
        f"file://{new}", old, name, old,
    )  # fmt: skip


@pytest.fixture
def rivalled(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> tuple[LocalCatalog, list[int]]:
    """Two tables, and another client that commits to the second one before as many of our tries as the list says."""
    monkeypatch.setattr(commits, "FIRST_BACKOFF_SECONDS", 0.0001)
    monkeypatch.setattr(commits, "MAX_BACKOFF_SECONDS", 0.001)
    catalog.table("ns", "a")
    catalog.table("ns", "b")
    left = [0, 0]  # commits of the other client that are still to come, and tries of ours
    apply = catalog.store.apply

    async def apply_late(changes: Sequence[Change]) -> list[object]:
        if any(isinstance(change, MovePointer) for change in changes):
            left[1] += 1
            if left[0]:
                left[0] -= 1
                commit_outside(catalog, "b")
        return await apply(changes)

    monkeypatch.setattr(catalog.store, "apply", apply_late)
    return catalog, left


def transaction() -> dict[str, Any]:
    changes = [{"identifier": identifier("ns", name), **a_commit(set_properties(ours="1"))} for name in ("a", "b")]
    return {"table-changes": changes}


def properties(catalog: LocalCatalog, name: str) -> dict[str, str]:
    found: dict[str, str] = catalog.load("ns", name)["metadata"]["properties"]
    return found


def test_it_is_tried_again_ten_times(rivalled: tuple[LocalCatalog, list[int]]) -> None:
    """MISSION: 002-34"""
    catalog, left = rivalled
    left[0] = RETRIES

    done(catalog.call("POST", "/v1/transactions/commit", transaction()))

    assert left == [0, RETRIES + 1]
    assert properties(catalog, "a")["ours"] == "1"
    assert {"ours", "outside"} <= properties(catalog, "b").keys()


def test_after_that_it_is_refused_and_nothing_of_it_was_done(rivalled: tuple[LocalCatalog, list[int]]) -> None:
    """MISSION: 002-35"""
    catalog, left = rivalled
    before = catalog.load("ns", "a")
    files = {file for file in catalog.files() if "outside" not in file}
    left[0] = RETRIES + 1

    answer = catalog.call("POST", "/v1/transactions/commit", transaction())

    assert answer.error[:2] == (409, "CommitFailedException")
    assert answer.hint == "Nothing of the transaction was applied. Refresh and try again."
    assert left == [0, RETRIES + 1]
    assert catalog.load("ns", "a") == before
    assert "ours" not in properties(catalog, "b")
    assert {file for file in catalog.files() if "outside" not in file} == files
