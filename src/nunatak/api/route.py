"""One row of the route table, as a value; the rows are in routes.py and management_routes.py."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nunatak.access.privileges import Privilege, Securable
from nunatak.api.http import Request, Response
from nunatak.api.needs import Needs, as_declared

# What may follow /v1 without a prefix; a warehouse of such a name could not be addressed.
TOP_WORDS = frozenset({"v1", "config", "oauth", "namespaces", "tables", "views", "transactions", "search"})

SMALL_BODY = 64 * 1024  # a form, or a few names
REPORT_BODY = 256 * 1024  # what an engine measured of one scan
DOCUMENT_BODY = 1024 * 1024  # policies, roles, the results of a job
ANY_BODY = 1 << 62  # as much as the setting max_body_bytes allows: schemas, snapshots and properties

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """One operation. `privilege` on `securable` is required, and all that `needs` finds in the request.

    `endpoint` means that /v1/config names it; `reads_pointer` that its handler compares the version of the rights,
    which it reads along with the pointer; `body_bytes` is the largest body it takes, before and after unpacking;
    `always` that it is answered however many requests are worked on.
    """

    operation: str
    method: str
    template: str
    handler: Handler
    privilege: Privilege
    securable: Securable
    summary: str
    endpoint: bool = True
    needs: Needs = as_declared
    reads_pointer: bool = False
    body_bytes: int = DOCUMENT_BODY
    always: bool = False

    @property
    def mutates(self) -> bool:
        return self.method in ("POST", "PUT", "DELETE", "PATCH")
