"""Policies in the database: reads them, and returns each change as a list of writes with its audit row."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from nunatak.access import securables
from nunatak.access.administration import Actor, audit_change
from nunatak.database.records import Change, Write
from nunatak.database.store import Store
from nunatak.errors import NotFound
from nunatak.maintenance.policies import AnyPolicy, Attached, encode_policy, parse_policy

EVERY_POLICY = 1_000_000


def set_policy(actor: Actor, securable: str, policy: AnyPolicy) -> list[Change]:
    """Returns the changes that set a policy; replaces one of the same type on the same securable."""
    text = encode_policy(policy).decode()
    values = {
        "securable": securable,
        "type": policy.type,
        "policy": text,
        "changed_by": actor.principal,
        "changed_ms": actor.at_ms,
    }
    row = audit_change(actor, "set-policy", securable, {"policy": msgspec.json.decode(text)})
    return [Write("set_maintenance_policy", values), row]


def drop_policy(actor: Actor, securable: str, policy_type: str) -> list[Change]:
    gone = NotFound(
        f"No {policy_type} policy is set on {securables.format_securable(securable)}",
        hint="`nunatak policy show` shows where the policy that applies is set.",
    )
    values = {"securable": securable, "type": policy_type}
    row = audit_change(actor, "drop-policy", securable, {"type": policy_type})
    return [Write("drop_maintenance_policy", values, gone), row]


async def policies_around(store: Store, securable: str) -> list[Attached]:
    """Returns the policies set on the securable and on its ancestors."""
    around = msgspec.json.encode(securables.chain(securable)).decode()
    return _attached_policies(await store.rows("policies_at", {"securables": around}))


async def policies_inside(
    store: Store, securable: str, after: tuple[str, str] = ("", ""), limit: int = EVERY_POLICY
) -> list[Attached]:
    """Returns the policies on the securable and inside it, in order; `after` is the last one's securable and type."""
    values = {
        "securable": securable,
        "behind": securables.behind(securable),
        "after_securable": after[0],
        "after_type": after[1],
        "limit": limit,
    }
    return _attached_policies(await store.rows("policies_inside", values))


def _attached_policies(rows: Iterable[Sequence[Any]]) -> list[Attached]:
    return [Attached(row[0], parse_policy(row[2]), row[3], row[4]) for row in rows]
