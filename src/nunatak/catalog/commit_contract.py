"""What a change may be answered with, by how far it came: the commit contract as a table.

Clients delete the files of a commit that was refused and keep those of one whose outcome they cannot tell. So a refusal
is a promise that nothing was applied, and once the change was handed to the database only the database can give it.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from nunatak.events.change_events import ChangeEvent


class Moment(Enum):
    """How far a change came, as far as we know."""

    NOT_SENT = "nothing was handed to the database"
    SENT = "it was handed to the database, which has not said what became of it"
    REFUSED = "the database said that nothing was applied"
    APPLIED = "the database said that it was applied"


SUCCESSES = frozenset({200, 204})
# The client cleans up after itself, or sends the same request again: certain that nothing was applied.
REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 422, 429, 431, 503})
# The client keeps every file and looks for itself: allowed at any time, and of use when nobody can tell.
UNKNOWN = frozenset({500, 502, 504})

# A success without a change of its own is one that was made before: the same request, sent again.
ALLOWED: Mapping[Moment, frozenset[int]] = {
    Moment.NOT_SENT: SUCCESSES | REFUSALS | UNKNOWN,
    Moment.SENT: UNKNOWN,
    Moment.REFUSED: SUCCESSES | REFUSALS | UNKNOWN,
    Moment.APPLIED: SUCCESSES | UNKNOWN,
}


class Progress:
    """How far the change of one request came; `write` notes it, and the answer is measured by it.

    `repeated` says that an earlier request made the change: the answer is what the table is now. `events` are those of
    the change that was handed to the database last: they have happened if that was applied.
    """

    __slots__ = ("events", "moment", "repeated", "tries")

    def __init__(self) -> None:
        self.events: Sequence[ChangeEvent] = ()
        self.moment = Moment.NOT_SENT
        self.repeated = False
        self.tries = 1

    def may_answer(self, status: int) -> bool:
        return status in ALLOWED[self.moment]
