"""The route of the audit trail: records by time, filtered, on securables where the caller holds AUDIT_READ."""

from datetime import UTC, datetime

import msgspec

from nunatak.access import securables
from nunatak.access.privileges import Privilege, Securable, names_of
from nunatak.api.http import Request
from nunatak.api.management_wire import ListAuditResponse
from nunatak.api.paging import MAX_PAGE, list_of
from nunatak.api.required_privileges import Declared, Need
from nunatak.api.route import Operation, Route, handler
from nunatak.errors import BadRequest, Forbidden
from nunatak.events.audit_trail import Filter, Position, exported_line, search

PAGE = 100  # records, if the request gives no page size
ORDERS = {"newest": True, "oldest": False}


@handler
async def list_audit(request: Request) -> ListAuditResponse:
    """Returns a page of records, newest first by default; a page may be short although more follow."""
    wanted = filter_of(request)
    await _require(request, wanted.securable)
    newest_first = _newest_first(request)
    resource = list_of(request, "audit", msgspec.json.encode((wanted, newest_first)).decode())
    page = request.context.tokens.page(resource, request.query)
    position = msgspec.json.decode(page.after, type=Position) if page.after else None
    # Without paging parameters the limit is paging.EVERYTHING; the trail is long, so a page is returned all the same.
    records, position = await search(
        request.catalog.store,
        wanted,
        newest_first=newest_first,
        position=position,
        limit=page.limit if page.limit <= MAX_PAGE else PAGE,
    )
    token = None
    if position is not None:
        token = request.context.tokens.make(resource, msgspec.json.encode(position).decode())
    return ListAuditResponse([exported_line(record) for record in records], token)


def filter_of(request: Request) -> Filter:
    query = request.query
    return Filter(
        principal=query.get("principal"),
        action=query.get("action"),
        securable=securables.parse_securable(query.get("securable", "server")),
        outcome=query.get("outcome"),
        request_id=query.get("request-id"),
        since_ms=time_of("since", query.get("since")),
        until_ms=time_of("until", query.get("until")),
    )


def time_of(name: str, text: str | None) -> int | None:
    """Returns an ISO 8601 time in milliseconds; a time without a zone is UTC. Raises BadRequest."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise BadRequest(
            f"Invalid {name}: {text[:50]!r} is no time", hint="Write 2026-01-31 or 2026-01-31T12:00:00Z."
        ) from error


def _newest_first(request: Request) -> bool:
    order = request.query.get("order", "newest")
    if order not in ORDERS:
        raise BadRequest(f"Invalid order: {order[:50]!r} is neither newest nor oldest")
    return ORDERS[order]


async def _require(request: Request, securable: str) -> None:
    """Checks AUDIT_READ on the securable; raises Forbidden. Existence is not checked: it may have been dropped."""
    request.securable = securable
    needed = Privilege.AUDIT_READ
    if request.session is None or await request.rights(securable) & needed:
        return
    request.context.note_denial(request, names_of(needed), securable)
    raise Forbidden(
        f"Principal {request.session.principal} lacks AUDIT_READ on {securables.format_securable(securable)}",
        hint="Restrict it with ?securable=warehouse:NAME or namespace:WAREHOUSE/A/B where you hold it.",
    )


async def _of_handler(route: Declared, request: Request) -> list[Need]:
    """Requires nothing here: the securable is in the query, and the handler checks it."""
    return []


AUDIT_ROUTES = (
    Route(
        "listAudit",
        "GET",
        "/management/v1/audit",
        list_audit,
        Privilege.AUDIT_READ,
        Securable.SERVER,
        "What happened, by whom, and whether it was allowed",
        endpoint=False,
        needs=_of_handler,
        described=Operation(
            tag="Audit",
            query=(
                *("actor", "action", "securable", "outcome", "request-id", "since", "until", "order"),
                *("pageToken", "pageSize"),
            ),
        ),
    ),
)
