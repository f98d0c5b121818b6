"""The errors of the catalog: one class tree, each class with its HTTP status and Iceberg type."""

import re
from collections.abc import Iterable
from typing import ClassVar, Self

Headers = tuple[tuple[str, str], ...]

MAX_SHOWN_LENGTH = 100  # characters of one value that a client sent
MAX_SHOWN_ITEMS = 10
MAX_LOCATION_LENGTH = 1000  # longer than other values: an operator has to find the file
MAX_MESSAGE_LENGTH = 2000  # characters
_LONG_RUN = re.compile(rf"[^\s,]{{{MAX_SHOWN_LENGTH + 21},}}")  # room for quotes and a word of ours before them


def show_text(text: object) -> str:
    """Shortens a value that a client sent for an error message: enough to recognise it."""
    whole = str(text)
    return whole if len(whole) <= MAX_SHOWN_LENGTH else f"{whole[:MAX_SHOWN_LENGTH]}… ({len(whole)} characters)"


def show_list(items: Iterable[object]) -> str:
    """Shortens a list of such values, each and as a whole."""
    listed = list(items)
    told = ", ".join(show_text(each) for each in listed[:MAX_SHOWN_ITEMS])
    left = len(listed) - MAX_SHOWN_ITEMS
    return told if left <= 0 else f"{told} and {left} more"


def bound_text(message: str) -> str:
    """Truncates an error message and the long words in it, which clients control. Applied to every CatalogError."""
    if len(message) <= MAX_SHOWN_LENGTH:
        return message
    message = message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}…"
    return _LONG_RUN.sub(_shorten, message)


def _shorten(found: re.Match[str]) -> str:
    run = found.group()
    most = MAX_LOCATION_LENGTH if "://" in run else MAX_SHOWN_LENGTH
    return run if len(run) <= most else f"{run[:most]}…"


class CatalogError(Exception):
    """An error that is sent to the client; `hint` says what to do next and never holds a secret."""

    status: ClassVar[int] = 500
    iceberg_type: ClassVar[str] = "InternalServerError"
    # Whether the same request would get the same error later: then it may be replayed for an Idempotency-Key.
    deterministic: ClassVar[bool] = False
    headers: Headers = ()  # of the response; set per class or per error

    def __init__(self, message: str, *, hint: str | None = None, headers: Headers | None = None) -> None:
        message = bound_text(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else bound_text(hint)
        if headers is not None:
            self.headers = headers

    def reworded(self, message: str, hint: str | None) -> Self:
        """Returns a copy with another message and hint; a copy, since several requests may share one error."""
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__)
        other.message = bound_text(message)
        other.args = (other.message,)
        other.hint = None if hint is None else bound_text(hint)
        return other


class BadRequest(CatalogError):
    """The request is malformed or invalid; a retry does not help."""

    status = 400
    iceberg_type = "BadRequestException"
    deterministic = True


class IllegalArgument(BadRequest):
    """IllegalArgumentException of the reference: well-formed, but not allowed on this metadata."""

    iceberg_type = "IllegalArgumentException"


class InvalidMetadata(BadRequest):
    """ValidationException of the reference: the resulting metadata would violate the table format."""

    iceberg_type = "ValidationException"


class NoSuchRoute(BadRequest):
    """No route has this path. Iceberg's reference server answers 400; the setting `error_types` makes it a 404."""


class NotAuthenticated(CatalogError):
    status = 401
    iceberg_type = "NotAuthorizedException"
    headers = (("WWW-Authenticate", 'Bearer realm="nunatak", error="invalid_token"'),)


class Forbidden(CatalogError):
    status = 403
    iceberg_type = "ForbiddenException"


class ShadowTable(CatalogError):
    """The table's files belong to another catalog until a migration is finished. Nothing was applied.

    Not a 409, after which clients would refresh and retry.
    """

    status = 403
    iceberg_type = "ShadowTableException"


