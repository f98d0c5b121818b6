"""The OAuth token endpoint (client_credentials and token-exchange) and the JWKS document.

Clients parse errors of this endpoint as OAuth errors, where `error` is a string. The Iceberg error envelope has an
object of that name, so its `message`, `type` and `code` are siblings of the string instead. Responses for which OAuth
has no error code, such as 429, use the envelope.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl

from nunatak.access.credentials import API_KEY_PREFIX, StoredCredential, split_api_key
from nunatak.access.embedded import EmbeddedIdentity, bearer_text
from nunatak.access.scopes import Scope, ScopeRefused, format_scope, narrow_scope, parse_scope
from nunatak.addresses import network_of
from nunatak.api.http import Request, Response, error_response, json_response
from nunatak.api.wire import KeySet, TokenError, TokenResponse
from nunatak.errors import (
    BadRequest,
    CatalogError,
    MethodNotAllowed,
    NotAuthenticated,
    NotFound,
    TooManyRequests,
    status_and_type,
)
from nunatak.secret import Secret

CLIENT_CREDENTIALS = "client_credentials"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
TOKEN_TYPES = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt")

MAX_FIELDS = 32
MAX_ESCAPES = 1000  # ids, secrets and tokens need a few; decoding takes time per escape
MAX_SECRET = 16 * 1024
MAX_CLIENT_ID = 128
JWKS_SECONDS = 300

# RFC 6749, section 5.1: a response with a token must not be cached.
NOT_KEPT = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
CHALLENGE = (b"www-authenticate", b'Basic realm="nunatak"')

Word = Literal["invalid_request", "invalid_client", "unsupported_grant_type", "invalid_scope"]


class TokenRefused(Exception):
    """A refused token request for which OAuth has an error code, `word`."""

    def __init__(self, word: Word, error: CatalogError) -> None:
        super().__init__(word)
        self.word = word
        self.error = error


@dataclass(frozen=True)
class OAuthClient:
    """The client id that a request claims, and its secret; not verified."""

    client_id: str
    secret: Secret


@dataclass(frozen=True)
class ParsedTokenRequest:
    """The form and the Authorization header, parsed but not verified."""

    form: dict[str, str]
    client: OAuthClient | None
    bearer: str | None
    address: str  # the client's address, or its network

    @property
    def origin(self) -> tuple[str, str]:
        """The client id and address by which failed requests are throttled."""
        return (self.client.client_id if self.client else "", self.address)


async def post_token(request: Request) -> Response:
    """POST /v1/oauth/tokens: issues a token."""
    identity = _identity(request)
    try:
        asked = _parse_form(request)
        # Before the secret is verified: a throttled client must not learn whether its guess was right.
        if (wait_ms := identity.throttle.wait_ms(*asked.origin)) > 0:
            request.context.note_failed_login(
                NotAuthenticated("Too many failed token requests"), "getToken", request.host
            )
            return _slow_down(wait_ms)
        try:
            credential, scope = await _grant_token(identity, asked)
        except TokenRefused as refusal:
            if isinstance(refusal.error, NotAuthenticated):
                identity.throttle.failed(*asked.origin)
                request.context.note_failed_login(refusal.error, "getToken", request.host)
            raise
        identity.throttle.succeeded(*asked.origin)
        token, seconds = await identity.issue(credential, scope)
        request.context.note_issued_token(request, credential.principal)
    except TokenRefused as refusal:
        return _refusal(refusal, distinct=request.context.distinct_errors)
    answer = TokenResponse(
        access_token=token, expires_in=seconds, issued_token_type=ACCESS_TOKEN, scope=format_scope(scope)
    )
    return json_response(answer, *NOT_KEPT)


async def explain_token(request: Request) -> Response:
    """GET /v1/oauth/tokens: raises MethodNotAllowed with a hint, for users who open the URL in a browser."""
    error = MethodNotAllowed("Token requests use POST", allowed="POST")
    error.hint = (
        f"POST a form with grant_type={CLIENT_CREDENTIALS}, client_id, client_secret and scope=catalog; "
        "the id and secret may be sent with HTTP Basic instead."
    )
    raise error


async def get_keys(request: Request) -> Response:
    """GET /.well-known/jwks.json: the public keys that verify our tokens."""
    keys = await _identity(request).tokens.jwks()
    kept = (b"cache-control", f"public, max-age={JWKS_SECONDS}".encode("ascii"))
    return json_response(KeySet(keys["keys"]), kept)


def _identity(request: Request) -> EmbeddedIdentity:
    identity: EmbeddedIdentity | None = request.context.identity
    if identity is None:
        raise NotFound(
            "This server issues no tokens",
            hint="Take `credential` out of the client's configuration, or set `auth` of the server to embedded.",
        )
    return identity


async def _grant_token(identity: EmbeddedIdentity, asked: ParsedTokenRequest) -> tuple[StoredCredential, Scope]:
    """Returns the credential that a token may be issued for, and its scope; raises TokenRefused."""
    grant = asked.form.get("grant_type")
    if grant == CLIENT_CREDENTIALS:
        return await _for_client(identity, asked)
    if grant == TOKEN_EXCHANGE:
        return await _for_token(identity, asked)
    if grant is None:
        raise TokenRefused("invalid_request", BadRequest("grant_type is missing", hint=f"Send {CLIENT_CREDENTIALS}."))
    raise TokenRefused(
        "unsupported_grant_type",
        BadRequest(f"Unsupported grant_type: {grant[:100]!r}", hint=f"Send {CLIENT_CREDENTIALS} or {TOKEN_EXCHANGE}."),
    )


async def _for_client(identity: EmbeddedIdentity, asked: ParsedTokenRequest) -> tuple[StoredCredential, Scope]:
    if asked.client is None:
        hint = "Send client_id and client_secret, in the form or with HTTP Basic."
        raise TokenRefused("invalid_client", NotAuthenticated("The request has no client id and secret", hint=hint))
    credential = await _authenticate_client(identity, asked.client)
    return credential, _scope(asked, credential, credential.limit)


async def _for_token(identity: EmbeddedIdentity, asked: ParsedTokenRequest) -> tuple[StoredCredential, Scope]:
    """Exchanges one of our tokens for a new one of the same principal, never wider; an actor token is ignored."""
    subject = asked.form.get("subject_token", "")
    if asked.form.get("subject_token_type", ACCESS_TOKEN) not in TOKEN_TYPES or not subject:
        raise TokenRefused(
            "invalid_request",
            BadRequest("The subject token must be an access token of this server", hint=f"Its type is {ACCESS_TOKEN}."),
        )
    if asked.form.get("requested_token_type", ACCESS_TOKEN) not in TOKEN_TYPES:
        raise TokenRefused("invalid_request", BadRequest(f"Only {ACCESS_TOKEN} can be requested"))
    if asked.client is not None:
        credential = await _authenticate_client(identity, asked.client)
        asking, (principal, held) = credential, await _old_token(identity, subject)
    else:
        credential, held = await _live_token(identity, subject)
        asking, principal = credential, credential.principal
        if asked.bearer is not None and asked.bearer != subject:
            asking, _ = await _live_token(identity, asked.bearer, word="invalid_client")
    if asking.principal != principal:
        raise TokenRefused("invalid_request", NotAuthenticated("The subject token belongs to another principal"))
    return credential, _scope(asked, credential, held)


async def _authenticate_client(identity: EmbeddedIdentity, client: OAuthClient) -> StoredCredential:
    secret = client.secret.reveal()
    try:
        if not client.client_id and split_api_key(secret) is not None:
            return (await identity.check_api_key(secret)).credential
        return await identity.check_client(client.client_id, secret)
    except NotAuthenticated as error:
        raise TokenRefused("invalid_client", error) from error


async def _old_token(identity: EmbeddedIdentity, text: str) -> tuple[str, Scope]:
    """Returns the principal and the scope of a token that may have expired."""
    # Java's client sends an expired token with its secret after a long pause; the secret alone would get it a token.
    try:
        token = await identity.tokens.verify(text, expired_too=True)
    except NotAuthenticated as error:
        raise TokenRefused("invalid_request", error) from error
    return token.sub, token.allows


async def _live_token(
    identity: EmbeddedIdentity, text: str, *, word: Word = "invalid_request"
) -> tuple[StoredCredential, Scope]:
    """Returns credential and scope of a valid token, or of an API key, which Java's client exchanges after an hour."""
    try:
        checked = identity.check_api_key if text.startswith(API_KEY_PREFIX) else identity.check_token
        bearer = await checked(text)
    except NotAuthenticated as error:
        raise TokenRefused(word, error) from error
    return bearer.credential, bearer.scope


