"""When the rows of a metadata document can be read by its snapshot alone; no Spark."""

from typing import Any

import pytest

from nunatak_spark.migration.pinned_source import has_current_schema


def a_document(snapshot: dict[str, Any] | None, schemas: int, current: int) -> dict[str, Any]:
    listed = [{"schema-id": number, "type": "struct", "fields": []} for number in range(schemas)]
    known = [] if snapshot is None else [{"snapshot-id": 7, "manifest-list": "a", **snapshot}]
    return {
        "schemas": listed,
        "current-schema-id": current,
        "snapshots": known,
        "current-snapshot-id": 7 if known else -1,
    }


@pytest.mark.parametrize(
    ("document", "is_fixed"),
    [
        (a_document({"schema-id": 1}, schemas=2, current=1), True),
        (a_document({"schema-id": 0}, schemas=2, current=1), False),
        (a_document({}, schemas=1, current=0), True),
        (a_document({}, schemas=2, current=1), False),
        (a_document(None, schemas=2, current=1), True),
    ],
    ids=["its schema", "columns changed since", "the only schema", "nobody knows which schema", "never written to"],
)
def test_rows_are_those_of_the_snapshot_if_it_has_the_schema_of_the_document(document: Any, is_fixed: bool) -> None:
    assert has_current_schema(document) is is_fixed
