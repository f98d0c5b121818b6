"""Maintenance windows: whether a time lies in a window, and when the next one opens. Times are UTC."""

from datetime import UTC, datetime, timedelta

from nunatak.maintenance.policies import Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def is_open(window: Window, now_ms: int) -> bool:
    return any(start <= _moment(now_ms) < end for start, end in _openings(window, now_ms))


def next_opening_ms(window: Window, now_ms: int) -> int:
    """Returns the start of the next window that has not started yet."""
    starts = [start for start, _ in _openings(window, now_ms) if start > _moment(now_ms)]
    return int(min(starts).timestamp() * 1000)


def _openings(window: Window, now_ms: int) -> list[tuple[datetime, datetime]]:
    """Returns the windows that start between yesterday, since one may span midnight, and eight days from today, so
    that every weekday is still to come."""
    today = _moment(now_ms).replace(hour=0, minute=0, second=0, microsecond=0)
    found = []
    for offset in range(-1, 9):
        day = today + timedelta(days=offset)
        if window.days is not None and window.days and DAYS[day.weekday()] not in window.days:
            continue
        start, end = _at(day, window.start), _at(day, window.end)
        found.append((start, end if end > start else end + timedelta(days=1)))
    return found


def _at(day: datetime, text: str) -> datetime:
    return day.replace(hour=int(text[:2]), minute=int(text[3:]))


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