def _scope(asked: ParsedTokenRequest, credential: StoredCredential, held: Scope) -> Scope:
    """Returns the requested scope, else `held`; raises TokenRefused if it is wider than `held` or the credential's."""
    try:
        wanted = parse_scope(asked.form.get("scope", ""))
        if wanted is not None and not wanted <= frozenset(credential.roles):
            missing = min(wanted - frozenset(credential.roles))
            raise ScopeRefused(f"Invalid scope: {credential.principal} does not have the role {missing[:200]}")
        return narrow_scope(narrow_scope(wanted, held), credential.limit)
    except ScopeRefused as error:
        raise TokenRefused("invalid_scope", error) from error


def _parse_form(request: Request) -> ParsedTokenRequest:
    form = _form(request)
    authorization = request.headers.get(b"authorization")
    basic, in_form = _basic(authorization), _client_of(form)
    if basic is not None and in_form is not None and basic != in_form:
        raise TokenRefused("invalid_request", BadRequest("HTTP Basic and the form name different clients"))
    return ParsedTokenRequest(form, basic or in_form, bearer_text(authorization), network_of(request.host))


def _form(request: Request) -> dict[str, str]:
    kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if kind not in ("", "application/x-www-form-urlencoded"):
        raise _malformed_request("it is not application/x-www-form-urlencoded")
    if request.body.count(b"%") > MAX_ESCAPES:
        raise _malformed_request(f"it holds more than {MAX_ESCAPES} percent signs")
    try:
        text = request.body.decode("utf-8")
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:  # not chained: its text may contain the body, and so a secret
        raise _malformed_request(f"it is not a form ({type(error).__name__})") from None
    form = dict(fields)
    if len(form) != len(fields):
        raise _malformed_request("it names a parameter twice")
    return form


