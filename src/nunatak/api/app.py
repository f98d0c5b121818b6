"""The application: routes requests, replays stored responses for an Idempotency-Key, turns errors into responses."""

import asyncio
import functools
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from nunatak.access.audit_rows import ALLOWED, DENIED, origin_text
from nunatak.access.decisions import PolicyChanged
from nunatak.access.embedded import EmbeddedIdentity, WrongSecret
from nunatak.access.guard import Guard, Known
from nunatak.access.privileges import Privilege
from nunatak.access.securables import SERVER
from nunatak.access.sessions import Proof
from nunatak.access.setup import AccessSetup
from nunatak.access.sigv4 import EMPTY_SHA256
from nunatak.access.vault import Vault
from nunatak.addresses import network_of
from nunatak.api.admission import admit, require_current
from nunatak.api.bodies import Body, BodyRoom, Receive
from nunatak.api.http import (
    COMPRESS_FROM_BYTES,
    STRANGER,
    Request,
    RequestHead,
    Response,
    choose_encoding,
    compress,
    decode_segment,
    error_response,
)
from nunatak.api.paging import Tokens
from nunatak.api.request_events import spool_unchanged
from nunatak.api.request_limits import InFlight, Rates
from nunatak.api.route import Route
from nunatak.api.router import Match, Router
from nunatak.api.routes import endpoints
from nunatak.api.tables import replay_response, require_to_read, revoked_by_itself
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.commit_contract import Progress
from nunatak.catalog.write import save_answer
from nunatak.database.records import StoredResponse
from nunatak.database.store import KeyTaken
from nunatak.errors import (
    BadRequest,
    CatalogError,
    Forbidden,
    InternalError,
    NotAuthenticated,
    NotFound,
    OutcomeUnknown,
    ServiceUnavailable,
    Unprocessable,
)
from nunatak.events.audit_buffer import AuditBuffer
from nunatak.events.metrics import Metrics

log = logging.getLogger(__name__)

