"""The type of a row of the route table; the rows are in routes.py, management_routes.py and audit.py."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from nunatak.access.privileges import Privilege, Securable
from nunatak.api.encoded import Encoded, LoadResult
from nunatak.api.http import NO_CONTENT, Request, Response, json_response
from nunatak.api.required_privileges import Needs, as_declared
from nunatak.api.wire import ErrorResponse

# Segments that may follow /v1 without a prefix; a warehouse with such a name could not be addressed.
TOP_WORDS = frozenset({"v1", "config", "oauth", "namespaces", "tables", "views", "transactions", "search"})

SMALL_BODY = 64 * 1024  # a form, or a few names
REPORT_BODY = 256 * 1024  # the metrics report of one scan
SIGN_BODY = 4 * 1024 * 1024  # a delete of a thousand objects, as JSON text
DOCUMENT_BODY = 1024 * 1024  # policies, roles, the results of a job
ANY_BODY = 1 << 62  # as much as the setting max_body_bytes allows: schemas, snapshots and properties

Handler = Callable[[Request], Awaitable[Response]]
Value = TypeVar("Value")


def handler(answer: Callable[[Request], Awaitable[Value]]) -> Handler:
    """Makes a handler from a function that returns the value of the response, or None for 204.

    Its return type is the response type of its routes in the OpenAPI document.
    """

    @wraps(answer)
    async def respond(request: Request) -> Response:
        value = await answer(request)
        if isinstance(value, (Encoded, LoadResult)):
            return value.respond(request)
        return NO_CONTENT if value is None else json_response(value)

    return respond


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The OpenAPI description of a route besides its path, method, privilege and summary."""

    tag: str
    request: Any = None  # the type of the body
    response: Any = None  # the type of the response, for a handler that encodes it itself
    query: tuple[str, ...] = ()  # names of parameters
    errors: tuple[int, ...] = ()  # statuses that are not common to all routes
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    request_media_type: str = "application/json"
    media_type: str = "application/json"
    not_modified: bool = False
    refusals: tuple[Any, ...] = (ErrorResponse,)  # the types of an error's body
    succeeds: bool = True


@dataclass(frozen=True)
class Route:
    """One operation. It requires what `needs` derives from the request, by default `privilege` on `securable`.

    `endpoint`: /v1/config lists it. `reads_pointer`: its handler compares the policy version, which it reads with the
    pointer. `body_bytes`: the largest body, before and after decompression. `always`: it is served however many
    requests are in flight.
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
    described: Operation = Operation(tag="")

    @property
    def response_type(self) -> Any:
        """The type of the body of a success; None if it has no body."""
        returned = get_type_hints(self.handler)["return"]
        if get_origin(returned) in (Encoded, LoadResult):
            return get_args(returned)[0]
        return self.described.response if returned is Response else None if returned is type(None) else returned

    @property
    def mutates(self) -> bool:
        return self.method in ("POST", "PUT", "DELETE", "PATCH")
