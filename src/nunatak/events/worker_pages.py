"""Metrics of workers that share an address: the worker that is scraped fetches all pages and adds a worker label."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0  # a worker that does not answer in time is omitted from the page


def places_in(folder: Path, workers: int) -> list[Path]:
    """Returns the path of each worker's Unix socket for its page."""
    return [folder / f"{number}.sock" for number in range(workers)]


async def offer_page(place: Path, page: Callable[[], bytes]) -> asyncio.Server:
    """Serves this worker's page to the other workers."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(page())
            await writer.drain()
        writer.close()

    # Replaces a socket that a killed worker left behind.
    return await asyncio.start_unix_server(answer, place)


async def all_pages(places: Sequence[Path]) -> bytes:
    """Fetches the pages of all workers and merges them into one."""
    pages = await asyncio.gather(*(_page_of(place) for place in places))
    return merge_pages({place.stem: page for place, page in zip(places, pages, strict=True) if page})


async def _page_of(place: Path) -> bytes:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(place)
            with contextlib.closing(writer):
                return await reader.read()
    except (OSError, TimeoutError) as error:
        log.warning("worker %s gave no metrics: %r", place.stem, error)
        return b""


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merge_pages(pages: Mapping[str, bytes]) -> bytes:
    """Merges the workers' pages into one; each sample gets the label `worker`."""
    families: dict[str, Metric] = {}
    for worker, page in pages.items():
        for found in text_string_to_metric_families(page.decode()):
            whole = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
            for sample in found.samples:
                whole.samples.append(sample._replace(labels={**sample.labels, "worker": worker}))
    registry = CollectorRegistry()
    registry.register(_Collected(families.values()))
    return generate_latest(registry)
