"""Translates the errors of obstore: what a failed request may have done, and the error that the client gets.

The messages of obstore hold URLs and dumps of whole responses: they go to the log, never to a client.
"""

import enum
import re
from dataclasses import dataclass

from nunatak.errors import CatalogError, Forbidden, InternalError, ServiceUnavailable
from nunatak.objectstore.location import Location, missing_file

_STATUS = re.compile(r"status(?: code)?:? (\d{3})\b")
_REQUEST_ID = re.compile(r"<RequestId>([^<]{1,100})</RequestId>|RequestId:([0-9a-fA-F-]{8,60})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
MAX_LOGGED = 400  # characters of obstore's message


class Failure(enum.Enum):
    """What a failed request means."""

    MISSING = "the object does not exist"
    NO_BUCKET = "the bucket does not exist"
    TAKEN = "an object of this name exists"
    DENIED = "the store refuses the server's credentials"
    REFUSED = "the store refuses the request"
    UNREACHABLE = "no connection was made: the store did not get the request"
    BUSY = "the store asks to slow down"
    UNKNOWN = "the store may have done the work: an error of its own, or no answer"


@dataclass(frozen=True)
class FailedRequest:
    """A failed request; `detail` is for the log: status, code and request id, as far as the store gave them."""

    failure: Failure
    detail: str


def failed_request(error: BaseException) -> FailedRequest:
    """Reads what an exception of obstore says."""
    text = str(error)
    status = _status_of(text)
    code, request = _CODE.search(text), _REQUEST_ID.search(text)
    detail = [f"status {status}"] if status else [" ".join(text.partition("Debug source:")[0].split())[:MAX_LOGGED]]
    detail += [f"code {code[1]}"] if code else []
    detail += [f"request {request[1] or request[2]}"] if request else []
    return FailedRequest(_failure_of(error, text, status), ", ".join(detail))


def _failure_of(error: BaseException, text: str, status: int | None) -> Failure:
    name = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return Failure.NO_BUCKET if _NO_BUCKET.search(text) else Failure.MISSING
    if name in ("AlreadyExistsError", "PreconditionError"):
        return Failure.TAKEN
    # S3 answers a request that deletes several objects with 200, and with a code for each that it refuses.
    refuses_one = status is None and "code: AccessDenied" in text
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403) or refuses_one:
        return Failure.DENIED
    if isinstance(error, ValueError) or name in ("InvalidPathError", "NotSupportedError"):
        return Failure.REFUSED
    if status in (429, 503):
        return Failure.BUSY
    if status == 409:  # S3: a conflicting conditional request is in progress
        return Failure.BUSY
    if status == 404:
        return Failure.NO_BUCKET if _NO_BUCKET.search(text) else Failure.MISSING
    if status is not None and 400 <= status < 500 and status != 408:
        # An ended session: AWS and ministack answer 400 ExpiredToken.
        return Failure.DENIED if "ExpiredToken" in text else Failure.REFUSED
    if "kind: Connect" in text:
        return Failure.UNREACHABLE
    return Failure.UNKNOWN


def _status_of(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def client_error(verb: str, place: Location, spelled: str, failed: FailedRequest) -> CatalogError:
    """Returns the error for the client; `verb` is what the server tried. None of these was applied."""
    failure = failed.failure
    if failure is Failure.MISSING:
        return missing_file(spelled)
    if failure is Failure.NO_BUCKET:
        return InternalError(f"Cannot {verb} {place}: its bucket does not exist")
    if failure is Failure.DENIED:
        return Forbidden(
            f"The object store does not allow this server to {verb} {place}",
            hint="The credentials of the warehouse lack a permission, have expired or are wrong; see the server's log.",
        )
    if failure in (Failure.REFUSED, Failure.TAKEN):
        return InternalError(f"Cannot {verb} {place}: {failure.value}")
    return ServiceUnavailable(f"Cannot {verb} {place} now: {failure.value}", hint="Try again in a moment.")
