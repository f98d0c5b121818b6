"""The server's Prometheus metrics; counting a request costs the hot path one dictionary look-up."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nunatak.objectstore.vending.cache import BOUNDS as VENDING_BOUNDS
from nunatak.objectstore.vending.cache import VendingCounts

# Every metric once: name, type and description; the reference page is generated from it.
METRICS: tuple[tuple[str, str, str], ...] = (
    ("nunatak_requests_total", "counter", "Requests by operation, method and status."),
    ("nunatak_request_seconds", "histogram", "Response times, by operation."),
    ("nunatak_database_reads_total", "counter", "Statements read from the database."),
    ("nunatak_database_transactions_total", "counter", "Changes sent to the database."),
    ("nunatak_database_groups_total", "counter", "Database commits; several changes may share one."),
    ("nunatak_database_batches_total", "counter", "Statements for lookups and commits, which may carry several."),
    ("nunatak_database_batched_total", "counter", "Lookups and commits in those statements."),
    ("nunatak_database_retries_total", "counter", "Reads and changes tried again: a conflict, a lost connection."),
    ("nunatak_database_connections", "gauge", "Connections to the database, in use and idle."),
    ("nunatak_database_connections_limit", "gauge", "How many connections this server keeps at most."),
    ("nunatak_database_waiting", "gauge", "Requests that wait for a connection to become free."),
    ("nunatak_object_operations_total", "counter", "Reads, writes, deletes and stats of table files, by operation."),
    ("nunatak_metadata_written_bytes_total", "counter", "Bytes of the metadata files that were written."),
    ("nunatak_credentials_issued_total", "counter", "Storage credentials issued to clients, by level."),
    ("nunatak_credentials_cached_total", "counter", "Storage credentials that clients got from the cache."),
    ("nunatak_credentials_refused_total", "counter", "Storage credentials that could not be issued, by reason."),
    ("nunatak_credential_seconds", "histogram", "How long the token services of the stores took."),
    ("nunatak_cache_bytes", "gauge", "Bytes of metadata kept in memory."),
    ("nunatak_audit_dropped_total", "counter", "Reads and denials missing in the audit trail: too many at once."),
    (
        "nunatak_spool_dropped_total",
        "counter",
        "Telemetry records lost: the spool was full, or no job ingested them in time.",
    ),
)
_MEANING = {name: meaning for name, _, meaning in METRICS}
# The database's counters: metric name, label, and the database's key for each value of the label. SQLite has neither
# connections nor batches of this kind.
_OF_DATABASE: tuple[tuple[str, str | None, Mapping[str, str]], ...] = (
    ("nunatak_database_reads_total", None, {"": "read"}),
    ("nunatak_database_transactions_total", None, {"": "transaction"}),
    ("nunatak_database_groups_total", None, {"": "group"}),
    ("nunatak_database_batches_total", "of", {"lookups": "lookup batch", "commits": "commit batch"}),
    ("nunatak_database_batched_total", "of", {"lookups": "lookup member", "commits": "commit member"}),
    ("nunatak_database_retries_total", None, {"": "retry"}),
    ("nunatak_database_connections", "state", {"in use": "connection in use", "idle": "connection idle"}),
    ("nunatak_database_connections_limit", None, {"": "connection limit"}),
    ("nunatak_database_waiting", None, {"": "connection awaited"}),
)
# Upper bounds of the histogram's buckets in seconds: from a load out of memory to a commit that is retried. Above half
# a second an operator should investigate.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "PATCH", "PUT", "OPTIONS"})
OTHER_METHOD = "OTHER"  # clients may send any method; each would be a time series kept for ever
_LE = [*map(str, BOUNDS), "+Inf"]


class Metrics(Collector):
    """Counts requests; reads all other values when it is scraped."""

    def __init__(
        self,
        database: Callable[[], Mapping[str, int]],
        objects: Callable[[], Mapping[str, int]],
        cache: Callable[[], int],
        written_bytes: Callable[[], int],
        audit_dropped: Callable[[], int] = lambda: 0,
        spool_dropped: Callable[[], int] = lambda: 0,
        credentials: VendingCounts | None = None,
    ) -> None:
        # By operation, method and status: the number of requests in each bucket, then the sum of their seconds.
        self._requests: dict[tuple[str, str, int], list[float]] = {}
        self._database, self._objects, self._cache, self._written_bytes = database, objects, cache, written_bytes
        self._audit_dropped, self._spool_dropped = audit_dropped, spool_dropped
        self._credentials = credentials or VendingCounts()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def count(self, operation: str, method: str, status: int, seconds: float) -> None:
        entry = self._requests.get((operation, method, status))
        if entry is None:
            # The look-up before uses the method as sent, so that the hot path does not check it against METHODS.
            label = (operation, method if method in METHODS else OTHER_METHOD, status)
            entry = self._requests.setdefault(label, [0.0] * (len(_LE) + 1))
        entry[bisect_left(BOUNDS, seconds)] += 1
        entry[-1] += seconds

    def collect(self) -> Iterable[Metric]:
        yield from self._of_requests()
        counts = self._database()
        for name, label, keys in _OF_DATABASE:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name.removesuffix("_total"), _MEANING[name], labels=[label] if label else [])
            for labelled, key in keys.items():
                family.add_metric([labelled] if label else [], counts.get(key, 0))
            yield family
        operations = CounterMetricFamily(
            "nunatak_object_operations", _MEANING["nunatak_object_operations_total"], labels=["operation"]
        )
        for name, value in self._objects().items():
            operations.add_metric([name], value)
        yield operations
        written = "nunatak_metadata_written_bytes"
        yield CounterMetricFamily(written, _MEANING[f"{written}_total"], value=self._written_bytes())
        yield from self._of_credentials()
        yield GaugeMetricFamily("nunatak_cache_bytes", _MEANING["nunatak_cache_bytes"], value=self._cache())
        for name, dropped in (
            ("nunatak_audit_dropped", self._audit_dropped),
            ("nunatak_spool_dropped", self._spool_dropped),
        ):
            yield CounterMetricFamily(name, _MEANING[f"{name}_total"], value=dropped())

    def _of_requests(self) -> Iterable[Metric]:
        labels = ["operation", "method", "status"]
        requests = CounterMetricFamily("nunatak_requests", _MEANING["nunatak_requests_total"], labels=labels)
        by_operation: dict[str, list[float]] = {}
        for (operation, method, status), entry in list(self._requests.items()):
            requests.add_metric([operation, method, str(status)], sum(entry[:-1]))
            summed = by_operation.get(operation)
            by_operation[operation] = entry if summed is None else [a + b for a, b in zip(summed, entry, strict=True)]
        yield requests
        seconds = HistogramMetricFamily(
            "nunatak_request_seconds", _MEANING["nunatak_request_seconds"], labels=["operation"]
        )
        for operation, entry in by_operation.items():
            seconds.add_metric([operation], list(zip(_LE, accumulate(entry[:-1]), strict=True)), entry[-1])
        yield seconds

    def _of_credentials(self) -> Iterable[Metric]:
        counts = self._credentials
        for name, label, values in (
            ("nunatak_credentials_issued", "level", counts.issued),
            ("nunatak_credentials_refused", "reason", counts.refused),
        ):
            family = CounterMetricFamily(name, _MEANING[f"{name}_total"], labels=[label])
            for labelled, value in list(values.items()):
                family.add_metric([labelled], value)
            yield family
        cached = "nunatak_credentials_cached"
        yield CounterMetricFamily(cached, _MEANING[f"{cached}_total"], value=counts.hits)
        seconds = HistogramMetricFamily("nunatak_credential_seconds", _MEANING["nunatak_credential_seconds"])
        le = [*map(str, VENDING_BOUNDS), "+Inf"]
        seconds.add_metric([], list(zip(le, accumulate(counts.seconds[:-1]), strict=True)), counts.seconds[-1])
        yield seconds

    def page(self) -> bytes:
        """Returns the page in Prometheus' text format."""
        return generate_latest(self._registry)
