"""Handler of the table health route."""

import asyncio

from msgspec import UNSET

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api import maintenance_wire as wire
from nunatak.api.http import Request
from nunatak.api.paging import list_of
from nunatak.api.route import handler
from nunatak.api.securable_parameter import require_namespace, resolve_securable, tables_in
from nunatak.errors import NoSuchTable
from nunatak.iceberg.identifiers import Identifier
from nunatak.maintenance.facts import Facts
from nunatak.maintenance.survey import UNREADABLE, look, subject_of
from nunatak.maintenance.table_health import Check, Health, health_of

MAX_PAGE_SIZE = 200  # tables whose metadata one request reads
MAX_DEEP_PAGE_SIZE = 10  # tables whose manifests one request reads
AT_ONCE = 8  # tables that one request reads concurrently


@handler
async def load_health(request: Request) -> wire.HealthResponse:
    """Returns the health of one table, or of a page of readable tables in a namespace or a warehouse."""
    place = await resolve_securable(request, request.query.get("securable"))
    deep = request.flag("deep")
    if place.name is not None:
        facts, health = await _examine_table(request, place.identifier, deep)
        return wire.HealthResponse([_table(place.securable, facts, health)])
    await require_namespace(request, place)
    resource = list_of(request, "health", place.securable)
    page = request.context.tokens.page(resource, request.query)
    limit = min(page.limit, MAX_DEEP_PAGE_SIZE if deep else MAX_PAGE_SIZE)
    names, following = await tables_in(request, place, Privilege.TABLE_READ_META, page.after, limit)
    tickets = asyncio.Semaphore(AT_ONCE)
    tables = await asyncio.gather(*(_health_of(request, each, deep, tickets) for each in names))
    token = request.context.tokens.after(resource, following)
    return wire.HealthResponse([each for each in tables if each is not None], next_page_token=token)


async def _health_of(
    request: Request, identifier: Identifier, deep: bool, tickets: asyncio.Semaphore
) -> wire.TableHealth | None:
    """Returns the health of a table, or its error, which must not hide the others; None if it is a view or dropped."""
    securable = securables.entry(request.warehouse.name, identifier.namespace, identifier.name)
    async with tickets:
        try:
            facts, health = await _examine_table(request, identifier, deep)
        except NoSuchTable:
            return None
        except UNREADABLE as error:
            return wire.TableHealth(securable=securables.format_securable(securable), error=error.message)
    return _table(securable, facts, health)


async def _examine_table(request: Request, identifier: Identifier, deep: bool) -> tuple[Facts, Health]:
    catalog = request.catalog
    facts = await look(catalog, request.warehouse, identifier, deep=deep)
    return facts, health_of(facts, subject_of(catalog, request.warehouse, identifier), catalog.now_ms())


def _table(securable: str, facts: Facts, health: Health) -> wire.TableHealth:
    return wire.TableHealth(
        securable=securables.format_securable(securable),
        score=health.score,
        facts=table_facts(facts),
        checks=[_check(each) for each in health.checks],
    )


def table_facts(facts: Facts) -> wire.TableFacts:
    return wire.TableFacts(
        table_uuid=facts.table_uuid,
        snapshot_id=facts.snapshot_id,
        data_files=facts.data_files,
        data_bytes=facts.data_bytes,
        delete_files=facts.delete_files,
        records=facts.records,
        manifests=facts.manifests,
        snapshots=len(facts.snapshots),
        metadata_bytes=facts.metadata_bytes,
        metadata_files=facts.metadata_files,
        target_file_size_bytes=facts.target_bytes,
        partitions=UNSET if facts.layout is None else facts.layout.partitions,
        files_by_size=UNSET if facts.layout is None else list(facts.layout.histogram),
    )


def _check(check: Check) -> wire.Check:
    return wire.Check(
        check=check.name,
        value=None if check.value is None else round(check.value, 2),
        limit=check.limit,
        unit=check.unit,
        points=check.points,
        most_points=check.most,
        exact=check.exact,
        reason=check.reason,
        fix=check.fix,
    )
