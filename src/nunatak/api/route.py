"""One row of the route table, as a value; the rows are in routes.py and management_routes.py."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nunatak.access.privileges import Privilege, Securable
from nunatak.api.http import Request, Response
from nunatak.api.needs import Needs, as_declared

# What may follow /v1 without a prefix; a warehouse of such a name could not be addressed.
TOP_WORDS = frozenset({"v1", "config", "oauth", "namespaces", "tables", "views", "transactions", "search"})

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """One operation. `privilege` on `securable` is required, and all that `needs` finds in the request.

    `endpoint` means that /v1/config names it; `reads_pointer` that its handler compares the version of the rights,
    which it reads along with the pointer.
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

    @property
    def mutates(self) -> bool:
        return self.method in ("POST", "DELETE", "PATCH")
