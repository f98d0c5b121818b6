"""Every error we answer with: one tree, each class knows its HTTP status and its Iceberg type."""

import re
from collections.abc import Iterable
from typing import ClassVar, Self

Headers = tuple[tuple[str, str], ...]

MOST_SHOWN = 100  # characters of one thing that a client sent
MOST_SHOWN_ITEMS = 10
LONGEST_LOCATION = 1000  # which an operator has to find
LONGEST_MESSAGE = 2000  # characters, whatever it is made of
_LONG_RUN = re.compile(rf"[^\s,]{{{MOST_SHOWN + 21},}}")  # with quotes, and a word of ours before them


def show_text(text: object) -> str:
    """What an error repeats of something that a client sent: enough to recognise it."""
    whole = str(text)
    return whole if len(whole) <= MOST_SHOWN else f"{whole[:MOST_SHOWN]}… ({len(whole)} characters)"


def show_list(items: Iterable[object]) -> str:
    """The same of several things."""
    listed = list(items)
    told = ", ".join(show_text(each) for each in listed[:MOST_SHOWN_ITEMS])
    left = len(listed) - MOST_SHOWN_ITEMS
    return told if left <= 0 else f"{told} and {left} more"


def bound_text(message: str) -> str:
    """Cuts what a client sent, and the whole, wherever an error is made: none is longer than some lines."""
    if len(message) <= MOST_SHOWN:
        return message
    message = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
    return _LONG_RUN.sub(_shorten, message)


def _shorten(found: re.Match[str]) -> str:
    run = found.group()
    most = LONGEST_LOCATION if "://" in run else MOST_SHOWN
    return run if len(run) <= most else f"{run[:most]}…"


class CatalogError(Exception):
    """Something the caller is told about; `hint` says what to do next and never holds a secret."""

    status: ClassVar[int] = 500
    iceberg_type: ClassVar[str] = "InternalServerError"
    # An answer that would be the same for the same request later may be replayed for an Idempotency-Key.
    deterministic: ClassVar[bool] = False
    headers: Headers = ()  # that go with the answer: of the class, or of one error

    def __init__(self, message: str, *, hint: str | None = None, headers: Headers | None = None) -> None:
        message = bound_text(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else bound_text(hint)
        if headers is not None:
            self.headers = headers

    def reworded(self, message: str, hint: str | None) -> Self:
        """The same error in other words. A new value: several requests may have been refused with one."""
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__)
        other.message = bound_text(message)
        other.args = (other.message,)
        other.hint = None if hint is None else bound_text(hint)
        return other


class BadRequest(CatalogError):
    """The request cannot be understood, or asks for something that no retry will make possible."""

    status = 400
    iceberg_type = "BadRequestException"
    deterministic = True


class IllegalArgument(BadRequest):
    """What the reference calls IllegalArgumentException: well-formed, but not allowed on this metadata."""

    iceberg_type = "IllegalArgumentException"


class InvalidMetadata(BadRequest):
    """What the reference calls ValidationException: the resulting metadata would break the table format."""

    iceberg_type = "ValidationException"


class NoSuchRoute(BadRequest):
    """No route has this path. Iceberg's own server answers 400, which some operators want to be a 404."""


class NotAuthenticated(CatalogError):
    status = 401
    iceberg_type = "NotAuthorizedException"
    headers = (("WWW-Authenticate", 'Bearer realm="nunatak", error="invalid_token"'),)


class Forbidden(CatalogError):
    status = 403
    iceberg_type = "ForbiddenException"


class ShadowTable(CatalogError):
    """The table's files belong to another catalog until a migration is over. Certain: nothing was applied.

    Not a 409: clients would refresh and try the same again.
    """

    status = 403
    iceberg_type = "ShadowTableException"


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
    """The path exists, but not with this method; `allowed` names those that do."""

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
    """The table moved on; the client may refresh and try again. Certain: nothing was applied."""

    iceberg_type = "CommitFailedException"


class TooSlow(CatalogError):
    """The request did not arrive in time, and its connection is closed."""

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


class TooManyRequests(CatalogError):
    """Nothing was done; the same request may be sent again after `Retry-After`."""

    status = 429
    iceberg_type = "TooManyRequestsException"
    headers = (("Retry-After", "1"),)


class HeadTooLarge(CatalogError):
    status = 431
    iceberg_type = "RequestHeaderFieldsTooLargeException"


class OutcomeUnknown(CatalogError):
    """The swap was sent and we cannot tell whether it happened: clients must keep their files."""

    status = 500
    iceberg_type = "CommitStateUnknownException"


class InternalError(CatalogError):
    status = 500
    iceberg_type = "InternalServerError"


class ServiceUnavailable(CatalogError):
    """Nothing was done; the same request may be sent again after `Retry-After`."""

    status = 503
    iceberg_type = "ServiceUnavailableException"
    headers = (("Retry-After", "1"),)


# What the setting `error_types` makes of a status and type. CommitStateUnknownException stays: clients act upon it.
_DISTINCT = {
    (401, NotAuthenticated.iceberg_type): (401, "NotAuthenticatedException"),
    (403, Forbidden.iceberg_type): (403, "NotAuthorizedException"),
    (422, Unprocessable.iceberg_type): (422, "ValidationException"),
    (500, InternalError.iceberg_type): (500, "ServiceException"),
}


def status_and_type(error: CatalogError, *, distinct: bool) -> tuple[int, str]:
    """With which status and type an error is answered; `distinct` as the setting `error_types` says."""
    if distinct and isinstance(error, NoSuchRoute):
        return NotFound.status, NotFound.iceberg_type
    usual = error.status, error.iceberg_type
    return _DISTINCT.get(usual, usual) if distinct else usual