class ReadOnlyWarehouse(CatalogError):
    """An operator has made the warehouse read-only. Nothing was applied.

    Not a 409, after which clients would refresh and retry.
    """

    status = 403
    iceberg_type = "ReadOnlyWarehouseException"


class NotFound(CatalogError):
    status = 404
    iceberg_type = "NotFoundException"
    deterministic = True


class NoSuchNamespace(NotFound):
    iceberg_type = "NoSuchNamespaceException"


class NoSuchTable(NotFound):
    iceberg_type = "NoSuchTableException"


class NoSuchView(NotFound):
    iceberg_type = "NoSuchViewException"


class NoSuchWarehouse(NotFound):
    iceberg_type = "NoSuchWarehouseException"


class MethodNotAllowed(CatalogError):
    """The path exists, but not with this method; `allowed` lists its methods."""

    status = 405
    iceberg_type = "MethodNotAllowedException"

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message, hint=f"Allowed: {allowed}.", headers=(("Allow", allowed),))


class Conflict(CatalogError):
    status = 409
    iceberg_type = "ConflictException"
    deterministic = True


class AlreadyExists(Conflict):
    iceberg_type = "AlreadyExistsException"


class NamespaceNotEmpty(Conflict):
    iceberg_type = "NamespaceNotEmptyException"


class CommitFailed(Conflict):
    """The table has changed since; nothing was applied. The client may refresh and retry."""

    iceberg_type = "CommitFailedException"


class TooSlow(CatalogError):
    """The request was not received in time; its connection is closed."""

    status = 408
    iceberg_type = "RequestTimeoutException"


class TooLarge(CatalogError):
    status = 413
    iceberg_type = "PayloadTooLargeException"


class UnsupportedMediaType(CatalogError):
    status = 415
    iceberg_type = "UnsupportedMediaTypeException"


class Unprocessable(CatalogError):
    status = 422
    iceberg_type = "UnprocessableEntityException"
    deterministic = True


class StorageTestFailed(CatalogError):
    """The object store of a warehouse failed the self-test. Nothing was applied; a later test may pass."""

    status = 422
    iceberg_type = "StorageTestFailedException"


class TooManyRequests(CatalogError):
    """A rate limit refused the request; nothing was applied. The client may retry after `Retry-After`."""

    status = 429
    iceberg_type = "TooManyRequestsException"
    headers = (("Retry-After", "1"),)


class HeadTooLarge(CatalogError):
    status = 431
    iceberg_type = "RequestHeaderFieldsTooLargeException"


class OutcomeUnknown(CatalogError):
    """The compare-and-swap was sent and its outcome is unknown: clients must keep their files."""

    status = 500
    iceberg_type = "CommitStateUnknownException"


class InternalError(CatalogError):
    status = 500
    iceberg_type = "InternalServerError"


class ServiceUnavailable(CatalogError):
    """A component is busy or unreachable; nothing was applied. The client may retry after `Retry-After`."""

    status = 503
    iceberg_type = "ServiceUnavailableException"
    headers = (("Retry-After", "1"),)


# Status and type with `error_types = distinct`. CommitStateUnknownException stays: clients depend on it.
_DISTINCT = {
    (401, NotAuthenticated.iceberg_type): (401, "NotAuthenticatedException"),
    (403, Forbidden.iceberg_type): (403, "NotAuthorizedException"),
    (422, Unprocessable.iceberg_type): (422, "ValidationException"),
    (500, InternalError.iceberg_type): (500, "ServiceException"),
}


def status_and_type(error: CatalogError, *, distinct: bool) -> tuple[int, str]:
    """Returns the status and type of the response to an error; `distinct` is from the setting `error_types`."""
    if distinct and isinstance(error, NoSuchRoute):
        return NotFound.status, NotFound.iceberg_type
    usual = error.status, error.iceberg_type
    return _DISTINCT.get(usual, usual) if distinct else usual
