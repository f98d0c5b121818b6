"""What the server says about itself and keeps for others: health, metrics, search, reports; and the upkeep of files."""

import gzip
import http.client
import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nunatak.api.routes import ROUTES
from nunatak.events.metrics import BOUNDS, METRICS
from nunatak.events.worker_pages import merge_pages
from tests.api.wire import a_commit, done, ok, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog, metadata_file
from tests.support.catalogs.process import RunningServer
from tests.support.pages import blocks_with

T = path_of("ns", "tables", "t")
WATCHING = Path(__file__).parents[2] / "docs" / "how-to" / "watch-the-catalog.md"


def test_a_healthy_server_says_so(catalog: LocalCatalog) -> None:
    assert ok(catalog.call("GET", "/health")) == {"status": "healthy"}
    assert ok(catalog.call("GET", "/ready")) == {"status": "ready"}
    assert ok(catalog.call("GET", "/"))["config"] == "/v1/config"


def test_a_server_that_cannot_write_is_not_ready_but_alive(catalog: LocalCatalog) -> None:
    """Readiness tries to write: a server that answers 200 whatever happens misleads whoever watches it."""
    catalog.run(catalog.store.close())

    answer = catalog.call("GET", "/ready")
    assert answer.error[:2] == (503, "ServiceUnavailableException")
    assert answer.headers["retry-after"] == "1"
    assert catalog.call("GET", "/health").status == 200
    assert catalog.call("POST", "/v1/namespaces", {"namespace": ["n"]}).status == 503
    catalog.start()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_bug_of_ours_is_a_500_that_tells_no_secret(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """It must not look like a refusal: a client that is refused deletes its files. 000-77"""
    catalog.table("ns", "t")
    catalog.restart()  # so that it is not remembered

    async def broken(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(catalog.store, "find_pointer", broken)

    answer = catalog.call(method, T, a_commit(set_properties(a="b")) if method == "POST" else None)

    assert answer.error == (500, "InternalServerError", "Internal error: RuntimeError")
    assert b"hunter2" not in answer.body


def test_the_metrics_page_counts_requests_by_operation_and_status(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    for path in (T, T, path_of("ns", "tables", "no"), "/v1/nothing"):
        catalog.call("GET", path)

    answer = catalog.call("GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}

    assert answer.headers["content-type"].startswith("text/plain")
    assert {name.removesuffix("_total") for name, _, _ in METRICS} <= set(families)
    counted = {
        (sample.labels["operation"], sample.labels["status"]): sample.value
        for sample in families["nunatak_requests"].samples
    }
    assert counted[("loadTable", "200")] == 2
    assert counted[("loadTable", "404")] == 1
    assert counted[("unknown", "400")] == 1
    assert counted[("createTable", "200")] == 1


def test_the_metrics_page_tells_how_long_answers_took(catalog: LocalCatalog) -> None:
    metrics = catalog.app.metrics
    for status, seconds in ((200, 0.0009), (200, 0.002), (409, 0.3), (500, 11.0)):
        metrics.count("updateTable", "POST", status, seconds)

    families = {family.name: family for family in text_string_to_metric_families(metrics.page().decode())}
    samples = [
        each for each in families["nunatak_request_seconds"].samples if each.labels["operation"] == "updateTable"
    ]

    assert families["nunatak_request_seconds"].type == "histogram"
    held = {float(each.labels["le"]): each.value for each in samples if each.name.endswith("_bucket")}
    assert list(held) == [*BOUNDS, float("inf")]
    assert (held[0.001], held[0.0025], held[0.25], held[0.5], held[10.0], held[float("inf")]) == (1, 2, 2, 3, 3, 4)
    assert {each.name: each.value for each in samples if "le" not in each.labels} == {
        "nunatak_request_seconds_count": 4,
        "nunatak_request_seconds_sum": pytest.approx(11.3029),
    }


def test_workers_tell_together_how_long_answers_took(catalog: LocalCatalog) -> None:
    catalog.app.metrics.count("updateTable", "POST", 200, 0.3)
    page = catalog.app.metrics.page()

    together = merge_pages({"0": page, "1": page}).decode()

    families = {family.name: family for family in text_string_to_metric_families(together)}
    assert families["nunatak_request_seconds"].type == "histogram"
    assert [
        (each.labels["worker"], each.value)
        for each in families["nunatak_request_seconds"].samples
        if each.labels["operation"] == "updateTable" and each.labels.get("le") == "0.5"
    ] == [("0", 1.0), ("1", 1.0)]


def test_the_metrics_page_tells_how_large_metadata_is(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")

    page = catalog.call("GET", "/metrics").body.decode()

    size = metadata_file(ok(catalog.call("GET", T))).stat().st_size
    assert f"nunatak_metadata_written_bytes_total {float(size)}" in page
    assert 'nunatak_object_operations_total{operation="write"} 1.0' in page


def test_the_rules_of_the_docs_watch_what_the_page_tells(catalog: LocalCatalog) -> None:
    families = text_string_to_metric_families(catalog.call("GET", "/metrics").body.decode())
    told = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    told |= {f"{name}_bucket" for name, kind, _ in METRICS if kind == "histogram"}
    (rules,) = blocks_with(WATCHING, "yaml", "rules")

    watched = set(re.findall(r"\bnunatak_\w+", rules))
    operations = {each for found in re.findall(r'operation=~?"([^"]+)"', rules) for each in found.split("|")}

    assert len(re.findall(r"^ +- alert: ", rules, re.MULTILINE)) == 7
    assert watched
    assert watched <= told
    assert operations <= {route.operation for route in ROUTES} | set(catalog.app.catalog.objects.local.counts)


# Reports


@pytest.mark.parametrize(
    "report",
    [
        {"report-type": "scan-report", "table-name": "ns.t", "snapshot-id": 1, "filter": True, "metrics": {}},
        {"report-type": "commit-report", "table-name": "ns.t", "snapshot-id": 1, "operation": "append"},
        {"table-name": "ns.t"},
    ],
    ids=["scan", "commit", "without a type"],
)
def test_a_report_is_kept_as_it_was_sent(catalog: LocalCatalog, report: object) -> None:
    catalog.table("ns", "t")

    done(catalog.call("POST", f"{T}/metrics", report))

    rows = catalog.rows("SELECT catalog_name, table_namespace, table_name, report FROM nunatak_reports")
    assert [(*row[:3], json.loads(row[3])) for row in rows] == [("default", "ns", "t", report)]


# Search


def found(catalog: LocalCatalog, query: str) -> list[tuple[str, str]]:
    results = ok(catalog.call("GET", f"/v1/search?{query}"))["results"]
    return [
        (entry["type"], ".".join((*entry["identifier"]["namespace"], entry["identifier"]["name"]))) for entry in results
    ]


def test_search_finds_tables_and_views_by_a_part_of_their_name_in_any_case(catalog: LocalCatalog) -> None:
    catalog.namespace("Sales")
    catalog.table("Sales", "Orders")
    catalog.table("ns", "order_lines")
    catalog.view("ns", "open_ORDERS")
    catalog.table("ns", "GRÖSSE")

    assert found(catalog, "query=order") == [
        ("table", "Sales.Orders"),
        ("view", "ns.open_ORDERS"),
        ("table", "ns.order_lines"),
    ]
    assert found(catalog, "query=ORDER&type=view") == [("view", "ns.open_ORDERS")]
    assert found(catalog, "query=sales") == [("table", "Sales.Orders")]
    assert found(catalog, "query=GR%C3%96SSE") == [("table", "ns.GRÖSSE")]
    assert found(catalog, "query=%25") == []
    assert found(catalog, "query=_") == [("view", "ns.open_ORDERS"), ("table", "ns.order_lines")]
    assert len(found(catalog, "")) == 4


def test_search_stays_in_its_warehouse(catalog: LocalCatalog) -> None:
    catalog.rows("INSERT INTO iceberg_tables VALUES ('other', 'ns', 't', 'file:///x', NULL, 'TABLE')")

    assert found(catalog, "query=t") == []


# Upkeep of metadata files


def test_metadata_files_that_left_the_log_are_deleted_if_the_table_asks_for_it(catalog: LocalCatalog) -> None:
    table = catalog.table(
        "ns",
        "t",
        properties={
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "2",
        },
    )
    commits = [catalog.call("POST", T, a_commit(set_properties(n=str(number)))) for number in range(5)]
    locations = [table["metadata-location"], *(ok(answer)["metadata-location"] for answer in commits)]
    assert catalog.work_off_jobs() > 0

    there = [Path(location.removeprefix("file://")).is_file() for location in locations]
    assert there == [False, False, False, True, True, True]
    log = [entry["metadata-file"] for entry in catalog.load("ns", "t")["metadata"]["metadata-log"]]
    assert log == locations[3:5]


def test_metadata_files_that_left_the_log_are_kept_otherwise(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t", properties={"write.metadata.previous-versions-max": "1"})
    for number in range(3):
        ok(catalog.call("POST", T, a_commit(set_properties(n=str(number)))))

    assert catalog.work_off_jobs() == 0
    assert len(catalog.files()) == 4


def test_a_trimmed_file_that_belongs_to_another_table_is_never_deleted(catalog: LocalCatalog) -> None:
    """A registered file may name anything in its log."""
    victim = metadata_file(catalog.table("ns", "victim"))
    metadata = catalog.table("ns", "t")["metadata"]
    place = catalog.warehouse / "foreign"
    place.mkdir()
    metadata |= {
        "location": f"file://{place}",
        "table-uuid": "00000000-0000-4000-8000-000000000001",
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": f"file://{victim}"}],
        "properties": {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        },
    }
    (place / "00001-x.metadata.json").write_text(json.dumps(metadata))
    ok(catalog.call("POST", path_of("ns") + "/register",
                    {"name": "foreign", "metadata-location": f"file://{place}/00001-x.metadata.json"}))  # fmt: skip

    ok(catalog.call("POST", path_of("ns", "tables", "foreign"), a_commit(set_properties(a="b"))))

    assert catalog.work_off_jobs() == 1
    assert victim.is_file()


@pytest.mark.parametrize("codec", ["gzip", "GZIP"])
def test_metadata_is_written_as_gzip_if_the_table_asks_for_it(catalog: LocalCatalog, codec: str) -> None:
    created = catalog.table("ns", "t", properties={"write.metadata.compression-codec": codec})
    changed = ok(catalog.call("POST", T, a_commit(set_properties(a="b"))))

    for answer in (created, changed):
        file = metadata_file(answer)
        assert file.name.endswith(".gz.metadata.json")
        assert json.loads(gzip.decompress(file.read_bytes())) == answer["metadata"]
    assert catalog.load("ns", "t") == changed
    catalog.restart()
    assert catalog.load("ns", "t") == changed
    plain = ok(catalog.call("POST", T, a_commit(set_properties(**{"write.metadata.compression-codec": "none"}))))
    assert json.loads(metadata_file(plain).read_bytes()) == plain["metadata"]
    assert metadata_file(plain).name.startswith("00002-")


def test_a_gzip_file_is_registered_and_served_as_plain_json(catalog: LocalCatalog) -> None:
    created = catalog.table("ns", "t", properties={"write.metadata.compression-codec": "gzip"})
    done(catalog.call("DELETE", T))

    body = {"name": "back", "metadata-location": created["metadata-location"]}
    assert ok(catalog.call("POST", path_of("ns") + "/register", body)) == created


def test_a_metadata_path_of_its_own_gets_the_next_files(catalog: LocalCatalog) -> None:
    table = catalog.table("ns", "t")
    path = f"{table['metadata']['location']}/elsewhere"

    changed = ok(catalog.call("POST", T, a_commit(set_properties(**{"write.metadata.path": f"{path}/"}))))

    assert changed["metadata-location"].startswith(f"{path}/00001-")
    assert catalog.load("ns", "t") == changed


def test_a_pointer_that_another_client_moved_is_served_and_remembered(catalog: LocalCatalog) -> None:
    """Spark's JDBC catalog or PyIceberg committed to the same database."""
    table = catalog.table("ns", "t")
    theirs = metadata_file(table).with_name("00001-theirs.metadata.json")
    theirs.write_text(json.dumps(table["metadata"] | {"properties": {"made-by": "another"}}))
    catalog.rows("UPDATE iceberg_tables SET metadata_location = ?", f"file://{theirs}")

    assert catalog.load("ns", "t")["metadata"]["properties"] == {"made-by": "another"}
    changed = ok(catalog.call("POST", T, a_commit(set_properties(a="b"))))
    assert changed["metadata"]["properties"] == {"made-by": "another", "a": "b"}
    assert metadata_file(changed).name.startswith("00002-")
    assert catalog.rows("SELECT operation FROM nunatak_commits ORDER BY sequence") == [
        ("create-table",),
        ("external",),
        ("commit-table",),
    ]


def test_what_another_client_created_renamed_or_dropped_is_listed_at_once(catalog: LocalCatalog) -> None:
    """A list may be remembered only as long as nothing changed, whoever changed it."""
    catalog.table("ns", "t")
    tables, found = path_of("ns", "tables"), []

    for change in (
        "SELECT 1",
        "INSERT INTO iceberg_tables VALUES ('default', 'ns', 'theirs', 'file:///x', NULL, 'TABLE')",
        "UPDATE iceberg_tables SET table_name = 'moved' WHERE table_name = 'theirs'",
        "DELETE FROM iceberg_tables WHERE table_name = 'moved'",
    ):
        catalog.rows(change)
        catalog.call("GET", tables)
        found.append([entry["name"] for entry in ok(catalog.call("GET", tables))["identifiers"]])

    assert found == [["t"], ["t", "theirs"], ["moved", "t"], ["t"]]


def test_the_welcome_names_the_place_to_start(catalog: LocalCatalog) -> None:
    assert ok(catalog.call("GET", ok(catalog.call("GET", "/"))["config"]))["endpoints"]


def test_a_method_that_is_not_allowed_says_which_are(shared_server: RunningServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared_server.port, timeout=30)
    connection.request("PUT", "/v1/namespaces")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert (answer.status, answer.getheader("allow")) == (405, "GET, POST")
