"""What the server counts about itself, in Prometheus' terms; counting costs the hot path one dictionary look-up."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Every metric once: name, kind and meaning; the reference page is made from it.
METRICS: tuple[tuple[str, str, str], ...] = (
    ("nunatak_requests_total", "counter", "Requests by operation, method and status."),
    ("nunatak_request_seconds_total", "counter", "Seconds spent answering, by operation, method and status."),
    ("nunatak_database_reads_total", "counter", "Statements read from the database."),
    ("nunatak_database_transactions_total", "counter", "Changes handed to the database."),
    ("nunatak_database_groups_total", "counter", "Database commits; several changes may share one."),
    ("nunatak_database_batches_total", "counter", "Statements for lookups and commits, which may carry several."),
    ("nunatak_database_batched_total", "counter", "Lookups and commits in those statements."),
    ("nunatak_database_retries_total", "counter", "Reads and changes tried again: a conflict, a lost connection."),
    ("nunatak_database_connections", "gauge", "Connections to the database, in use and idle."),
    ("nunatak_database_waiting", "gauge", "Requests that wait for a connection to become free."),
    ("nunatak_object_operations_total", "counter", "Reads, writes, deletes and stats of table files, by operation."),
    ("nunatak_cache_bytes", "gauge", "Bytes of metadata kept in memory."),
    ("nunatak_audit_dropped_total", "counter", "Reads and denials missing in the audit trail: too many at once."),
    ("nunatak_spool_dropped_total", "counter", "Records of telemetry that were lost: no room, or nobody ingests them."),
)
_MEANING = {name: meaning for name, _, meaning in METRICS}
# What a database counts, by the key under which it does: name, label, and the key for each value of the label. SQLite
# knows neither connections nor batches of this kind.
_OF_DATABASE: tuple[tuple[str, str | None, Mapping[str, str]], ...] = (
    ("nunatak_database_reads_total", None, {"": "read"}),
    ("nunatak_database_transactions_total", None, {"": "transaction"}),
    ("nunatak_database_groups_total", None, {"": "group"}),
    ("nunatak_database_batches_total", "of", {"lookups": "lookup batch", "commits": "commit batch"}),
    ("nunatak_database_batched_total", "of", {"lookups": "lookup member", "commits": "commit member"}),
    ("nunatak_database_retries_total", None, {"": "retry"}),
    ("nunatak_database_connections", "state", {"in use": "connection in use", "idle": "connection idle"}),
    ("nunatak_database_waiting", None, {"": "connection awaited"}),
)


class Metrics(Collector):
    """Counts requests; everything else is asked for when somebody looks."""

    def __init__(
        self,
        database: Callable[[], Mapping[str, int]],
        objects: Callable[[], Mapping[str, int]],
        cache: Callable[[], int],
        audit_dropped: Callable[[], int] = lambda: 0,
        spool_dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self._requests: dict[tuple[str, str, int], list[float]] = {}
        self._database, self._objects, self._cache = database, objects, cache
        self._audit_dropped, self._spool_dropped = audit_dropped, spool_dropped
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def count(self, operation: str, method: str, status: int, seconds: float) -> None:
        entry = self._requests.get((operation, method, status))
        if entry is None:
            entry = self._requests[(operation, method, status)] = [0.0, 0.0]
        entry[0] += 1
        entry[1] += seconds

    def collect(self) -> Iterable[Metric]:
        labels = ["operation", "method", "status"]
        requests = CounterMetricFamily("nunatak_requests", _MEANING["nunatak_requests_total"], labels=labels)
        seconds = CounterMetricFamily(
            "nunatak_request_seconds", _MEANING["nunatak_request_seconds_total"], labels=labels
        )
        for (operation, method, status), (count, spent) in list(self._requests.items()):
            requests.add_metric([operation, method, str(status)], count)
            seconds.add_metric([operation, method, str(status)], spent)
        yield requests
        yield seconds
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
        yield GaugeMetricFamily("nunatak_cache_bytes", _MEANING["nunatak_cache_bytes"], value=self._cache())
        for name, dropped in (
            ("nunatak_audit_dropped", self._audit_dropped),
            ("nunatak_spool_dropped", self._spool_dropped),
        ):
            yield CounterMetricFamily(name, _MEANING[f"{name}_total"], value=dropped())

    def page(self) -> bytes:
        """The text Prometheus scrapes."""
        return generate_latest(self._registry)