POLICY_TRIES = 5  # attempts to serve a request during which no rights change
METRICS_PAGES_A_SECOND = 10
LARGE_BODIES_IN_MEMORY = 16  # bodies of the largest size that fit in memory at once; one caller may use half of it
MAX_AGENT_LENGTH = 255  # characters of a User-Agent that an event keeps
IN_FLIGHT_SECONDS = 10.0  # how long a repeated request waits for the first one with its Idempotency-Key
_KEY = re.compile(r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")


@dataclass
class App:
    """The application that the HTTP server calls through `respond`; one per process."""

    catalog: Catalog
    tokens: Tokens
    metrics: Metrics
    max_body_bytes: int
    router: Router = field(default_factory=Router)
    endpoints: list[str] = field(default_factory=endpoints)
    in_flight: dict[tuple[str, str], "asyncio.Future[None]"] = field(default_factory=dict)
    metrics_page: Callable[[], Awaitable[bytes]] | None = None  # covers all workers, if there are several
    busy: InFlight = field(default_factory=lambda: InFlight(1_000_000))
    access_setup: AccessSetup | None = None  # None: no authentication
    rates: Rates | None = None
    audit: AuditBuffer | None = None  # denials, logins and reads; a change writes its own row
    audits_reads: bool = False
    vault: Vault | None = None
    distinct_errors: bool = False  # whether the setting error_types is `distinct`
    room: BodyRoom = field(init=False)
    _metrics_text: bytes = b""
    _quiet_until: float = 0.0  # monotonic; no 503 is logged before this time
    _metrics_made: list[float] = field(default_factory=list)  # monotonic times of the pages made in the last second

    def __post_init__(self) -> None:
        self.room = BodyRoom(
            LARGE_BODIES_IN_MEMORY * self.max_body_bytes, LARGE_BODIES_IN_MEMORY // 2 * self.max_body_bytes
        )

    @property
    def guard(self) -> Guard | None:
        return self.access_setup.guard if self.access_setup is not None else None

    @property
    def identity(self) -> EmbeddedIdentity | None:
        """The issuer of tokens, or None if this server issues none."""
        return self.access_setup.identity if self.access_setup is not None else None

    async def metrics_text(self) -> bytes:
        """Returns the Prometheus page; it is public, so beyond METRICS_PAGES_A_SECOND the last page is returned."""
        now = time.monotonic()
        self._metrics_made = [made for made in self._metrics_made if made > now - 1]
        if len(self._metrics_made) < METRICS_PAGES_A_SECOND:
            self._metrics_made.append(now)
            page = self.metrics.page() if self.metrics_page is None else await self.metrics_page()
            self._metrics_text = page
        return self._metrics_text

    async def respond(
        self,
        head: RequestHead,
        body: bytes | Receive,
        address: tuple[str, int] | None = None,
        certificate: str | None = None,
    ) -> Response:
        """Returns the response to a request with all of its headers; never raises.

        `body` is complete, or is received in parts. `address` is that of the peer, `certificate` the name in a client
        certificate that TLS has verified.
        """
        started = time.perf_counter()
        operation, content = "unknown", None
        try:
            host = self._host(address, head.headers)
            try:
                match = self.router.match(head.method, _decode_path(head.path))
            except CatalogError:
                self._take("", host)  # unknown paths count against the rate limit of the address, too
                raise
            route = match[0]
            operation = route.operation
            if route.mutates or self.access_setup is not None:  # without authentication a read never uses its body
                limit = min(route.body_bytes, self.max_body_bytes)
                content = Body(body, head.headers, self.room, self.busy, limit)
            if route.always:
                response = await self._serve(match, head, content, address, host, certificate)
            else:
                with self.busy:
                    response = await self._serve(match, head, content, address, host, certificate)
        except CatalogError as error:
            self._log(head, error)
            response = self._refusal(error)
        except RecursionError:
            response = self._refusal(BadRequest("Malformed request: nested too deeply"))
        except Exception as error:
            # A 4xx would tell the client that nothing was applied, which is not known after a bug: always answer 500.
            log.exception("%s %s failed", head.method[:20], head.path[:200])
            response = self._refusal(InternalError(f"Internal error: {type(error).__name__}"))
        finally:
            if content is not None:
                content.release()
        try:
            return await _finish_response(head.headers, response)
        finally:
            self.metrics.count(operation, head.method, response.status, time.perf_counter() - started)

    def _refusal(self, error: CatalogError) -> Response:
        return error_response(error, distinct=self.distinct_errors)

    def _log(self, head: RequestHead, error: CatalogError) -> None:
        """Logs 5xx errors with their traceback; 503 (busy, or no database) as one line, at most once a second."""
        if isinstance(error, ServiceUnavailable):
            now = time.monotonic()
            if now >= self._quiet_until:
                self._quiet_until = now + 1
                log.warning("%s %s: %s", head.method[:20], head.path[:200], error.message)
        elif error.status >= 500:
            log.error("%s %s: %s", head.method[:20], head.path[:200], error.message, exc_info=error)

    def _host(self, address: tuple[str, int] | None, headers: dict[bytes, bytes]) -> str:
        """Returns the client's address: the peer's, or the one that a trusted proxy forwards."""
        peer = address[0] if address is not None else ""
        return peer if self.access_setup is None else self.access_setup.proxies.client_address(peer, headers) or ""

    async def _serve(
        self,
        match: Match,
        head: RequestHead,
        body: Body | None,
        address: tuple[str, int] | None,
        host: str,
        certificate: str | None,
    ) -> Response:
        """Serves every request in the same order: authenticate, resolve the warehouse, check rights, call the handler.

        `known` is None without authentication (there is no guard) and on public routes. If any rights change meanwhile,
        the whole sequence is repeated, at most POLICY_TRIES times.
        """
        route, prefix, names = match
        guard = self.guard
        charged = ""  # whose share of requests and memory is used: the address, until the principal is known
        if body is not None:
            charged = network_of(host)
            body.assign_to(charged)
        if guard is not None and not route.always:  # other clients at its address must not block a health check
            self._take("", host)  # an unauthenticated client is rate-limited before any work is done for it
        for _ in range(POLICY_TRIES):
            known = None
            if guard is not None and route.privilege is not Privilege.PUBLIC:
                assert body is not None
                peer = address[0] if address is not None else None
                proof = Proof(head.method, head.path, head.query, head.headers, peer, certificate, body.sha256)
                known = await self._identify(guard, proof, host)
                charged = known.session.principal
            asked_warehouse = decode_segment(prefix) if prefix else ""
            warehouse = await self.catalog.load_warehouse(asked_warehouse)
            request = Request(self.catalog, warehouse, head.method, names, head.query, head.headers, self)
            request.asked_warehouse, request.host = asked_warehouse, host
            request.guard, request.known = guard, known
            request.caller = _caller(known, request, address, host)
            if guard is None or body is None or route.always:
                return await self._admit_and_handle(route, request, body)
            self.busy.take_share(charged)
            body.share_of = charged
            try:
                return await self._admit_and_handle(route, request, body)
            except PolicyChanged:
                guard.forget()
            finally:
                body.share_of = None
                self.busy.give_back_share(charged)
        raise ServiceUnavailable("Grants changed while the request was authorized; nothing was done")

    async def _admit_and_handle(self, route: Route, request: Request, body: Body | None) -> Response:
        """Checks the rights of an authenticated caller and calls the handler."""
        known = request.known
        if route.mutates:
            assert body is not None
            if known is not None:
                body.assign_to(known.session.principal)
                await _check_signed(known, body)
            request.body = await body.read(is_json=route.privilege is not Privilege.PUBLIC)
            return await self._mutate(route, request, body)
        if known is None:
            return await route.handler(request)
        await _check_signed(known, None)
        await admit(route, request)
        response = await route.handler(request)
        if self.audits_reads:
            self._note(request, route.operation, request.securable, ALLOWED)
        return response

    async def _identify(self, guard: Guard, proof: Proof, host: str) -> Known:
        try:
            known = await guard.identify(proof)
        except NotAuthenticated as error:
            self.note_failed_login(error, "authenticate", host)
            raise
        self._take(known.session.principal, None)
        return known

    def note_failed_login(self, error: NotAuthenticated, action: str, host: str) -> None:
        """Records a failed login: one audit row per minute for each address and each principal with a wrong secret."""
        if self.audit is not None:
            principal = error.principal if isinstance(error, WrongSecret) else ""
            self.audit.sum_up(principal, action, SERVER, DENIED, origin_text(network_of(host) or None, (), None))

    def note_issued_token(self, request: Request, principal: str) -> None:
        if self.audit is not None:
            agent = request.header(b"user-agent")
            origin = origin_text(request.host or None, (), agent)
            self.audit.note(principal, "getToken", SERVER, ALLOWED, origin, request.header(b"x-request-id"))

    def _take(self, principal: str, address: str | None) -> None:
        refusal = self.rates.take(principal, address) if self.rates is not None else None
        if refusal is not None:
            raise refusal.error()

    def note_denial(self, request: Request, privileges: list[str], securable: str) -> None:
        self._note(request, ",".join(privileges), securable, DENIED)

    def _note(self, request: Request, action: str, securable: str, outcome: str) -> None:
        if self.audit is not None:
            caller = request.caller
            request_id = request.header(b"x-request-id")
            self.audit.note(caller.principal, action, securable, outcome, caller.origin, request_id)

    async def _mutate(self, route: Route, request: Request, body: Body) -> Response:
        """Calls the handler, or replays the stored response if the request repeats an Idempotency-Key."""
        request_id, agent = request.header(b"x-request-id"), request.header(b"user-agent")
        key = request.header(b"idempotency-key")
        digest = await body.digest(_resource(route, request), request.query_string)
        if key is not None and not _KEY.match(key):
            raise BadRequest(f"Invalid Idempotency-Key: {key[:50]!r} is not a UUID")
        request.caller = msgspec.structs.replace(
            request.caller,
            request_id=request_id,
            key=key.lower() if key is not None else None,
            request_hash=digest,
            client=agent[:MAX_AGENT_LENGTH] if agent is not None else None,
            progress=Progress(time.perf_counter()),
        )
        if key is not None:
            return await self._once(route, request)
        await admit(route, request)
        return await _call_handler(route, request)

    async def _once(self, route: Route, request: Request) -> Response:
        caller = request.caller
        assert caller.key is not None
        mark = (caller.principal, caller.key)  # two principals may use the same key
        # Several requests may wait for one that fails: the first to wake up runs next, and the others wait for it.
        deadline = time.monotonic() + IN_FLIGHT_SECONDS
        while (running := self.in_flight.get(mark)) is not None:
            done, _ = await asyncio.wait([running], timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                raise OutcomeUnknown("The first request with this Idempotency-Key is still running")
        # Registered before the database is queried: other requests with this key must wait during the query, too.
        self.in_flight[mark] = asyncio.get_running_loop().create_future()
        try:
            saved = await self.catalog.store.find_answer(caller.principal, caller.key, self.catalog.now_ms())
            if saved is None:
                try:
                    return await self._first(route, request)
                except KeyTaken:  # by another server, which does not share `in_flight`; nothing was done here
                    saved = await self.catalog.store.find_answer(caller.principal, caller.key, self.catalog.now_ms())
                    if saved is None:  # the other server has the key and has not finished
                        raise
        finally:
            self.in_flight.pop(mark).set_result(None)
        if saved.request_hash != caller.request_hash:
            raise Unprocessable(
                "This Idempotency-Key was used for another request", hint="Use a new key for each operation."
            )
        return await self._again(route, request, saved.answer)

    async def _again(self, route: Route, request: Request, answer: StoredResponse) -> Response:
        """Replays a stored response after checking the caller's current rights.

        Without them the response says only that the request was carried out (OutcomeUnknown). A 403 or 404 would make
        the client delete the files of a commit that was applied.
        """
        try:
            if answer.metadata_location is not None:
                await require_to_read(route, request)
            else:
                await admit(route, request)
            await require_current(request)
        except (Forbidden, NotFound) as denial:
            if answer.status >= 400:
                raise  # nothing was done
            is_empty = answer.body is None and answer.metadata_location is None
            if not is_empty and not await revoked_by_itself(route, request):
                raise OutcomeUnknown(
                    "The request was applied, but the caller may no longer read its result"
                ) from denial
        return await replay_response(route, request, answer)

    async def _first(self, route: Route, request: Request) -> Response:
        """Calls the handler and stores a deterministic error; a success is stored in the transaction of its change.

        Denials by `admit` are not stored, because rights may change.
        """
        await admit(route, request)
        try:
            return await _call_handler(route, request)
        except CatalogError as error:
            if error.deterministic:
                answer = StoredResponse(error.status, body=self._refusal(error).body)
                await self.catalog.store.apply([save_answer(self.catalog, request.caller, answer)])
            raise


async def _finish_response(asked: dict[bytes, bytes], response: Response) -> Response:
    """Returns the response with the headers that depend on the request, compressed if the client accepts it."""
    body, headers = response.body, response.headers
    if len(body) >= COMPRESS_FROM_BYTES and b"accept-encoding" in asked:
        encoding = choose_encoding(asked[b"accept-encoding"].decode("latin-1"))
        if encoding is not None:
            body = await _compressed_body(response, encoding)
            headers += ((b"content-encoding", encoding.encode("ascii")), (b"vary", b"accept-encoding"))
    request_id = asked.get(b"x-request-id")
    if request_id is not None and len(request_id) <= 200:  # a longer one is not echoed
        headers += ((b"x-request-id", request_id),)
    if response.status not in (204, 304):
        headers += ((b"content-length", b"%d" % len(body)),)
    return Response(response.status, body, headers)


async def _compressed_body(response: Response, encoding: str) -> bytes:
    """Returns the compressed body; cached with the response it belongs to, so that a hot table is compressed once."""
    if response.packed is not None and encoding in response.packed:
        return response.packed[encoding]
    packed = await asyncio.get_running_loop().run_in_executor(None, compress, response.body, encoding)
    if response.packed is not None:
        response.packed[encoding] = packed
    return packed


async def _call_handler(route: Route, request: Request) -> Response:
    """Calls the handler; an error becomes OutcomeUnknown if its status would deny a change that may be applied."""
    try:
        response = await route.handler(request)
    except CatalogError as error:
        if request.caller.progress.may_answer(error.status):
            spool_unchanged(route, request, error.status, error)
            raise
        unknown = OutcomeUnknown(f"The change was sent to the database, then the request failed: {error.message}")
        spool_unchanged(route, request, unknown.status, unknown)
        raise unknown from error
    if not request.caller.progress.changed:
        spool_unchanged(route, request, response.status)
    return response


def _caller(known: Known | None, request: Request, address: tuple[str, int] | None, host: str) -> Caller:
    if known is None:
        return Caller(address=address) if address is not None else STRANGER
    origin = known.origin(host, request.headers.get(b"user-agent", b""))
    return Caller(
        known.session.principal,
        address=address,
        policy=known.version,
        owns=True,
        origin=origin,
        rights=functools.partial(_rights, request.guard, known),
    )


async def _rights(guard: Guard | None, known: Known, securable: str) -> int:
    """As `Request.rights`, without a reference to the request: `Request.caller` holds this function, and a reference
    cycle would leave both to the garbage collector."""
    assert guard is not None
    (held,) = await guard.ask(known, [securable])
    return held


async def _check_signed(known: Known | None, body: Body | None) -> None:
    """Checks that a signature which covers the body matches the body that was sent; raises NotAuthenticated."""
    if known is None or known.session.body_sha256 is None:
        return
    if (EMPTY_SHA256 if body is None else await body.sha256()) != known.session.body_sha256:
        raise NotAuthenticated("The signature does not match the request body")


def _resource(route: Route, request: Request) -> bytes:
    """Returns what identifies the target of a request; the same for all accepted paths to it."""
    return "\0".join((route.operation, request.warehouse.name, *request.path_names)).encode()


def _decode_path(raw_path: bytes) -> str:
    """Returns the path as text; bytes that are not percent-encoded are decoded as UTF-8. Raises BadRequest."""
    try:
        return raw_path.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("Malformed path: not valid UTF-8", hint="Percent-encode names in a path.") from error
