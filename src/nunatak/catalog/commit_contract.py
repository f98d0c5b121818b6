"""The commit contract as a table: the HTTP statuses allowed for a change, by how far it came.

Clients delete the files of a refused commit and keep those of a commit with an unknown outcome. So a refusal promises
that nothing was applied, and once the change was sent to the database, only the database can make that promise.
"""

from collections.abc import Mapping
from enum import Enum


class Moment(Enum):
    """How far a change came, as far as the server knows."""

    NOT_SENT = "nothing was handed to the database"
    SENT = "it was handed to the database, which has not said what became of it"
    REFUSED = "the database said that nothing was applied"
    APPLIED = "the database said that it was applied"


SUCCESSES = frozenset({200, 204})
# The client deletes its files or retries the request: it relies on nothing having been applied.
REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 422, 429, 431, 503})
# The client keeps its files and checks the table: always allowed, and required while the outcome is unknown.
UNKNOWN = frozenset({500, 502, 504})

# A success without a change is that of a retry: the earlier request made the change.
ALLOWED: Mapping[Moment, frozenset[int]] = {
    Moment.NOT_SENT: SUCCESSES | REFUSALS | UNKNOWN,
    Moment.SENT: UNKNOWN,
    Moment.REFUSED: SUCCESSES | REFUSALS | UNKNOWN,
    Moment.APPLIED: SUCCESSES | UNKNOWN,
}


class Progress:
    """How far the change of one request came; `write` updates it, and the response is checked against it.

    `repeated` says that an earlier request made the change: the response is the current state of the table. `changed`
    says that a change was applied, and so has its event. `started` is when the request began, by time.perf_counter.
    """

    __slots__ = ("changed", "moment", "repeated", "started", "tries")

    def __init__(self, started: float | None = None) -> None:
        self.changed = False
        self.moment = Moment.NOT_SENT
        self.repeated = False
        self.started = started
        self.tries = 1

    def may_answer(self, status: int) -> bool:
        return status in ALLOWED[self.moment]
