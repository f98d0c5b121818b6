"""`python -m tests.bench.encoding`: the CPU time of the two answers that are not encoded from values in api/.

A list of 1,000 tables as SQLite joins it, against names that api/ encodes; and a load of metadata with 100 snapshots as
bytes of the file, against metadata that is decoded and encoded. tests/unit/test_json_only_in_api.py names the results.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from nunatak.api.wire import ListIdentifiersResponse, LoadTableResponse, WireIdentifier
from nunatak.catalog.cache import Loaded
from nunatak.database.sqlite import SqliteStore
from nunatak.iceberg.shapes import TableMetadataShape
from nunatak.settings import load
from tests.support.catalogs.local import LocalCatalog
from tests.support.many_tables import fill

TABLES, SNAPSHOTS = 1000, 100
ROUNDS, TIMES = 15, 50
NAMESPACE = "many_0"


def milliseconds(work: Callable[[], object]) -> float:
    """CPU time of one call, in the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(TIMES):
            work()
        best = min(best, (time.process_time() - started) / TIMES)
    return best * 1000


def lists(catalog: LocalCatalog) -> dict[str, Callable[[], bytes]]:
    store, run = catalog.store, catalog.run
    head = f'{{"namespace":["{NAMESPACE}"],"name":'
    values = {"catalog": "default", "namespace": NAMESPACE, "type": "TABLE", "after": "", "limit": TABLES}

    def kept() -> bytes:
        text, _, _ = run(store.list_pointers("default", NAMESPACE, "TABLE", "", TABLES, head))
        return f'{{"identifiers":[{text}]}}'.encode()

    def joined() -> bytes:
        store._lists.clear()
        return kept()

    def encoded() -> bytes:
        names = [row[0] for row in run(store.rows("names_after", values))]
        return msgspec.json.encode(ListIdentifiersResponse([WireIdentifier([NAMESPACE], name) for name in names]))

    return {"list, joined by SQLite": joined, "list, kept since the last time": kept, "list, encoded in api/": encoded}


def loads(catalog: LocalCatalog) -> dict[str, Callable[[], bytes]]:
    metadata = catalog.load(NAMESPACE, "t0")["metadata"]
    summary = {"operation": "append", "added-data-files": "1", "total-records": "5"}
    metadata["snapshots"] = [
        {"snapshot-id": number, "timestamp-ms": number, "manifest-list": f"/x/snap-{number}.avro", "summary": summary}
        for number in range(SNAPSHOTS)
    ]
    data, place = json.dumps(metadata).encode(), "/x/metadata/1.metadata.json"

    def encoded() -> bytes:
        decoded = msgspec.json.decode(data, type=TableMetadataShape)
        return msgspec.json.encode(LoadTableResponse(decoded, place))

    kept = Loaded(place, [data], None)
    return {
        "load, from the cache": lambda: kept.answer,
        "load, around the file's bytes": lambda: Loaded(place, [data], None).answer,
        "load, decoded and encoded": encoded,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "nunatak-data"
        fill(load({"data": data}, {}), TABLES, 0)
        catalog = LocalCatalog(data)
        try:
            assert isinstance(catalog.store, SqliteStore)
            for name, work in {**lists(catalog), **loads(catalog)}.items():
                print(f"{name:32} {milliseconds(work):8.4f} ms")
        finally:
            catalog.close()


if __name__ == "__main__":
    main()
