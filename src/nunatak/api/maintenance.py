"""Handlers of maintenance policies and plans."""

import msgspec

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api import maintenance_wire as wire
from nunatak.api.filtered_lists import only_seen
from nunatak.api.health import table_facts
from nunatak.api.http import Request
from nunatak.api.maintenance_wire import SetPolicyRequest
from nunatak.api.paging import list_of
from nunatak.api.route import handler
from nunatak.api.securable_parameter import SecurablePlace, require_namespace, resolve_securable, tables_in
from nunatak.catalog.pointers import not_found
from nunatak.catalog.write import write
from nunatak.database.records import Key, StoredResponse
from nunatak.errors import NoSuchTable
from nunatak.iceberg.identifiers import Identifier, to_jdbc
from nunatak.maintenance import policy_store
from nunatak.maintenance.planning import Decision
from nunatak.maintenance.policies import Attached, check_type, nearest, parse_policy
from nunatak.maintenance.survey import UNREADABLE, Planner, loads_of, look, subject_of

P = Privilege

MAX_PAGE_SIZE = 200  # tables that one request plans for


# Policies


@handler
async def list_policies(request: Request) -> wire.ListPoliciesResponse:
    """Lists the policies set on a securable and inside it."""
    place = await resolve_securable(request, request.query.get("securable"))
    resource = list_of(request, "policies", place.securable)
    page = request.context.tokens.page(resource, request.query)
    after = msgspec.json.decode(page.after, type=tuple[str, str]) if page.after else ("", "")
    # One row more than the page holds shows whether another page follows.
    found = await policy_store.policies_inside(request.catalog.store, place.securable, after, page.limit + 1)
    shown = await only_seen(request, found[: page.limit], lambda each: each.securable)
    last = _position(found[page.limit - 1]) if len(found) > page.limit else None
    token = request.context.tokens.after(resource, last)
    return wire.ListPoliciesResponse([_attached_policy(each) for each in shown], next_page_token=token)


def _position(last: Attached) -> str:
    return msgspec.json.encode((last.securable, last.policy.type)).decode()


@handler
async def effective_policies(request: Request) -> wire.EffectivePoliciesResponse:
    """Returns the policies in effect for a securable: the nearest one of each type."""
    place = await resolve_securable(request, request.query.get("securable"))
    around = await policy_store.policies_around(request.catalog.store, place.securable)
    found = nearest(around, place.securable)
    return wire.EffectivePoliciesResponse([_attached_policy(found[each]) for each in sorted(found)])


@handler
async def set_policy(request: Request) -> None:
    wanted = request.decode(SetPolicyRequest)
    place = await resolve_securable(request, wanted.securable)
    policy = parse_policy(bytes(wanted.policy))
    await _require(request, place)
    changes = policy_store.set_policy(request.actor, place.securable, policy)
    await write(request.catalog, request.caller, changes, StoredResponse(204))


@handler
async def drop_policy(request: Request) -> None:
    place = await resolve_securable(request, request.query.get("securable"))
    kind = check_type(request.query.get("type", ""))
    changes = policy_store.drop_policy(request.actor, place.securable, kind)
    await write(request.catalog, request.caller, changes, StoredResponse(204))


# Plans


@handler
async def plan_maintenance(request: Request) -> wire.PlanResponse:
    """Returns which jobs are due now and why or why not, for one table or a page of tables; starts none."""
    place = await resolve_securable(request, request.query.get("securable"))
    planner = await planner_for(request, place)
    if place.name is not None:
        return wire.PlanResponse([await _table_plan(request, planner, place.identifier)])
    await require_namespace(request, place)
    resource = list_of(request, "plan", place.securable)
    page = request.context.tokens.page(resource, request.query)
    limit = min(page.limit, MAX_PAGE_SIZE)
    names, following = await tables_in(request, place, P.TABLE_READ_META, page.after, limit)
    tables: list[wire.TablePlan] = []
    for name in names:
        try:
            tables.append(await _table_plan(request, planner, name))
        except NoSuchTable:  # a view, or dropped meanwhile
            continue
        except UNREADABLE as error:
            tables.append(wire.TablePlan(securable=_format_table(request, name), error=error.message))
    return wire.PlanResponse(tables, next_page_token=request.context.tokens.after(resource, following))


async def planner_for(request: Request, place: SecurablePlace) -> Planner:
    """Returns a planner with all policies that can apply to a table in `place`."""
    store = request.catalog.store
    policies = await policy_store.policies_around(store, place.securable)
    if place.name is None:
        policies += await policy_store.policies_inside(store, place.securable)
    return Planner(request.catalog, policies, await loads_of(request.catalog, request.catalog.now_ms()))


async def _table_plan(request: Request, planner: Planner, identifier: Identifier) -> wire.TablePlan:
    facts = await look(request.catalog, request.warehouse, identifier)
    subject = subject_of(request.catalog, request.warehouse, identifier)
    decisions = await planner.plan(subject, facts, request.catalog.now_ms())
    return wire.TablePlan(
        securable=_format_table(request, identifier),
        facts=table_facts(facts),
        decisions=[_decision(each) for each in decisions],
    )


# Shared helpers


async def _require(request: Request, place: SecurablePlace) -> None:
    """Checks that the securable exists; raises NotFound. A policy on a missing one would apply once it is created."""
    if place.name is None:
        await require_namespace(request, place)
        return
    key = Key(request.warehouse.name, to_jdbc(place.levels), place.name)
    if await request.catalog.store.find_kind(key) != "TABLE":
        raise await not_found(request.catalog, key, place.identifier, "TABLE")


def _format_table(request: Request, identifier: Identifier) -> str:
    return securables.format_securable(securables.entry(request.warehouse.name, identifier.namespace, identifier.name))


def _attached_policy(each: Attached) -> wire.AttachedPolicy:
    return wire.AttachedPolicy(
        securables.format_securable(each.securable), each.policy, each.changed_by, each.changed_ms
    )


def _decision(each: Decision) -> wire.Decision:
    return wire.Decision(
        type=each.type,
        state=each.state,
        because=each.text,
        policy_on=None if each.attached is None else securables.format_securable(each.attached.securable),
        measures=[wire.Measure(one.trigger, one.value, one.limit, one.is_reached) for one in each.measures],
        holds=[wire.Hold(one.because, one.text, one.until_ms) for one in each.holds],
        overridden_by=dict(each.overridden),
        expected=each.gains,
        job=each.spec,
    )
