"""Maintenance over HTTP: policies, and what they would have done now."""

from typing import Any

import msgspec

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api.health import facts_json
from nunatak.api.http import NO_CONTENT, Request, Response, json_response
from nunatak.api.management_wire import SetPolicyRequest
from nunatak.api.paging import list_of
from nunatak.api.places import Place, aim, require_namespace, tables_in
from nunatak.api.visible import only_seen
from nunatak.catalog.heads import missing
from nunatak.catalog.write import write
from nunatak.database.records import Answer, Key
from nunatak.errors import NoSuchTable
from nunatak.iceberg.identifiers import Identifier, to_jdbc
from nunatak.maintenance import policy_store
from nunatak.maintenance.planning import Decision
from nunatak.maintenance.policies import Attached, check_type, nearest, parsed
from nunatak.maintenance.survey import UNREADABLE, Planner, loads_of, look, subject_of

Json = dict[str, Any]
P = Privilege

LARGEST_PAGE = 200  # tables that one request plans for


# Policies


async def list_policies(request: Request) -> Response:
    """Those set on a place and inside it."""
    place = await aim(request, request.query.get("securable"))
    resource = list_of(request, "policies", place.securable)
    page = request.context.tokens.page(resource, request.query)
    after = msgspec.json.decode(page.after, type=tuple[str, str]) if page.after else ("", "")
    found = await policy_store.policies_inside(request.catalog.store, place.securable, after, page.limit + 1)
    shown = await only_seen(request, found[: page.limit], lambda each: each.securable)
    body: Json = {"policies": [_attached(each) for each in shown]}
    if len(found) > page.limit:
        last = found[page.limit - 1]
        token = msgspec.json.encode((last.securable, last.policy.type)).decode()
        body["next-page-token"] = request.context.tokens.make(resource, token)
    return json_response(body)


async def effective_policies(request: Request) -> Response:
    """Those that count for a place: of each type the nearest."""
    place = await aim(request, request.query.get("securable"))
    around = await policy_store.policies_around(request.catalog.store, place.securable)
    found = nearest(around, place.securable)
    return json_response({"policies": [_attached(found[each]) for each in sorted(found)]})


async def set_policy(request: Request) -> Response:
    wanted = request.decode(SetPolicyRequest)
    place = await aim(request, wanted.securable)
    policy = parsed(bytes(wanted.policy))
    await _require(request, place)
    changes = policy_store.set_policy(request.actor, place.securable, policy)
    await write(request.catalog, request.caller, changes, Answer(204))
    return NO_CONTENT


async def drop_policy(request: Request) -> Response:
    place = await aim(request, request.query.get("securable"))
    kind = check_type(request.query.get("type", ""))
    changes = policy_store.drop_policy(request.actor, place.securable, kind)
    await write(request.catalog, request.caller, changes, Answer(204))
    return NO_CONTENT


# Plans


async def plan_maintenance(request: Request) -> Response:
    """What is to be done now, and why or why not, of one table or a page of tables; nothing is begun."""
    place = await aim(request, request.query.get("securable"))
    planner = await planner_for(request, place)
    if place.name is not None:
        return json_response({"tables": [await _planned(request, planner, place.identifier)]})
    await require_namespace(request, place)
    resource = list_of(request, "plan", place.securable)
    page = request.context.tokens.page(resource, request.query)
    limit = min(page.limit, LARGEST_PAGE)
    names, following = await tables_in(request, place, P.TABLE_READ_META, page.after, limit)
    tables: list[Json] = []
    for name in names:
        try:
            tables.append(await _planned(request, planner, name))
        except NoSuchTable:  # a view, or dropped since
            continue
        except UNREADABLE as error:
            tables.append({"securable": _printed(request, name), "error": error.message})
    body: Json = {"tables": tables}
    if following is not None:
        body["next-page-token"] = request.context.tokens.make(resource, following)
    return json_response(body)


async def planner_for(request: Request, place: Place) -> Planner:
    """With the policies that may count for anything in the place."""
    store = request.catalog.store
    policies = await policy_store.policies_around(store, place.securable)
    if place.name is None:
        policies += await policy_store.policies_inside(store, place.securable)
    return Planner(request.catalog, policies, await loads_of(request.catalog, request.catalog.now_ms()))


async def _planned(request: Request, planner: Planner, identifier: Identifier) -> Json:
    facts = await look(request.catalog, request.warehouse, identifier)
    subject = subject_of(request.catalog, request.warehouse, identifier)
    decisions = await planner.plan(subject, facts, request.catalog.now_ms())
    return {
        "securable": _printed(request, identifier),
        "facts": facts_json(facts),
        "decisions": [_decision(each) for each in decisions],
    }


# What all have in common


async def _require(request: Request, place: Place) -> None:
    """A policy on what does not exist would surprise whoever creates it."""
    if place.name is None:
        await require_namespace(request, place)
        return
    key = Key(request.warehouse.name, to_jdbc(place.levels), place.name)
    if await request.catalog.store.find_kind(key) != "TABLE":
        raise await missing(request.catalog, key, place.identifier, "TABLE")


def _printed(request: Request, identifier: Identifier) -> str:
    return securables.printed(securables.entry(request.warehouse.name, identifier.namespace, identifier.name))


def _attached(each: Attached) -> Json:
    return {
        "securable": securables.printed(each.securable),
        "policy": each.policy,
        "changed-by": each.changed_by,
        "changed-ms": each.changed_ms,
    }


def _decision(each: Decision) -> Json:
    return {
        "type": each.type,
        "state": each.state,
        "because": each.text,
        "policy-on": None if each.attached is None else securables.printed(each.attached.securable),
        "measures": [
            {"trigger": one.trigger, "value": one.value, "limit": one.limit, "reached": one.is_reached}
            for one in each.measures
        ],
        "holds": [{"because": one.because, "text": one.text, "until-ms": one.until_ms} for one in each.holds],
        "overridden-by": dict(each.overridden),
        "expected": list(each.gains),
        "job": each.spec,
    }
