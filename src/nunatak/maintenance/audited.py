"""The audit row of a change of policies or jobs."""

from collections.abc import Mapping

from nunatak.access.administration import Actor
from nunatak.access.audit_rows import audit_row
from nunatak.database.records import Write


def row_of(actor: Actor, action: str, securable: str, detail: Mapping[str, object]) -> Write:
    return audit_row(
        at_ms=actor.at_ms,
        principal=actor.principal,
        action=action,
        securable=securable,
        detail=detail,
        request_id=actor.request_id,
        origin=actor.origin,
    )