def _basic(authorization: bytes | None) -> OAuthClient | None:
    scheme, _, encoded = (authorization or b"").strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError):  # not chained: the error may hold the secret
        raise _malformed_request("its Authorization header is not HTTP Basic") from None
    if not colon:
        raise _malformed_request("its Authorization header has no colon between id and secret")
    return _client(name, secret)


def _client_of(form: dict[str, str]) -> OAuthClient | None:
    secret = form.get("client_secret")
    return None if secret is None else _client(form.get("client_id", ""), secret)


def _client(client_id: str, secret: str) -> OAuthClient:
    if len(client_id) > MAX_CLIENT_ID or len(secret) > MAX_SECRET or not client_id.isprintable():
        raise TokenRefused("invalid_client", NotAuthenticated("Unknown client id"))
    return OAuthClient(client_id, Secret(secret))


def _malformed_request(why: str) -> TokenRefused:
    return TokenRefused("invalid_request", BadRequest(f"Malformed token request: {why}"))


def _slow_down(wait_ms: int) -> Response:
    seconds = -(-wait_ms // 1000)
    answer = error_response(
        TooManyRequests("Too many failed token requests", hint=f"Check the client's secret; wait {seconds} seconds.")
    )
    # The error class brings a Retry-After of its own: the throttle knows the exact one.
    kept = tuple(header for header in answer.headers if header[0] != b"retry-after")
    return Response(answer.status, answer.body, (*kept, (b"retry-after", str(seconds).encode("ascii")), *NOT_KEPT))


def _refusal(refusal: TokenRefused, *, distinct: bool) -> Response:
    error = refusal.error
    # RFC 6749, section 5.2: 401 is for a client that failed to authenticate, 400 for everything else.
    status = 401 if refusal.word == "invalid_client" else 400
    kind = NotAuthenticated if status == 401 else BadRequest
    description = error.message if error.hint is None else f"{error.message}. {error.hint}"
    body = TokenError(
        error=refusal.word,
        error_description=description,
        message=description,
        type=status_and_type(kind(""), distinct=distinct)[1],
        code=status,
    )
    return json_response(body, *NOT_KEPT, *((CHALLENGE,) if status == 401 else ()), status=status)
